"""The plan of a profile, which rank 0 decides for all ranks, its items, and its counters.

In addition to the items of the walk, a profile has items for names of any kind, for ranges of a
list, and for claims to hard-linked files.

`ProfileCounters` are the counters of a worker, and `ProfileTotals` of a rank or of all ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from pcircle.circle import ProgressSums
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.path_list_slice import PathListSlice
from pcircle.jobs.tree_task import EntryCounters, TreePlan, WorkCounts, resolve_root
from pcircle.runtime import Work
from pcircle.walk.items import Batch, Gather, Merge, Seal, Tree
from pcircle.walk.roots import Root


class Mixed(msgspec.Struct, frozen=True, array_like=True, tag="m", gc=False):
    """Profile names of any kind in the directory `path`, without entering directories.

    Names are separated by NUL. They do not count for the directory.
    """

    root: int
    path: bytes
    names: bytes
    weight: float  # of each name
    place: None = None
    slot: int = 0


class Lines(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Profile the entries of a list. Rank 0 has the list, and `only` is a range of it."""

    root: int
    only: PathListSlice
    weight: float


class Claims(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Names of hard-linked files, for the rank that registers these files; see `Claim`."""

    packed: bytes


Item: TypeAlias = (
    Tree | Batch | Mixed | Lines | Claims | Gather[Tree | Mixed | Lines] | Seal | Merge
)


Sum: TypeAlias = tuple[int, int, int]
"""Entries and bytes of a part of a directory, and the bytes directly in it."""

_HIGH_BITS = 60


def narrow(part: Sum) -> tuple[int, ...]:
    """Encode a sum for a message: a number that may exceed 64 bits becomes two numbers."""
    entries, size, own = part
    if (size | own) >> _HIGH_BITS == 0:
        return part
    low = (1 << _HIGH_BITS) - 1
    return entries, size & low, own & low, size >> _HIGH_BITS, own >> _HIGH_BITS


def wide(part: tuple[int, ...]) -> Sum:
    """Decode a sum of `narrow`."""
    entries, size, own = part[:3]
    if len(part) > 3:
        size, own = size + (part[3] << _HIGH_BITS), own + (part[4] << _HIGH_BITS)
    return entries, size, own


class ProfileResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of an item: sums by slot and, at the end of the job, a rank's packed profile."""

    slots: dict[int, tuple[int, ...]] = {}
    profile: bytes = b""


class FileLines(msgspec.Struct, frozen=True, array_like=True, tag="listed"):
    """Lines of a list of files. `unlisted` counts paths that contain the terminator."""

    kind: str
    lines: bytes
    unlisted: int


def added(a: Sum, b: Sum) -> Sum:
    """Return the sum of two sums."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


class ProfilePlan(TreePlan, frozen=True, kw_only=True):
    """The roots and the resolved options.

    `volumes` has the same number for roots on the same file system. `facets` are the sums in
    addition to sizes, `top` is the length of top lists, and `edges` are the edges of an exact
    histogram. `pieces` is the size of the sample to compress. `index` is the path prefix of the
    parts of an index; each of the `ranks` appends its number. `lists` are the requested lists of
    files, with their terminator.
    """

    volumes: tuple[int, ...]
    facets: tuple[str, ...] = ()
    top: int = 1
    edges: tuple[int, ...] = ()
    pieces: int = 0
    index: bytes | None = None
    lists: tuple[str, ...] = ()
    list_end: bytes = b"\n"
    ranks: int = 1


def index_of(save: str) -> str:
    """Return the name of the index file that belongs to a profile."""
    from pcircle.walk.index import ENDING  # imported late, as few runs write an index

    return save + os.fsdecode(ENDING)


def resolve(paths: Sequence[bytes]) -> tuple[tuple[Root, ...], tuple[int, ...]]:
    """Return the roots, and the numbers of their file systems. Symbolic links are followed.

    Raise UsageError if a root does not exist, or if a root contains another root, whose entries
    would count twice.
    """
    found = [resolve_root(path, "profile") for path in paths]
    real = [os.path.realpath(path) for path in paths]
    places: dict[bytes, int] = {}
    for place, path in enumerate(real):
        if places.setdefault(path, place) != place:
            raise UsageError(f"'{show(paths[place])}' is in '{show(paths[places[path]])}'")
    for place, path in enumerate(real):
        outer = path
        while outer != b"/":
            outer = os.path.dirname(outer)
            if outer in places:
                raise UsageError(f"'{show(paths[place])}' is in '{show(paths[places[outer]])}'")
    same: dict[tuple[int, int], int] = {}
    for place, (root, status) in enumerate(found):
        # Bind mounts give a directory a second path. Files may repeat, as hard links count once.
        other = same.setdefault((status.st_dev, status.st_ino), place)
        if other != place and not root.name:
            raise UsageError(f"'{show(paths[place])}' is '{show(paths[other])}'")
    devices = [status.st_dev for _, status in found]
    return tuple(root for root, _ in found), tuple(map(devices.index, devices))


# ---- counters ------------------------------------------------------------------------------------

_COUNTER_HIGH_BITS = 48


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
        now.bytes, now.bytes_high = (
            self.bytes & (1 << _COUNTER_HIGH_BITS) - 1,
            self.bytes >> _COUNTER_HIGH_BITS,
        )
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
    """Return the counts of `ProfileCounters.sums` by name."""
    found = ProfileTotals.of(counts)
    found.bytes += found.bytes_high << _COUNTER_HIGH_BITS
    found.bytes_high = 0
    return found


def add_up(rows: Iterable[tuple[int, ...]]) -> ProfileTotals:
    """Return the sum of the counts of all ranks."""
    return totals(ProfileTotals.total(rows).row())
