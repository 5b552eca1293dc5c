"""What a rank counts while it walks, and what all of them count together."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pcircle.circle import ProgressSums
from pcircle.runtime import Work
from pcircle.tool.counters import Entries
from pcircle.ui.pace import Known

_HIGH_BITS = 48


class Totals(Entries):
    """Counts of a rank, or of all. Times in microseconds.

    `unreadable` are directories that are counted as such, but whose entries nobody knows,
    `recalled` files of which a piece is read although they are offline.
    `bytes_high` are bytes in units of 2**48: on their way they are apart, since sparse
    files may have more than 64 bits tell.
    The worker's time goes to reading directories, to looking names up, and to adding
    up (`work_us`: all of it); `protocol_us` is what the engine took of the processor.
    """

    unreadable: int
    recalled: int
    bytes: int
    bytes_high: int
    readdir_us: int
    stat_us: int
    work_us: int
    protocol_us: int
    elapsed_us: int

    @property
    def troubles(self) -> int:
        """Entries that are not known, or whose own entries are not."""
        return self.failed + self.unreadable

    @property
    def idle_us(self) -> int:
        """The time in which this rank's workers had nothing to do."""
        return max(0, self.elapsed_us - self.work_us)

    @property
    def adding_us(self) -> int:
        """The time of this rank's workers that went to neither directories nor names."""
        return max(0, self.work_us - self.readdir_us - self.stat_us)

    @classmethod
    def figures(cls, counts: tuple[int, ...]) -> dict[str, int]:
        """See `Measured`."""
        total = totals(counts)
        times = ("readdir_us", "stat_us", "adding_us", "protocol_us", "idle_us")
        figures = {"entries": total.settled, "bytes": total.bytes}
        return figures | {name: getattr(total, name) for name in times}

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


class Counters(Totals):
    """A worker's running counts; written by it, read by the main thread."""

    readdir_s: float
    stat_s: float
    work_s: float
    _began_s: float
    _protocol_s: float | None

    def __init__(self, *, first: bool = True) -> None:
        """Those of the rank's first worker are of the engine's thread as well."""
        super().__init__()
        self.readdir_s = self.stat_s = self.work_s = 0.0
        self._began_s = time.perf_counter()
        self._protocol_s = time.thread_time() if first else None

    def sums(self) -> ProgressSums:
        """The counts for a progress round; on the main thread."""
        now = Totals.of(self.row())
        now.bytes, now.bytes_high = self.bytes & (1 << _HIGH_BITS) - 1, self.bytes >> _HIGH_BITS
        now.readdir_us, now.stat_us = round(self.readdir_s * 1e6), round(self.stat_s * 1e6)
        now.work_us = round(self.work_s * 1e6)
        if self._protocol_s is not None:
            now.protocol_us = round((time.thread_time() - self._protocol_s) * 1e6)
        now.elapsed_us = round((time.perf_counter() - self._began_s) * 1e6)
        return ProgressSums(now.row(), self.weight, 1)

    def work(self) -> Work:
        """What was done so far: entries that were looked up, and directories that were read."""
        return Work(self.completed + self.scans_done)


def totals(counts: tuple[int, ...]) -> Totals:
    """The counts of `Counters.sums` by name."""
    found = Totals.of(counts)
    found.bytes += found.bytes_high << _HIGH_BITS
    found.bytes_high = 0
    return found


def add_up(rows: Iterable[tuple[int, ...]]) -> Totals:
    """The counts of all ranks together."""
    return totals(Totals.total(rows).row())
