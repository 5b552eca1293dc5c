"""What is stolen in one go: a bundle, whose results come back together.

A rank that gets a share of another's queue answers for it with one message. The share is grouped by
the joins that wait for its items, a *slot* each. At the thief a slot is a join without an item, a
proxy: it is the parent of the items that came, and their results merge in it, wherever they were
done in the end. So the rank that spawned ten thousand items hears once from each that it gave
some to, and not from everybody who did one: no inbox grows with the width of a directory.

A slot that is complete waits for the others of its bundle, so that one message says all; but not
for long. What waits for it may be what the others wait for, such as a hard link for the file that
another rank copies, and a bundle that waited for all of its slots could wait for ever. A slot
alone cannot: its items have one join, which waits for all of them anyway.

Near the end of a job single items go from rank to rank, and a result that went back through all of
them, one after the other, would be most of the time that the end takes. So who gives away all that
is left of a slot gives the slot itself: what has come of it goes along, the proxy is gone, and the
result goes straight to the rank that the slot is of. That rank still hears once of each slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic

import msgspec

from pcircle.circle.joins import Joins
from pcircle.circle.messages import I, JoinRef, Moved, Parcel, R, Returns, Work
from pcircle.guards import require


class _Taken(msgspec.Struct, Generic[R]):
    """A bundle of another rank, at the thief."""

    victim: int
    number: int
    open: int  # slots that are not complete
    done: list[tuple[int, R]] = []  # slots that are, with their results, and not sent
    due_s: float | None = None  # when they leave at the latest, once that was asked


class Bundles(Generic[I, R]):
    """What one rank has given and taken. `joins` are its own, which get the proxies too.

    `combine_s` is how long a result waits for others of its bundle.
    """

    def __init__(self, rank: int, joins: Joins[I, R], combine_s: float) -> None:
        self._rank = rank
        self._joins = joins
        self._combine_s = combine_s
        self._last = 0
        # Of what was given: who has it, and for each slot the join and how many results it awaits.
        self._given: dict[int, dict[int, tuple[int, int]]] = {}
        self._slots: dict[int, tuple[_Taken[R], int]] = {}  # of what was taken, by proxy
        self._unsent: dict[int, _Taken[R]] = {}  # in the order in which they are due

    @property
    def is_owing(self) -> bool:
        """Whether there are results to be sent."""
        return bool(self._unsent)

    @property
    def given(self) -> int:
        """How many slots are with others."""
        return sum(map(len, self._given.values()))

    @property
    def taken(self) -> int:
        """How many slots are here and not sent back, complete ones included."""
        return len(self._slots) + sum(len(taken.done) for taken in self._unsent.values())

    def give(
        self, thief: int, parcels: Iterable[Parcel[I]], *, is_answer: bool, rest: int = 0
    ) -> Work[I, R]:
        """What is sent to a thief for these parcels; their joins await its results."""
        groups: dict[JoinRef | None, list[I]] = {}
        for parcel in parcels:
            groups.setdefault(parcel.parent, []).append(parcel.item)
        number, moved = 0, []
        if None not in groups:
            number = self._last = self._last + 1
            awaited = {}
            for place, (parent, items) in enumerate(groups.items()):
                join = require(parent).number
                if self._is_all(join, len(items), thief):
                    moved.append(self._move(join, place))
                else:
                    awaited[place] = join, len(items)
            if awaited:
                self._given[number] = awaited
        return Work(number, is_answer, tuple(map(tuple, groups.values())), rest, tuple(moved))

    def _is_all(self, join: int, items: int, thief: int) -> bool:
        """Whether so many items are all that is left of another rank's slot, and not the thief's.

        One of the thief's own comes back to it as any other work does.
        """
        found = self._slots.get(join)
        if found is None or found[0].victim == thief:
            return False
        return self._joins.peek(join).pending == items

    def _move(self, proxy: int, place: int) -> Moved[R]:
        """Let go of a slot, whose items go on as a group at this place."""
        taken, slot = self._slots.pop(proxy)
        taken.open -= 1
        merged = self._joins.close(proxy).merged
        came = () if merged is None else (merged,)
        return Moved(place, taken.victim, taken.number, slot, came)

    def take(self, source: int, work: Work[I, R]) -> Iterator[Parcel[I]]:
        """The parcels that came; their parents are proxies."""
        moved = {each.place: each for each in work.moved}
        bundles: dict[tuple[int, int], _Taken[R]] = {}
        for place, items in enumerate(work.groups):
            proxy = None
            if work.bundle:
                each = moved.get(place) or Moved(place, source, work.bundle, place)
                of = each.rank, each.bundle
                taken = bundles.get(of) or bundles.setdefault(of, _Taken(*of, 0))
                taken.open += 1
                proxy = self._proxy(taken, each, len(items))
            yield from (Parcel(item, proxy) for item in items)

    def _proxy(self, taken: _Taken[R], each: Moved[R], items: int) -> JoinRef:
        number = self._joins.number()
        self._joins.expect(number, None, items)
        join = require(self._joins.processed(number, None))
        join.merged = each.came[0] if each.came else None
        self._slots[number] = taken, each.slot
        return JoinRef(self._rank, number)

    def complete(self, proxy: int, value: Any) -> None:
        """A proxy has all its results."""
        taken, slot = self._slots.pop(proxy)
        taken.open -= 1
        taken.done.append((slot, value))
        self._unsent[id(taken)] = taken

    def results(self, now_s: float) -> Sequence[tuple[int, Returns[R]]]:
        """What is to be sent now, and to whom."""
        leaving = []
        for key, taken in self._unsent.items():
            if taken.due_s is None:
                taken.due_s = now_s + self._combine_s
            if not taken.open or now_s >= taken.due_s:
                leaving.append(key)
        out = []
        for key in leaving:
            taken = self._unsent.pop(key)
            out.append((taken.victim, Returns(taken.number, tuple(taken.done))))
            taken.done, taken.due_s = [], None
        return out

    def returned(self, returns: Returns[R]) -> Iterator[tuple[int, int, R]]:
        """What came back: for each slot the join, how many results it awaits, and their merge."""
        slots = self._given[returns.bundle]
        for slot, value in returns.results:
            join, count = slots.pop(slot)
            yield join, count, value
        if not slots:
            del self._given[returns.bundle]

    def clear(self) -> None:
        """Forget everything: the job stops early."""
        self._given.clear()
        self._slots.clear()
        self._unsent.clear()

    def wakeup_s(self) -> float | None:
        """When results have waited long enough for others."""
        return next((taken.due_s for taken in self._unsent.values()), None)
