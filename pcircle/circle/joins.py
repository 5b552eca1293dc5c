"""Fork-join bookkeeping: an item is complete when everything that it spawned is complete.

A join stands for an item that has spawned children. It stays on the rank that processed the item,
counts the children and their results, wherever they run, and merges results as they arrive, so that
its size does not grow with the number of children. The rank then runs the item's completion, whose
return value is the result for the item's own parent. Joins belong to the engine and not to the
runtime, because matching results to children is part of the protocol: the simulator searches it for
lost and duplicated results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from pcircle.circle.messages import I, JoinRef, Parcel, R

ROOT = JoinRef(0, 0)
"""The join of the seeds, on rank 0. The job is complete when this join is."""


class Join(Generic[I, R]):
    """An item that waits for its children, or, without an item, the proxy of a remote join.

    `own` is what processing the item itself returned; it never leaves this rank. `merged` is None
    until the first result of a child arrives.
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
        """Return whether the item is processed and no result is outstanding."""
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
        """Return a new number, for an item that starts and for the join that it may need."""
        self._last += 1
        return self._last

    def items(self) -> Iterable[tuple[int, Join[I, R]]]:
        """Return pairs of number and join."""
        return self._open.items()

    def expect(self, number: int, parcel: Parcel[I] | None, children: int) -> None:
        """Record that the item of join `number` has spawned `children` more items."""
        join = self._open.get(number)
        if join is None:
            join = self._open[number] = Join(parcel)
            self.max_open = max(self.max_open, len(self._open))
        join.pending += children

    def processed(self, number: int, own: object) -> Join[I, R] | None:
        """Record that the item itself has run; return its join, or None if it never spawned."""
        join = self._open.get(number)
        if join is not None:
            join.processed = True
            join.own = own
        return join

    def arrived(self, number: int, value: R, count: int = 1) -> Join[I, R]:
        """Merge the result of `count` children and return the join.

        Raises KeyError if the join is not open, ValueError if it expects fewer results.
        """
        join = self._open[number]
        if join.pending < count:
            raise ValueError(f"join {number} got more results than it has children")
        join.pending -= count
        join.merged = value if join.merged is None else self._merge(join.merged, value)
        return join

    def peek(self, number: int) -> Join[I, R]:
        """Return an open join; raises KeyError if it is not open."""
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
