"""What a rank counts while it walks, and what all of them count together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from pcircle.circle import Sums
from pcircle.runtime import RankReport, Work
from pcircle.ui.pace import Known


class Totals(NamedTuple):
    """Counts of a rank, or of all. Times in microseconds.

    `found` are the entries seen, each of which ends as exactly one of files,
    directories, links, special or failed; `unreadable` are directories that are
    counted as such, but whose entries nobody knows. `scans_due` are the directories
    found, `scans_done` those read.
    `bytes_high` are bytes in units of 2**48: on their way they are apart, since sparse
    files may have more than 64 bits tell.
    The worker's time goes to reading directories, to looking names up, and to adding
    up (`work_us`: all of it); `protocol_us` is what the engine took of the processor.
    """

    found: int = 0
    scans_due: int = 0
    scans_done: int = 0
    files: int = 0
    directories: int = 0
    links: int = 0
    special: int = 0
    failed: int = 0
    unreadable: int = 0
    bytes: int = 0
    bytes_high: int = 0
    readdir_us: int = 0
    stat_us: int = 0
    work_us: int = 0
    protocol_us: int = 0
    elapsed_us: int = 0

    @property
    def settled(self) -> int:
        """Entries that have come to an end."""
        return self.files + self.directories + self.links + self.special + self.failed

    @property
    def troubles(self) -> int:
        """Entries that are not known, or whose own entries are not."""
        return self.failed + self.unreadable

    def known(self, weight: float) -> Known:
        """What is known of the work, for how long it will take: bytes are none of it."""
        return Known(
            found=self.found,
            sized=self.found,
            done=self.settled,
            bytes_found=0,
            bytes_done=0,
            scanned=self.scans_due == self.scans_done,
            weight=weight,
        )

    @property
    def idle_us(self) -> int:
        """The time in which this rank's workers had nothing to do."""
        return max(0, self.elapsed_us - self.work_us)


_HIGH_BITS = 48
_COUNTED = Totals._fields[: Totals._fields.index("bytes_high")]  # `bytes` is the last


class Counters:
    """A worker's running counts; written by it, read by the main thread."""

    __slots__ = (
        *_COUNTED,
        "_began_s",
        "_protocol_s",
        "readdir_s",
        "stat_s",
        "weight",
        "work_s",
    )

    def __init__(self, *, first: bool = True) -> None:
        """Those of the rank's first worker are of the engine's thread as well."""
        for name in _COUNTED:
            setattr(self, name, 0)
        self.readdir_s = self.stat_s = self.work_s = self.weight = 0.0
        self._began_s = time.perf_counter()
        self._protocol_s = time.thread_time() if first else None

    def sums(self) -> Sums:
        """The counts for a progress round; on the main thread."""
        times_s = (
            self.readdir_s,
            self.stat_s,
            self.work_s,
            0.0 if self._protocol_s is None else time.thread_time() - self._protocol_s,
            time.perf_counter() - self._began_s,
        )
        counts = [getattr(self, name) for name in _COUNTED]
        counts[-1:] = [self.bytes & (1 << _HIGH_BITS) - 1, self.bytes >> _HIGH_BITS]
        counts += [round(time_s * 1e6) for time_s in times_s]
        return Sums(tuple(counts), self.weight, 1)

    def work(self) -> Work:
        """What was done so far: entries that were looked up, and directories that were read."""
        return Work(self.files + self.links + self.directories + self.special + self.scans_done)

    found: int
    scans_due: int
    scans_done: int
    files: int
    directories: int
    links: int
    special: int
    failed: int
    unreadable: int
    bytes: int


def totals(counts: tuple[int, ...]) -> Totals:
    """The counts of `Counters.sums` by name."""
    found = Totals(*counts)
    return found._replace(bytes=found.bytes + (found.bytes_high << _HIGH_BITS), bytes_high=0)


def add_up(reports: Sequence[RankReport]) -> Totals:
    """The counts of all ranks together."""
    columns = zip(*(report.counts for report in reports), strict=True)
    return totals(tuple(map(sum, columns))) if reports else Totals()
