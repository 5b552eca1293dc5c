"""Counters of jobs over trees: for progress, the number of threads, and the final accounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol, TypeVar

import msgspec

from pcircle.circle import ProgressSums
from pcircle.core.counters import CounterSet
from pcircle.runtime import Work

ENTRY_COST_BYTES = 256 << 10


class WorkCounts(msgspec.Struct, frozen=True):
    """The known work of a job: entries found, entries of known size, and entries done.

    If `scanned`, the walk has found all entries. `weight` estimates the share of the tree that was
    visited. `earlier` and `earlier_bytes` count work that an earlier run did. Bytes that cost no
    time are not counted as found.
    """

    found: int
    sized: int
    done: int
    bytes_found: int
    bytes_done: int
    scanned: bool
    weight: float
    earlier: int = 0
    earlier_bytes: int = 0

    @property
    def complete(self) -> bool:
        """Return whether all entries and bytes are known, so that shares are exact."""
        return self.scanned and self.sized == self.found


class WalkCounts(Protocol):
    """The attributes of counters of a walk, see `EntryCounters`."""

    found: int
    scans_due: int
    scans_done: int
    files: int
    directories: int
    links: int
    special: int
    failed: int
    offline: int
    weight: float

    def row(self) -> tuple[int, ...]: ...
    @property
    def completed(self) -> int: ...
    @property
    def settled(self) -> int: ...


class SizedWalkCounts(WalkCounts, Protocol):
    """The counters of a walk that reads the contents of files."""

    names: ClassVar[tuple[str, ...]]
    sized: int
    bytes_found: int
    bytes_done: int


class _ReadableRow(SizedWalkCounts, Protocol):
    """Counters that `Counting.of` makes from a row."""

    @classmethod
    def of(cls: type[S], row: Iterable[int]) -> S: ...


S = TypeVar("S")


class DerivedCounts:
    """Figures that are computed from the counters."""

    __slots__ = ()

    @property
    def completed(self: WalkCounts) -> int:
        """Return the number of entries that succeeded."""
        return self.files + self.directories + self.links + self.special

    @property
    def settled(self: WalkCounts) -> int:
        """Return the number of entries that succeeded or failed."""
        return self.completed + self.failed

    @property
    def troubles(self: WalkCounts) -> int:
        """Return the number of entries that failed."""
        return self.failed

    def sums(self: WalkCounts) -> ProgressSums:
        """Return the counts for a progress round."""
        return ProgressSums(self.row(), self.weight, 1)

    def work(self: SizedWalkCounts) -> Work:
        """Return the work done so far; 256 KiB of data count as one name."""
        return Work(self.completed + self.scans_done, self.bytes_done / ENTRY_COST_BYTES)

    def done_at_once(self: SizedWalkCounts, directories: int, files: int, weight: float) -> None:
        """Count directories, each of this weight, that were completed with their files.

        The caller counts the results of the files.
        """
        self.found += files
        if "sized" in self.names:
            self.sized += files + directories
        self.scans_done += directories
        self.directories += directories
        self.weight += weight * directories

    @classmethod
    def figures(cls: type[_ReadableRow], counts: tuple[int, ...]) -> dict[str, int]:
        """Return the figures of a rank with these counts, for a summary of many ranks."""
        total = cls.of(counts)
        return {"entries": total.completed, "bytes": total.bytes_done}

    def known(self: SizedWalkCounts, weight: float) -> WorkCounts:
        """Return the known work, from which the remaining time is estimated."""
        return WorkCounts(
            found=self.found,
            sized=self.sized,
            done=self.settled,
            bytes_found=self.bytes_found,
            bytes_done=self.bytes_done,
            scanned=self.scans_due == self.scans_done,
            weight=weight,
        )


class EntryCounters(DerivedCounts, CounterSet):
    """The counters of a walk: entries found, and the result of each.

    Each entry that is `found` is later counted exactly once as files, directories, links, special
    or failed. `scans_due` counts the directories found, `scans_done` the directories read.
    `offline` counts files that were excluded because their data is on tape.
    """

    found: int
    scans_due: int
    scans_done: int
    files: int
    directories: int
    links: int
    special: int
    failed: int
    offline: int


class NamedCounters(Protocol):
    """Counters with a tuple of their names."""

    names: ClassVar[tuple[str, ...]]


def reported(report: type[msgspec.Struct], total: NamedCounters) -> dict[str, int]:
    """Return the values of all fields of a report type that are counters."""
    return {name: getattr(total, name) for name in report.__struct_fields__ if name in total.names}
