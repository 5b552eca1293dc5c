"""Tables that stay small however many rows come, and are the same in whatever order they come.

What is kept must be a matter of the rows alone, or two ranks that met the same files in another
order would tell another story. So each table has an order of rows that lies in the rows
themselves: a list of the best keeps the first in its order, and a table of sums the first keys in
an order of keys; what it lets go is summed as "other". A row or a key that was let go was beaten
by as many as may stay, and these never get worse: so it would not be in the end's table either,
and what is kept is complete. Both merge exactly, in any order.

The price: which keys stay has nothing to do with how much they hold. So the limits are far above
what trees have, and the order of keys is such that what is let go first says least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

K = TypeVar("K")
Row = TypeVar("Row")

OTHER_WIDTH = 3


class Best(Generic[Row]):
    """The first `most` rows in the order of `key`, whose first part is the number that counts.

    `floor` is the number that a row must at least have to matter, as `key` gives it: rows with a
    larger one need not be added, and so need not be made.
    """

    def __init__(self, most: int, key: Callable[[Row], tuple[Any, ...]]) -> None:
        self.floor: float = float("inf") if most else float("-inf")
        self._most = most
        self._key = key
        self._last: tuple[Any, ...] = ()
        self._rows: list[Row] = []

    def passes_by(self, rest: tuple[Any, ...]) -> bool:
        """Whether rows whose number is the floor do not matter, if this or more comes behind it in
        their keys.
        """
        return bool(self._last) and rest > self._last[1 : 1 + len(rest)]

    def add(self, row: Row) -> None:
        """Add a row; whole, since rows are not summed."""
        self._rows.append(row)
        if len(self._rows) >= 2 * self._most + 16:
            self._cut()

    def update(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        for row in rows:
            self.add(row)

    def rows(self) -> list[Row]:
        """The best, in order."""
        self._cut()
        return self._rows

    def _cut(self) -> None:
        self._rows.sort(key=self._key)
        del self._rows[self._most :]
        if self._most and len(self._rows) == self._most:
            self._last = self._key(self._rows[-1])
            self.floor = self._last[0]


class Sums(Generic[K]):
    """Tallies by key, of the first `most` keys in the order of `rank`; others are summed."""

    def __init__(self, most: int, rank: Callable[[K], Any]) -> None:
        self.tallies: dict[K, list[int]] = {}
        self.other = [0] * OTHER_WIDTH
        self._most = most
        self._rank = rank

    def add(self, key: K, number: int, size_bytes: int, allocated_bytes: int) -> None:
        """Add to a key's tally; numbers may be negative to take back what was added before."""
        tally = self.tallies.get(key)
        if tally is None:
            if len(self.tallies) >= 2 * self._most:
                self.cut()
            self.tallies[key] = [number, size_bytes, allocated_bytes]
        else:
            tally[0] += number
            tally[1] += size_bytes
            tally[2] += allocated_bytes

    def cut(self) -> None:
        """Let go of keys that are too many."""
        if len(self.tallies) > self._most:
            for key in sorted(self.tallies, key=self._rank)[self._most :]:
                add_to(self.other, self.tallies.pop(key))


def add_to(tally: list[int], more: Iterable[int]) -> None:
    """Add a tally to another one."""
    for place, amount in enumerate(more):
        tally[place] += amount


def by_number(key: int) -> int:
    """The order of owners and groups: system's accounts first."""
    return key


def by_sense(extension: str) -> tuple[bool, int, str]:
    """The order of extensions: those with digits are rarely one, and the long ones neither."""
    return any(map(str.isdigit, extension)), len(extension), extension


def by_length(layout: str) -> tuple[int, str]:
    """The order of layouts: the plainest first."""
    return len(layout), layout
