"""Fork-join bookkeeping: joins count an item's children, bundles return results of stolen items.

An item is complete when everything that it spawned is complete. A join represents an item that has
spawned children. It stays on the rank that processed the item and counts the children and their
results, wherever they are processed. It merges results as they arrive, so it holds one result,
however many children there are. The rank then runs the item's completion, whose return value is the
result for the item's own parent. Joins belong to the engine and not to the runtime, because
matching results to children is part of the protocol. The simulator tests the protocol for lost and
duplicated results.

Bundles return the results of stolen items. A rank that receives a share of another rank's queue, a
*bundle*, normally returns all its results in one message. The items of the share are grouped by the
joins that are waiting for them. Each group is a *slot*. At the thief a slot is represented by a
join without an item, a *proxy*, which is the parent of the slot's items. Their results are merged
into the proxy, no matter which rank finally processes the items. A rank that spawns ten thousand
items therefore receives about one message for each share that it gave away, and not one for each
item. The load on a rank's inbox does not grow with the width of a directory.

A complete slot waits for the other slots of its bundle, so that one message carries all results,
but only for a limited time. The other results may depend on this one: a hard link, for example,
waits for the file that another rank is copying. A bundle that waited for all of its slots could
then wait forever. Within a slot this cannot happen, because its items belong to one join, and the
join needs all of them anyway.

Near the end of a job single items travel from rank to rank. Returning a result through all of these
ranks, one after the other, would dominate the time to finish. So a rank that gives away the last
items of a slot also transfers the slot. The results merged so far travel with the items, and the
proxy is deleted. The final result is then sent directly to the rank that owns the slot. The owner
still receives one result per slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic

import msgspec

from pcircle.circle.messages import BundleResults, I, JoinRef, MovedSlot, Parcel, R, WorkTransfer

ROOT = JoinRef(0, 0)
"""The join of the seeds, on rank 0. The job is complete when this join is complete."""


class Join(Generic[I, R]):
    """The join of an item that waits for its children; without `parcel`, a proxy or the root.

    `own` is the value that the item itself returned when it was processed. It stays on this rank.
    `merged` is None until the first result of a child arrives.
    """

    __slots__ = ("merged", "own", "parcel", "pending", "processed")

    def __init__(self, parcel: Parcel[I] | None) -> None:
        self.parcel: Parcel[I] | None = parcel
        self.pending: int = 0
        self.processed: bool = False
        self.own: object = None
        self.merged: R | None = None

    @property
    def complete(self) -> bool:
        """Return whether the item is processed and no result is outstanding."""
        return self.processed and not self.pending


class Joins(Generic[I, R]):
    """The open joins of one rank, by number."""

    def __init__(self, merge: Callable[[R, R], R]) -> None:
        self._merge = merge
        self._open: dict[int, Join[I, R]] = {}
        self._last = ROOT.number
        self.max_open: int = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Join[I, R]]:
        return iter(self._open.values())

    def number(self) -> int:
        """Return a new number for an item and for the join that it may need."""
        self._last += 1
        return self._last

    def items(self) -> Iterable[tuple[int, Join[I, R]]]:
        """Return pairs of number and join."""
        return self._open.items()

    def expect(self, number: int, parcel: Parcel[I] | None, children: int) -> None:
        """Make join `number` expect the results of `children` more items. Open it if necessary."""
        join = self._open.get(number)
        if join is None:
            join = self._open[number] = Join(parcel)
            self.max_open = max(self.max_open, len(self._open))
        join.pending += children

    def processed(self, number: int, own: object) -> Join[I, R] | None:
        """Record that the item itself has run; return its join, or None if it has no children."""
        join = self._open.get(number)
        if join is not None:
            join.processed = True
            join.own = own
        return join

    def arrived(self, number: int, value: R, count: int = 1) -> Join[I, R]:
        """Merge a value that combines the results of `count` children, and return the join.

        Raises KeyError if the join is not open, and ValueError if it expects fewer results.
        """
        join = self._open[number]
        if join.pending < count:
            raise ValueError(f"join {number} got more results than it has children")
        join.pending -= count
        join.merged = value if join.merged is None else self._merge(join.merged, value)
        return join

    def peek(self, number: int) -> Join[I, R]:
        """Return an open join. Raises KeyError if it is not open."""
        return self._open[number]

    def close(self, number: int) -> Join[I, R]:
        """Remove a complete join and return it."""
        return self._open.pop(number)

    def abandon(self) -> list[Join[I, R]]:
        """Remove and return all joins whose own item is no longer running."""
        numbers = [number for number, join in self._open.items() if join.processed]
        return [self._open.pop(number) for number in numbers]

    def check(self) -> None:
        """Raise AssertionError unless the invariants hold."""
        for number, join in self._open.items():
            assert join.pending >= 0, f"join {number} has {join.pending} children"


# ---- bundles -------------------------------------------------------------------------------------


class _TakenBundle(msgspec.Struct, Generic[R]):
    """A bundle of another rank, some of whose slots are here."""

    victim: int
    number: int
    open: int  # incomplete slots
    done: list[tuple[int, R]] = []  # complete slots and their results, not sent yet
    due_s: float | None = None  # when `done` must be sent; set by the first call of `results`


class Bundles(Generic[I, R]):
    """The bundles that one rank has given and taken.

    `joins` are the rank's own joins, to which proxies are added. A complete result waits for at
    most `combine_s` seconds for the other results of its bundle.
    """

    def __init__(self, rank: int, joins: Joins[I, R], combine_s: float) -> None:
        self._rank = rank
        self._joins = joins
        self._combine_s = combine_s
        self._last = 0
        # For each bundle given, by slot: the join and the number of results that it expects.
        self._given: dict[int, dict[int, tuple[int, int]]] = {}
        self._slots: dict[int, tuple[_TakenBundle[R], int]] = {}  # keyed by proxy
        self._unsent: dict[int, _TakenBundle[R]] = {}  # in order of `due_s`

    @property
    def is_owing(self) -> bool:
        """Return whether results are waiting to be sent."""
        return bool(self._unsent)

    @property
    def given(self) -> int:
        """The number of slots that other ranks hold."""
        return sum(map(len, self._given.values()))

    @property
    def taken(self) -> int:
        """The number of other ranks' slots here, including complete slots not sent back yet."""
        return len(self._slots) + sum(len(taken.done) for taken in self._unsent.values())

    def give(
        self, thief: int, parcels: Iterable[Parcel[I]], *, is_answer: bool, remaining: int = 0
    ) -> WorkTransfer[I, R]:
        """Return the message that gives these parcels to a thief, and expect their results.

        `remaining` is the number of parcels of the same share that later messages will carry.
        """
        groups: dict[JoinRef | None, list[I]] = {}
        for parcel in parcels:
            groups.setdefault(parcel.parent, []).append(parcel.item)
        number, moved = 0, []
        joins = [parent.number for parent in groups if parent is not None]
        if len(joins) == len(groups):
            number = self._last = self._last + 1
            awaited = {}
            for place, (join, items) in enumerate(zip(joins, groups.values(), strict=True)):
                if self._is_all(join, len(items), thief):
                    moved.append(self._move(join, place))
                else:
                    awaited[place] = join, len(items)
            if awaited:
                self._given[number] = awaited
        return WorkTransfer(
            number, is_answer, tuple(map(tuple, groups.values())), remaining, tuple(moved)
        )

    def _is_all(self, join: int, items: int, thief: int) -> bool:
        """Return whether this many items are all that remains of a slot that can be transferred.

        A slot that belongs to the thief is not transferred. Its items return to the thief like any
        other items.
        """
        found = self._slots.get(join)
        if found is None or found[0].victim == thief:
            return False
        return self._joins.peek(join).pending == items

    def _move(self, proxy: int, place: int) -> MovedSlot[R]:
        """Give up a slot whose remaining items travel on as the group at index `place`."""
        taken, slot = self._slots.pop(proxy)
        taken.open -= 1
        merged = self._joins.close(proxy).merged
        came = () if merged is None else (merged,)
        return MovedSlot(place, taken.victim, taken.number, slot, came)

    def take(self, source: int, work: WorkTransfer[I, R]) -> Iterator[Parcel[I]]:
        """Yield the parcels of a received message, with proxies as their parents."""
        moved = {slot.place: slot for slot in work.moved}
        bundles: dict[tuple[int, int], _TakenBundle[R]] = {}
        for place, items in enumerate(work.groups):
            proxy = None
            if work.bundle:
                origin = moved.get(place) or MovedSlot(place, source, work.bundle, place)
                owner = origin.rank, origin.bundle
                taken = bundles.get(owner) or bundles.setdefault(owner, _TakenBundle(*owner, 0))
                taken.open += 1
                proxy = self._proxy(taken, origin, len(items))
            yield from (Parcel(item, proxy) for item in items)

    def _proxy(self, taken: _TakenBundle[R], origin: MovedSlot[R], items: int) -> JoinRef:
        number = self._joins.number()
        self._joins.expect(number, None, items)
        self._joins.processed(number, None)
        join = self._joins.peek(number)
        join.merged = origin.came[0] if origin.came else None
        self._slots[number] = taken, origin.slot
        return JoinRef(self._rank, number)

    def complete(self, proxy: int, value: Any) -> None:
        """Record the final result of a proxy, to be sent back with its bundle."""
        taken, slot = self._slots.pop(proxy)
        taken.open -= 1
        taken.done.append((slot, value))
        self._unsent[id(taken)] = taken

    def results(self, now_s: float) -> Sequence[tuple[int, BundleResults[R]]]:
        """Return the results to send now, as pairs of destination and message."""
        leaving = []
        for key, taken in self._unsent.items():
            if taken.due_s is None:
                taken.due_s = now_s + self._combine_s
            if not taken.open or now_s >= taken.due_s:
                leaving.append(key)
        out = []
        for key in leaving:
            taken = self._unsent.pop(key)
            out.append((taken.victim, BundleResults(taken.number, tuple(taken.done))))
            taken.done, taken.due_s = [], None
        return out

    def returned(self, returns: BundleResults[R]) -> Iterator[tuple[int, int, R]]:
        """Yield (join, number of items, merged value) for each slot of a message."""
        slots = self._given[returns.bundle]
        for slot, value in returns.results:
            join, count = slots.pop(slot)
            yield join, count, value
        if not slots:
            del self._given[returns.bundle]

    def clear(self) -> None:
        """Forget all bundles, because the job is stopping early."""
        self._given.clear()
        self._slots.clear()
        self._unsent.clear()

    def wakeup_s(self) -> float | None:
        """Return the time at which the oldest waiting results must be sent, or None."""
        return next((taken.due_s for taken in self._unsent.values()), None)
