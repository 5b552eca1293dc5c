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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic

import msgspec

from pcircle.circle.joins import Joins
from pcircle.circle.messages import I, JoinRef, Parcel, R, Returns, Work


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

    def give(self, parcels: Iterable[Parcel[I]], *, is_answer: bool, rest: int = 0) -> Work[I]:
        """What is sent for these parcels; their joins await its results."""
        groups: dict[JoinRef | None, list[I]] = {}
        for parcel in parcels:
            groups.setdefault(parcel.parent, []).append(parcel.item)
        number = 0
        if None not in groups:
            number = self._last = self._last + 1
            self._given[number] = {
                slot: (parent.number, len(items))
                for slot, (parent, items) in enumerate(groups.items())
                if parent is not None
            }
        return Work(number, is_answer, tuple(map(tuple, groups.values())), rest)

    def take(self, source: int, work: Work[I]) -> Iterator[Parcel[I]]:
        """The parcels that came; their parents are proxies."""
        taken: _Taken[R] = _Taken(source, work.bundle, len(work.groups))
        for slot, items in enumerate(work.groups):
            proxy = None
            if work.bundle:
                number = self._joins.number()
                self._joins.expect(number, None, len(items))
                self._joins.processed(number, None)
                self._slots[number] = taken, slot
                proxy = JoinRef(self._rank, number)
            yield from (Parcel(item, proxy) for item in items)

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
