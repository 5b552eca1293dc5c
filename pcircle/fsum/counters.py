"""What a rank counts while it signs, and what all of them count together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pcircle.circle import Sums
from pcircle.runtime import RankReport, Work
from pcircle.ui.pace import Known

_AS_ONE_BYTES = 256 << 10


class Totals(NamedTuple):
    """Counts of a rank, or of all.

    `found` are the entries seen, each of which ends as exactly one of files,
    directories, links, special or failed. `sized` are those whose size is known;
    `scans_due` the directories found, `scans_done` those read.
    """

    found: int = 0
    sized: int = 0
    scans_due: int = 0
    scans_done: int = 0
    files: int = 0
    directories: int = 0
    links: int = 0
    special: int = 0
    failed: int = 0
    bytes_found: int = 0
    bytes_done: int = 0

    @property
    def signed(self) -> int:
        """Entries that have a digest."""
        return self.files + self.directories + self.links + self.special

    @property
    def settled(self) -> int:
        """Entries that have come to an end."""
        return self.signed + self.failed

    @property
    def troubles(self) -> int:
        """Entries that have failed."""
        return self.failed

    def known(self, weight: float) -> Known:
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


class Counters:
    """A rank's running counts; written by the worker, read by the main thread."""

    __slots__ = (*Totals._fields, "weight")

    def __init__(self) -> None:
        for name in Totals._fields:
            setattr(self, name, 0)
        self.weight = 0.0

    def sums(self) -> Sums:
        """The counts for a progress round."""
        return Sums(tuple(getattr(self, name) for name in Totals._fields), self.weight, 1)

    def work(self) -> Work:
        """What was done so far, in names; so many bytes count as one."""
        names = self.files + self.links + self.directories + self.special + self.scans_done
        return Work(names, self.bytes_done / _AS_ONE_BYTES)

    found: int
    sized: int
    scans_due: int
    scans_done: int
    files: int
    directories: int
    links: int
    special: int
    failed: int
    bytes_found: int
    bytes_done: int
    weight: float


def totals(counts: tuple[int, ...]) -> Totals:
    """The counts of `Counters.sums` by name."""
    return Totals(*counts)


def add_up(reports: Sequence[RankReport]) -> Totals:
    """The counts of all ranks together."""
    columns = zip(*(report.counts for report in reports), strict=True)
    return totals(tuple(map(sum, columns))) if reports else Totals()
