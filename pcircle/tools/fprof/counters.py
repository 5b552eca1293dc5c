"""The counters of a walk, for a worker, a rank, or all ranks."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pcircle.circle import ProgressSums
from pcircle.jobs.counters import EntryCounters, WorkCounts
from pcircle.runtime import Work

_HIGH_BITS = 48


class ProfileTotals(EntryCounters):
    """The counts of a rank or of all ranks. Times are in microseconds.

    `unreadable` counts directories whose entries could not be listed, and `recalled` offline files
    of which a piece was read. `bytes_high` counts units of 2**48 bytes, sent separately because
    sparse files may claim more than 64 bits. The worker's time is `work_us`, which includes the
    time for reading directories and looking up names. `protocol_us` is the processor time of the
    engine.
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
        """Return the number of entries that are unknown, or whose contents are unknown."""
        return self.failed + self.unreadable

    @property
    def bytes_done(self) -> int:
        """Return the bytes of the entries, for the console."""
        return self.bytes

    @property
    def idle_us(self) -> int:
        """Return the time in which the workers of this rank waited for work."""
        return max(0, self.elapsed_us - self.work_us)

    @property
    def adding_us(self) -> int:
        """Return the time of the workers outside of directories and names."""
        return max(0, self.work_us - self.readdir_us - self.stat_us)

    @classmethod
    def figures(cls, counts: tuple[int, ...]) -> dict[str, int]:
        total = totals(counts)
        times = ("readdir_us", "stat_us", "adding_us", "protocol_us", "idle_us")
        figures = {"entries": total.settled, "bytes": total.bytes}
        return figures | {name: getattr(total, name) for name in times}

    def known(self, weight: float) -> WorkCounts:
        """Return the known work. Bytes do not count as work here."""
        return WorkCounts(
            found=self.found,
            sized=self.found,
            done=self.settled,
            bytes_found=0,
            bytes_done=0,
            scanned=self.scans_due == self.scans_done,
            weight=weight,
        )


class ProfileCounters(ProfileTotals):
    """The running counts of a worker, which writes them; the main thread only reads them."""

    readdir_s: float
    stat_s: float
    work_s: float
    _began_s: float
    _protocol_s: float | None

    def __init__(self, *, first: bool = True) -> None:
        """Make the counters of a worker.

        The `first` worker of a rank also counts the thread of the engine.
        """
        super().__init__()
        self.readdir_s = self.stat_s = self.work_s = 0.0
        self._began_s = time.perf_counter()
        self._protocol_s = time.thread_time() if first else None

    def sums(self) -> ProgressSums:
        """Return the counts for a progress round. The main thread calls this."""
        now = ProfileTotals.of(self.row())
        now.bytes, now.bytes_high = self.bytes & (1 << _HIGH_BITS) - 1, self.bytes >> _HIGH_BITS
        now.readdir_us, now.stat_us = round(self.readdir_s * 1e6), round(self.stat_s * 1e6)
        now.work_us = round(self.work_s * 1e6)
        if self._protocol_s is not None:
            now.protocol_us = round((time.thread_time() - self._protocol_s) * 1e6)
        now.elapsed_us = round((time.perf_counter() - self._began_s) * 1e6)
        return ProgressSums(now.row(), self.weight, 1)

    def work(self) -> Work:
        """Return the work done so far: names looked up, and directories read."""
        return Work(self.completed + self.scans_done)


def totals(counts: tuple[int, ...]) -> ProfileTotals:
    """Return the counts of `Counters.sums` by name."""
    found = ProfileTotals.of(counts)
    found.bytes += found.bytes_high << _HIGH_BITS
    found.bytes_high = 0
    return found


def add_up(rows: Iterable[tuple[int, ...]]) -> ProfileTotals:
    """Return the sum of the counts of all ranks."""
    return totals(ProfileTotals.total(rows).row())
