"""What the counters of all tools that walk are for: progress, the number of threads, accounts."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import msgspec

from pcircle.circle import ProgressSums
from pcircle.counting import Counting
from pcircle.runtime import Work
from pcircle.ui.pace import Known

_AS_ONE_BYTES = 256 << 10


class Walked(Protocol):
    """What such counters have, whichever class they are of: see `Entries`."""

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


class Sized(Walked, Protocol):
    """The counters of a walk that reads what is in files."""

    names: ClassVar[tuple[str, ...]]
    sized: int
    bytes_found: int
    bytes_done: int


class Measured:
    """What follows from these counters."""

    __slots__ = ()

    @property
    def completed(self: Walked) -> int:
        """Entries with which all went well."""
        return self.files + self.directories + self.links + self.special

    @property
    def settled(self: Walked) -> int:
        """Entries that have come to an end."""
        return self.completed + self.failed

    @property
    def troubles(self: Walked) -> int:
        """Entries with which something went wrong."""
        return self.failed

    def sums(self: Walked) -> ProgressSums:
        """The counts for a progress round."""
        return ProgressSums(self.row(), self.weight, 1)

    def work(self: Sized) -> Work:
        """What was done so far, in names; so many bytes count as one."""
        return Work(self.completed + self.scans_done, self.bytes_done / _AS_ONE_BYTES)

    def done_at_once(self: Sized, directories: int, files: int, weight: float) -> None:
        """Count directories, each of this weight, that were done with all that is in them.

        That is so many files, of which the caller counts how they came to an end.
        """
        self.found += files
        if "sized" in self.names:
            self.sized += files + directories
        self.scans_done += directories
        self.directories += directories
        self.weight += weight * directories

    @classmethod
    def figures(cls, counts: tuple[int, ...]) -> dict[str, int]:
        """What a summary of many ranks tells of one with these counts."""
        total: Any = cls.of(counts)  # type: ignore[attr-defined]  # of `Counting`
        return {"entries": total.completed, "bytes": total.bytes_done}

    def known(self: Sized, weight: float) -> Known:
        """What is known of the work, for how long it will take."""
        return Known(
            found=self.found,
            sized=self.sized,
            done=self.settled,
            bytes_found=self.bytes_found,
            bytes_done=self.bytes_done,
            scanned=self.scans_due == self.scans_done,
            weight=weight,
        )


class Entries(Measured, Counting):
    """The counters of a walk: entries found, and how each came to an end.

    Each of those `found` ends as exactly one of files, directories, links, special or failed.
    `scans_due` are the directories found, `scans_done` those read; `offline` are files that were
    left out since their data is elsewhere.
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


def reported(report: type[msgspec.Struct], total: Counting) -> dict[str, int]:
    """The fields of a report that are counters, with their counts."""
    return {name: getattr(total, name) for name in report.__struct_fields__ if name in total.names}
