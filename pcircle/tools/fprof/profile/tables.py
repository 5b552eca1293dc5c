"""Tables of bounded size whose result does not depend on the order of additions.

Two ranks that see the same files in different orders must keep the same rows. Each table therefore
defines a total order. A top list keeps its first rows in that order. A table of sums keeps its
first keys, and adds up all other keys as "other". A dropped row is preceded by enough rows to fill
the table. Later additions can replace these only with rows that precede them. So the dropped row
could not have been in the final table, and no row that belongs there is lost. Tables of both types
can therefore be merged exactly, in any order.

The price is that a table of sums chooses keys regardless of their sums. The limits are therefore
far higher than the numbers of keys in real trees, and the least informative keys are dropped first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

from pcircle.core.errors import require_type

K = TypeVar("K")
Row = TypeVar("Row")
RowKey: TypeAlias = tuple[int | bytes, ...]
KeyRank: TypeAlias = int | tuple[int | str, ...]

OTHER_WIDTH = 3


class Best(Generic[Row]):
    """The first `most` rows in the order of `key`.

    The first part of a key is the number by which rows are ranked. Rows whose number exceeds
    `floor` are never kept, so callers need not create them.
    """

    def __init__(self, most: int, key: Callable[[Row], RowKey]) -> None:
        self.floor: float = float("inf") if most else float("-inf")
        self._most = most
        self._key = key
        self._last: RowKey = ()
        self._rows: list[Row] = []

    def passes_by(self, bounds: RowKey) -> bool:
        """Return whether rows with the number `floor` are dropped unless they precede `bounds`."""
        return bool(self._last) and bounds > self._last[1 : 1 + len(bounds)]

    def add(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) >= 2 * self._most + 16:
            self._cut()

    def update(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        for row in rows:
            self.add(row)

    def rows(self) -> list[Row]:
        """Return the rows in order."""
        self._cut()
        return self._rows

    def _cut(self) -> None:
        self._rows.sort(key=self._key)
        del self._rows[self._most :]
        if self._most and len(self._rows) == self._most:
            self._last = self._key(self._rows[-1])
            self.floor = require_type(int, self._last[0])


class Sums(Generic[K]):
    """Tallies of the first `most` keys in the order of `rank`, and of all other keys together."""

    def __init__(self, most: int, rank: Callable[[K], KeyRank]) -> None:
        self.tallies: dict[K, list[int]] = {}
        self.other: list[int] = [0] * OTHER_WIDTH
        self._most = most
        self._rank = rank

    def add(self, key: K, number: int, size_bytes: int, allocated_bytes: int) -> None:
        """Add numbers to the tally of a key; negative numbers undo earlier additions."""
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
        """Add the tallies of keys beyond the limit to `other`."""
        if len(self.tallies) > self._most:
            for key in sorted(self.tallies, key=self._rank)[self._most :]:
                add_to(self.other, self.tallies.pop(key))


def add_to(tally: list[int], more: Iterable[int]) -> None:
    """Add a tally to another tally."""
    for place, amount in enumerate(more):
        tally[place] += amount


def by_number(key: int) -> int:
    """Return the sort key of an owner or group: system accounts are kept first."""
    return key


def by_sense(extension: str) -> tuple[bool, int, str]:
    """Return the sort key of an extension: short ones without digits are kept first."""
    return any(map(str.isdigit, extension)), len(extension), extension


def by_length(layout: str) -> tuple[int, str]:
    """Return the sort key of a layout: the shortest descriptions are kept first."""
    return len(layout), layout
