"""The plan of a profile, made on rank 0, and the items and counters of the job.

In addition to the items of the walk, there are items for names of any kind, ranges of a list, and
claims of hard-linked files.

`ProfileCounters` are the counters of a worker; `ProfileTotals` are the totals of one or all ranks.
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
from pcircle.fs.scan import PathListSlice
from pcircle.jobs.tree_task import EntryCounters, TreePlan, WorkCounts, resolve_root
from pcircle.runtime import Work
from pcircle.walk.items import ANYWHERE, Batch, DirectoryIdentity, Gather, Merge, Seal, Tree
from pcircle.walk.roots import Root


class Mixed(msgspec.Struct, frozen=True, array_like=True, tag="m", gc=False):
    """An item that profiles names of any kind in the directory `path`, without entering any.

    The names are separated by NUL and do not count as contents of the directory.
    """

    root: int
    path: bytes
    names: bytes
    weight: float  # of each name
    place: DirectoryIdentity = ANYWHERE
    slot: int = 0


class Lines(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """An item that profiles a range of a list, which only rank 0 can read."""

    root: int
    only: PathListSlice
    weight: float


class Claims(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """An item that sends claims of hard-linked files to their home; see `Claim`."""

    packed: bytes


Item: TypeAlias = (
    Tree | Batch | Mixed | Lines | Claims | Gather[Tree | Mixed | Lines] | Seal | Merge
)


Sum: TypeAlias = tuple[int, int, int]
"""The entries and the bytes of a part of a directory, and the bytes directly in the directory."""

_HIGH_BITS = 60


def narrow(part: Sum) -> tuple[int, ...]:
    """Encode a sum for a message, in which numbers cannot exceed 64 bits."""
    entries, size, own = part
    if (size | own) >> _HIGH_BITS == 0:
        return part
    low = (1 << _HIGH_BITS) - 1
    return entries, size & low, own & low, size >> _HIGH_BITS, own >> _HIGH_BITS


def wide(part: tuple[int, ...]) -> Sum:
    """Decode a sum that `narrow` has encoded."""
    entries, size, own = part[:3]
    if len(part) > 3:
        size, own = size + (part[3] << _HIGH_BITS), own + (part[4] << _HIGH_BITS)
    return entries, size, own


class ProfileResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of an item: sums by slot and, at the end of the job, the profile of a rank."""

    slots: dict[int, tuple[int, ...]] = {}
    profile: bytes = b""


class FileLines(msgspec.Struct, frozen=True, array_like=True, tag="listed"):
    """A notice with lines of a list of files.

    `unlisted` counts the files that are omitted because their paths contain the terminator.
    """

    kind: str
    lines: bytes
    unlisted: int


def added(a: Sum, b: Sum) -> Sum:
    """Return the sum of two sums."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


class ProfilePlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a profile: the roots and the resolved options.

    `volumes` contains equal numbers for roots on the same file system. `facets` are the sums to
    compute in addition to those by size. `top` is the length of top lists, and `edges` are the
    edges of a histogram with exact counts. `pieces` is the size of the sample to compress. `index`
    is the path prefix of the parts of an index, to which each of the `ranks` appends its number.
    `lists` are the kinds of the requested lists of files, and `list_end` ends each of their lines.
    """

    volumes: tuple[int, ...]
    facets: tuple[str, ...] = ()
    top: int = 1
    edges: tuple[int, ...] = ()
    pieces: int = 0
    index: bytes | None = None
    lists: tuple[str, ...] = ()
    verbose: int = 0
    list_end: bytes = b"\n"
    ranks: int = 1


def index_of(save: str) -> str:
    """Return the name of the index file for the profile file `save`."""
    from pcircle.walk.index import ENDING  # imported late because few runs write an index

    return save + os.fsdecode(ENDING)


def resolve(paths: Sequence[bytes]) -> tuple[tuple[Root, ...], tuple[int, ...]]:
    """Return the roots, and a number for the file system of each root; follow symbolic links.

    Raise UsageError if a root does not exist, or if one root contains another, because entries
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
        # A bind mount gives a directory a second path. Files may occur twice, like hard links.
        other = same.setdefault((status.st_dev, status.st_ino), place)
        if other != place and not root.name:
            raise UsageError(f"'{show(paths[place])}' is '{show(paths[other])}'")
    devices = [status.st_dev for _, status in found]
    return tuple(root for root, _ in found), tuple(map(devices.index, devices))


# ---- counters ------------------------------------------------------------------------------------

_COUNTER_HIGH_BITS = 48


class ProfileTotals(EntryCounters):
    """The counts of one rank or of all ranks, with times in microseconds.

    `unreadable` counts the directories that could not be read, and `recalled` counts the offline
    files of which a piece was read. `bytes_high` counts units of 2**48 bytes; it is sent separately
    because the sizes of sparse files may add up to more than 64 bits. `work_us` is the time of the
    workers, including `readdir_us` for reading directories and `stat_us` for looking up names.
    `protocol_us` is the processor time of the engine.
    """

    unreadable: int
    recalled: int
    atime_not_kept: int
    bytes: int
    bytes_high: int
    readdir_us: int
    stat_us: int
    work_us: int
    protocol_us: int
    elapsed_us: int

    @property
    def troubles(self) -> int:
        """Return the number of entries that could not be looked up or read."""
        return self.failed + self.unreadable

    @property
    def bytes_done(self) -> int:
        """Return the bytes of all entries, to be shown as progress."""
        return self.bytes

    @property
    def idle_us(self) -> int:
        """Return the time that workers spent waiting for work."""
        return max(0, self.elapsed_us - self.work_us)

    @property
    def adding_us(self) -> int:
        """Return the time that workers spent neither reading directories nor looking up names."""
        return max(0, self.work_us - self.readdir_us - self.stat_us)

    @classmethod
    def figures(cls, counts: tuple[int, ...]) -> dict[str, int]:
        total = totals(counts)
        times = ("readdir_us", "stat_us", "adding_us", "protocol_us", "idle_us")
        figures = {"entries": total.settled, "bytes": total.bytes}
        return figures | {name: getattr(total, name) for name in times}

    def known(self, weight: float) -> WorkCounts:
        """Return the known work, disregarding bytes."""
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
    """The running counts of a worker; the main thread only reads them."""

    readdir_s: float
    stat_s: float
    work_s: float
    _began_s: float
    _protocol_s: float | None

    def __init__(self, *, first: bool = True) -> None:
        """Set all counters to 0.

        The counters of the `first` worker of a rank include the processor time of the engine.
        """
        super().__init__()
        self.readdir_s = self.stat_s = self.work_s = 0.0
        self._began_s = time.perf_counter()
        self._protocol_s = time.thread_time() if first else None

    def sums(self) -> ProgressSums:
        """Return the counts for a progress round; called by the main thread."""
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
        """Return the work done so far: the entries completed and the directories read."""
        return Work(self.completed + self.scans_done)


def totals(counts: tuple[int, ...]) -> ProfileTotals:
    """Decode the counts that `ProfileCounters.sums` has encoded."""
    found = ProfileTotals.of(counts)
    found.bytes += found.bytes_high << _COUNTER_HIGH_BITS
    found.bytes_high = 0
    return found


def add_up(rows: Iterable[tuple[int, ...]]) -> ProfileTotals:
    """Add up the counts of all ranks."""
    return totals(ProfileTotals.total(rows).row())
