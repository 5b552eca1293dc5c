"""Fork-join bookkeeping: an item is complete when all it spawned is complete.

A join stands for an item that has spawned children. It waits on the rank that
processed the item, counts the children out and their results in, wherever
they ran, and merges the results as they come, so that its size does not grow
with the number of children. The rank then runs the item's completion, and
what that returns goes to the item's own parent. It is here and not in the
runtime because counting messages in and out is protocol: the simulator
searches it for lost and doubled results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from pcircle.circle.messages import I, JoinRef, Parcel, R

ROOT = JoinRef(0, 0)
"""The join of the seeds, on rank 0: when it is complete, the job is."""


class Join(Generic[I, R]):
    """One item that waits for its children; without an item, what stands for one elsewhere.

    `own` is what processing the item itself returned; it never travels.
    `merged` is None until the first child's result has come.
    """

    __slots__ = ("merged", "own", "parcel", "pending", "processed")

    def __init__(self, parcel: Parcel[I] | None) -> None:
        self.parcel = parcel
        self.pending = 0
        self.processed = False
        self.own: object = None
        self.merged: R | None = None

    @property
    def complete(self) -> bool:
        """Nothing is waited for any more."""
        return self.processed and not self.pending


class Joins(Generic[I, R]):
    """The open joins of one rank, by number."""

    def __init__(self, merge: Callable[[R, R], R]) -> None:
        self._merge = merge
        self._open: dict[int, Join[I, R]] = {}
        self._last = ROOT.number
        self.max_open = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Join[I, R]]:
        return iter(self._open.values())

    def number(self) -> int:
        """A new one, for an item that begins (its join, should it spawn, has its number)."""
        self._last += 1
        return self._last

    def items(self) -> Iterable[tuple[int, Join[I, R]]]:
        """Numbers and joins."""
        return self._open.items()

    def expect(self, number: int, parcel: Parcel[I] | None, children: int) -> None:
        """The item of join `number` has spawned `children` more."""
        join = self._open.get(number)
        if join is None:
            join = self._open[number] = Join(parcel)
            self.max_open = max(self.max_open, len(self._open))
        join.pending += children

    def processed(self, number: int, own: object) -> Join[I, R] | None:
        """The item itself is done; returns its join, or None if it never spawned."""
        join = self._open.get(number)
        if join is not None:
            join.processed = True
            join.own = own
        return join

    def arrived(self, number: int, value: R, count: int = 1) -> Join[I, R]:
        """The merged result of `count` children has come; returns the join.

        KeyError if there is none such.
        """
        join = self._open[number]
        if join.pending < count:
            raise ValueError(f"join {number} got more results than it has children")
        join.pending -= count
        join.merged = value if join.merged is None else self._merge(join.merged, value)
        return join

    def peek(self, number: int) -> Join[I, R]:
        """An open join. KeyError if there is none such."""
        return self._open[number]

    def close(self, number: int) -> Join[I, R]:
        """Take a complete join out."""
        return self._open.pop(number)

    def abandon(self) -> list[Join[I, R]]:
        """Take out all joins whose own item is not running any more."""
        numbers = [number for number, join in self._open.items() if join.processed]
        return [self._open.pop(number) for number in numbers]

    def check(self) -> None:
        """Raise AssertionError unless the invariants hold."""
        for number, join in self._open.items():
            assert join.pending >= 0, f"join {number} has {join.pending} children"
