"""Observers of copied content, the context of a thread's copies, and rate limits.

Hashing, signing and rate limits use the same mechanism. For each file or range, observers are
notified of its start, of its bytes in order (without holes), and of its end. For a small file, they
receive all bytes in one call. If an observer needs the bytes, this process reads them; the kernel
neither clones nor moves them.

All copies of one thread share a `CopyContext`, which also counts the existing entries that stay.

`RateLimits` limits bytes and operations per second, to leave capacity of a shared file system to
other users. The limits apply to all ranks together. Each rank owns a fixed, equal share, so no
coordination is needed, and apart from short bursts the sum stays within the limit. The disadvantage
is that the share of an idle rank is not used. This matters only at the end of a job, because work
is divided finely and stolen quickly, and for a single file that is not copied in chunks. Only
worker threads wait, never the main thread, so the communication between ranks continues.

A byte counts once, when it is copied. Operations are requests to a metadata server: look-ups,
creations, removals, renames and attribute changes, but not reads, writes and closes. They are
estimated per kind of entry instead of counted individually. Limits are implemented as observers,
which are created only if they are requested.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pcircle.fs.data import ReadEffects
from pcircle.fs.directories import closing_fd
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.counts import HARD_LINKS, CopyCounts
from pcircle.ops.copy.entry.settings import CopySettings
from pcircle.ops.copy.entry.target import TargetWriter, TemporaryNames

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer
    from pcircle.threads.throttle import Rests


SLICE_BYTES = 16 << 20
"""The maximum size of the slices in which a large file is copied."""

Data: TypeAlias = "bytes | memoryview"


class CopyObserver:
    """The base class of observers; its methods do nothing.

    `reads` means that the observer needs the bytes, `by_blocks` that a piece must not cross the end
    of a signature block; `slice_bytes` is the maximum size of a slice.
    """

    reads = False
    by_blocks = False
    slice_bytes = SLICE_BYTES

    def attempt(self, more: int) -> None:
        """Prepare to copy an entry that requires `more` additional operations."""

    def due(self, count: int) -> None:
        """Account for `count` bytes that will be moved or were just moved."""

    def small(self, data: Data) -> None:
        """Process the complete content of a small file."""

    def begin_at(self, offset: int) -> None:
        """Start a file, or a range of one, at `offset`."""

    def see(self, offset: int, data: Data) -> None:
        """Process the next piece; a gap between pieces is a hole."""

    def end_file(self, size: int) -> None:
        """Finish a file of this size."""

    def end_range(self, begin: int, end: int, *, stopped: bool) -> None:
        """Finish a range; it is incomplete if `stopped` is true."""

    def copied(self, name: bytes, size: int) -> None:
        """Record the source name and size of the last file; its copy is now in place."""

    def settled(self, name: bytes) -> None:
        """Record that a name in a directory was copied or skipped."""

    def link(self, name: bytes, text: bytes) -> None:
        """Record a symbolic link that was copied under this name."""

    def stays(self, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
        """Process an existing entry that stays.

        Raises OSError if the entry must be read and cannot be, or if `stop` returns true.
        """


class SigningObserver(CopyObserver):
    """Passes content to a rank's signer."""

    reads = True
    by_blocks = True

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def small(self, data: Data) -> None:
        self._signer.seal_small_file(data)

    def begin_at(self, offset: int) -> None:
        self._signer.begin(offset)

    def see(self, offset: int, data: Data) -> None:
        self._signer.tap(offset, data)

    def end_file(self, size: int) -> None:
        self._signer.end_file(size)

    def end_range(self, begin: int, end: int, *, stopped: bool) -> None:
        if not stopped:
            self._signer.end_chunk(begin, end)

    def settled(self, name: bytes) -> None:
        self._signer.add_entry(name)

    def link(self, name: bytes, text: bytes) -> None:
        self._signer.seal_link(text)

    def stays(self, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
        signer = self._signer
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            signer.seal_link(os.readlink(name, dir_fd=directory_fd))
        elif not stat.S_ISREG(status.st_mode):
            signer.seal_node(status.st_mode, status.st_rdev)
        else:
            with closing_fd(os.open(name, OPEN_FILE, dir_fd=directory_fd)) as fd:
                signer.read_file(fd, stop)


class ObserverSet:
    """Combines the observers of a thread; a hook calls only the observers that override it."""

    def __init__(self, observers: Sequence[CopyObserver] = ()) -> None:
        self.any: bool = bool(observers)
        self.reads: bool = any(observer.reads for observer in observers)
        self.by_blocks: bool = any(observer.by_blocks for observer in observers)
        self.slice_bytes: int = min(
            [SLICE_BYTES, *(observer.slice_bytes for observer in observers)]
        )
        self.is_paced: bool = bool(_overrides(observers, "due"))
        # True if an observer may wait before or after each file.
        self.is_limited: bool = self.is_paced or bool(_overrides(observers, "attempt"))
        for name in _HOOKS:
            setattr(self, name, _combine(_overrides(observers, name)))

    attempt: Callable[[int], None]
    due: Callable[[int], None]
    small: Callable[[Data], None]
    begin_at: Callable[[int], None]
    see: Callable[[int, Data], None]
    end_file: Callable[[int], None]
    end_range: Callable[..., None]
    copied: Callable[[bytes, int], None]
    settled: Callable[[bytes], None]
    link: Callable[[bytes, bytes], None]
    stays: Callable[[int, bytes, Callable[[], bool]], None]


_HOOKS = tuple(name for name in vars(CopyObserver) if callable(vars(CopyObserver)[name]))


def _overrides(observers: Sequence[CopyObserver], name: str) -> list[Callable[..., None]]:
    """Return the methods with this name that observers override."""
    nothing = getattr(CopyObserver, name)
    return [
        getattr(observer, name)
        for observer in observers
        if getattr(type(observer), name) is not nothing
    ]


def _combine(functions: Sequence[Callable[..., None]]) -> Callable[..., None]:
    if len(functions) == 1:
        return functions[0]

    def call(*arguments: object, **keywords: object) -> None:
        for function in functions:
            function(*arguments, **keywords)

    return call


class SourceModifiedError(Changed):
    """Only the change time of the source has changed.

    A process may have written to it and reset its modification time, or only changed its mode or
    added a name. Therefore the file is copied again.
    """

    def __init__(self) -> None:
        super().__init__("it changed while it was copied")


class CopyContext:
    """The settings, counters and observers that all copies of a thread share.

    `is_stopping` is the current item's function that returns whether the job is stopping.
    """

    def __init__(
        self,
        settings: CopySettings,
        counts: CopyCounts,
        extras: AttributeCopier,
        observer_list: Sequence[CopyObserver],
    ) -> None:
        self.settings = settings
        self.counts = counts
        self.extras = extras
        self.names: TemporaryNames = extras.names
        self.target: TargetWriter = TargetWriter(settings, extras.names)
        self.observers: ObserverSet = ObserverSet(observer_list)
        self.effects: ReadEffects = ReadEffects(
            counts, follow=settings.follow, noatime=settings.noatime
        )
        self.is_stopping: Callable[[], bool] = bool

    def is_one_of_several(self, status: os.stat_result, source_fd: int) -> bool:
        """Return whether a name is one of several that must share one inode in the copy.

        If links are followed, a file may have more names than its link count. The device of a file
        may differ from that of its directory: on overlayfs, through a followed link, or if the file
        is a mount point. Nodes may number such a device differently, so in a job on several nodes
        the file is copied separately and counted as a lost link.
        """
        settings = self.settings
        followed = settings.follow and stat.S_ISREG(status.st_mode)
        if not settings.keep.links or not (status.st_nlink > 1 or followed):
            return False
        if settings.one_node or status.st_dev == os.fstat(source_fd).st_dev:
            return True
        self.counts.lose({HARD_LINKS})
        return False

    def skip(self, target_fd: int, name: bytes) -> None:
        """Count an existing entry that stays. Raises OSError if it must be read and cannot be."""
        with error_context("read the existing copy of"):
            self.observers.stays(target_fd, name, self.is_stopping)
        self.counts.skipped += 1
        self.counts.sized += 1

    def skip_existing(self, source_fd: int, source: bytes, target_fd: int, name: bytes) -> bool:
        """Return whether an existing entry stays; if so, count it."""
        with error_context("create the copy of"):
            names = source_fd, source, target_fd, name
            if self.target.stays(*names) is None:
                return False
        self.skip(target_fd, name)
        return True


def refuse_change(before: os.stat_result, now: os.stat_result) -> None:
    """Raise Changed if the source has changed, or SourceModifiedError if it may have changed."""
    same = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
    if same != (before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns):
        raise Changed("it changed while it was copied")
    if now.st_ctime_ns != before.st_ctime_ns:
        raise SourceModifiedError


# ---- rate limits ---------------------------------------------------------------------------------

_MIN_SLICE_BYTES = 64 << 10
_MAX_SLICE_BYTES = 4 << 20
_ATTRIBUTE_CALLS = ("mode", "ownership", "timestamps", "xattr", "acl", "flags")


class RateLimits(CopyObserver):
    """One of `size` equal shares of a copy's limits; None means no limit.

    `is_stopping` is the current item's function that returns whether the job is stopping.
    """

    def __init__(
        self,
        settings: CopySettings,
        bytes_per_s: float | None,
        operations_per_s: float | None,
        size: int,
        polite: float | None = None,
    ) -> None:
        self.is_stopping: Callable[[], bool] = bool
        self._rests: Rests | None = None
        if polite is not None:
            from pcircle.threads.throttle import Rests  # few runs are polite

            self._rests = Rests(polite)
        self._bytes = self._operations = None
        self.slice_bytes: int = _MAX_SLICE_BYTES
        if bytes_per_s is not None or operations_per_s is not None:
            from pcircle.threads.throttle import BURST_S, Throttle  # few runs have limits
        if bytes_per_s is not None:
            rate = bytes_per_s / size
            self._bytes = Throttle(rate, BURST_S)
            self.slice_bytes = int(max(_MIN_SLICE_BYTES, min(_MAX_SLICE_BYTES, rate * BURST_S)))
        if operations_per_s is not None:
            self._operations = Throttle(operations_per_s / size, BURST_S)
        keep = settings.keep
        # Operations to look up a source, create its copy, and set each kind of attribute.
        self.entry: int = (
            2 + sum(getattr(keep, name) for name in _ATTRIBUTE_CALLS) + settings.striping.gives
        )

    def start(self, stop: Callable[[], bool]) -> None:
        """Start an item."""
        self.is_stopping = stop
        if self._rests is not None:
            self._rests.start()

    def rest(self) -> None:
        """Rest after working, if the copy is polite."""
        if self._rests is not None:
            self._rests.rest(self.is_stopping)

    def operations(self, count: int) -> None:
        """Wait until `count` operations are allowed."""
        self.rest()
        if self._operations is not None:
            self._operations.take(count, self.is_stopping)

    def attempt(self, more: int) -> None:
        self.operations(self.entry + more)

    def due(self, count: int) -> None:
        self.rest()
        if self._bytes is not None and count > 0:
            self._bytes.take(count, self.is_stopping)
