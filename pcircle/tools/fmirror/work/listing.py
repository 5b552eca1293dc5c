"""Lists source directories that may be changing, and collects evidence that removals are safe.

If an entry is renamed within the source during a walk, the walk may miss it in both directories.
Therefore, a directory that changes while it is being listed is listed again. Its change time at the
last listing is recorded unless that time is certainly older than the run. An entry that has left
its directory since the run began is removed from the target only if no source directory has changed
since its listing. In that case, the walk cannot have missed a move. `pcircle.tools.fmirror.recheck`
checks this condition.

Two directories may be the same, for example if a union file system shows one inside the other.
Neither device nor inode numbers reveal this, and look-ups may be cached. Therefore, a file with a
random name is created on each side and looked up on the other.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain

import msgspec

from pcircle.core.units import NS_PER_S
from pcircle.fs.attributes.btrfs import is_empty_subvolume
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.directories import Lease
from pcircle.fs.entry_errors import SAME_FILE, EntryError, error_context
from pcircle.fs.open_flags import CREATE_FILE
from pcircle.fs.scan import Block, blocks, rewound

_TRIES, _PAUSE_S = 200, 0.005


@contextmanager
def _alone(directory_fd: int) -> Iterator[None]:
    """Lock a directory so that no other rank or thread of this run tests it at the same time.

    A concurrent test would save temporary times of the directory, and restore these at its end.
    Continue without a lock if locks are not supported or another program holds the lock.
    """
    locked = False
    for _ in range(_TRIES):
        try:
            fcntl.flock(directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
            break
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            break
    try:
        yield
    finally:
        if locked:
            fcntl.flock(directory_fd, fcntl.LOCK_UN)


class DirectoryProbe:
    """Tests whether two directories are the same.

    Each thread has its own instance. The names of the test files begin with `prefix`.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._last: tuple[tuple[int, int], ...] = ()

    def prove(self, fds: tuple[int, int]) -> None:
        """Prove that two open directories are different, and remember the last such pair.

        Raise EntryError if they are the same, and OSError if that is unknown.
        """
        pair = tuple((status.st_dev, status.st_ino) for status in map(os.fstat, fds))
        if pair == self._last:
            return
        with error_context("compare the directories of"), _alone(fds[0]):
            times = [(status.st_atime_ns, status.st_mtime_ns) for status in map(os.fstat, fds)]
            try:
                are_one = self._appears_in(*fds) or self._appears_in(*fds[::-1])
            finally:
                for fd, ns in zip(fds, times, strict=True):
                    with suppress(OSError):  # only the owner of a directory may set its times
                        os.utime(fd, ns=ns)
        if are_one:
            raise EntryError(SAME_FILE, "its directories in A and B are the same")
        self._last = pair

    def _appears_in(self, here: int, there: int) -> bool:
        """Return whether a file created in one directory appears in the other.

        Raise OSError if the file cannot be created.
        """
        name = self._prefix + b"probe-" + os.urandom(16).hex().encode()
        os.close(os.open(name, CREATE_FILE, 0o600, dir_fd=here))
        try:
            os.stat(name, dir_fd=there, follow_symlinks=False)
            return True
        except FileNotFoundError:
            return False
        finally:
            os.unlink(name, dir_fd=here)


_LISTINGS = 3
_MAX_NAMES = 1 << 16
_MAX_TIMES = 1 << 17
_TIMES_TOGETHER = 1000
_TICK_S = 0.02  # more than one tick of the clock for change times (100 to 1,000 ticks per second)
_CLOCK_REALTIME_COARSE = 5  # from linux/time.h, because Python does not define it
_OWN_CLOCK = frozenset(
    (None, b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"tmpfs", b"f2fs", b"zfs", b"overlay")
)
"""Types of file systems that use this machine's clock. None stands for btrfs subvolumes."""
_OTHER_CLOCK_NS = 2 * NS_PER_S
UNSTEADY_NS = -1
"""Recorded instead of the change time of a directory whose listing may be incomplete."""


def clock_ns() -> int:
    """Return the change time that the kernel would record for a change made now.

    It lags a few milliseconds behind `time.time_ns`.
    """
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


class ListingTimes(msgspec.Struct, frozen=True, array_like=True, tag="y"):
    """NUL-terminated paths of directories, and their change times when they were listed."""

    paths: bytes
    times_ns: tuple[int, ...]

    def pairs(self) -> Iterator[tuple[bytes, int]]:
        """Return the pairs of path and change time."""
        return zip(self.paths.split(b"\0")[:-1], self.times_ns, strict=True)


class ChangeTimes:
    """Compares change times of directories with the start time of the run, `began_ns`."""

    def __init__(self, began_ns: int | None) -> None:
        """Initialise the comparison; if `began_ns` is None, no directory counts as recent."""
        self._began_ns = began_ns
        self._errors_ns: dict[int, int] = {}  # by device

    def is_recent(self, fd: int, status: os.stat_result) -> bool:
        """Return whether an open directory may have changed since the run began."""
        if self._began_ns is None:
            return False
        if _latest_ns(status) < self._began_ns - self._error_ns(status.st_dev):
            return False
        return not is_empty_subvolume(fd, status)

    def wait(self, status: os.stat_result) -> bool:
        """Wait until the next change to a directory would be recorded with a later time.

        Return False if the next change may still get the same time as the last one.
        """
        changed_ns, error_ns = _latest_ns(status), self._error_ns(status.st_dev)
        if changed_ns + error_ns < clock_ns():
            return True
        time.sleep(_TICK_S)
        if error_ns:  # an unknown clock should tick as often, unless it counts whole seconds
            return changed_ns == status.st_ctime_ns
        return changed_ns < clock_ns()

    def _error_ns(self, device: int) -> int:
        """Return the assumed maximum error of a file system's clock, relative to this machine's."""
        if device not in self._errors_ns:
            kind = type_of_device(device)
            self._errors_ns[device] = 0 if kind in _OWN_CLOCK else _OTHER_CLOCK_NS
        return self._errors_ns[device]


def _latest_ns(status: os.stat_result) -> int:
    """Return the latest possible time of the last change; some file systems store whole seconds."""
    changed_ns = status.st_ctime_ns
    return changed_ns if changed_ns % NS_PER_S else changed_ns + NS_PER_S - 1


class Lister:
    """Lists directories of the source.

    Each thread has its own instance.
    """

    def __init__(self, began_ns: int | None) -> None:
        self._change_times = ChangeTimes(began_ns)
        self._paths: list[bytes] = []
        self._times_ns: list[int] = []

    def is_recent(self, fd: int, status: os.stat_result) -> bool:
        """Return whether a directory may have changed between the start of the run and its opening.

        If so, it must be listed by `blocks`, which detects changes.
        """
        return self._change_times.is_recent(fd, status)

    def blocks(self, path: bytes, source: Lease) -> Iterator[Block]:
        """Yield the entries of a directory, and list it again if it changes meanwhile.

        It is listed at most three times, and not again if it has more than `_MAX_NAMES` names.
        Names that have already been yielded are omitted. Raise OSError if the directory cannot be
        read.
        """
        fd, before = source.fd, source.opened.status
        seen: list[str] = []  # one string per block takes a third of the memory of separate names
        count = 0
        is_last = False
        for left in reversed(range(_LISTINGS)):
            is_recent = self._change_times.is_recent(fd, before)
            is_known = not is_recent or self._change_times.wait(before)
            old = {name for names in seen for name in names.split("\0")}
            for block in blocks(fd):
                if old:
                    _leave_out(block, old)
                count += len(block)
                if block.last:
                    after = os.fstat(fd)
                    is_steady = after.st_ctime_ns == before.st_ctime_ns
                    block.last = is_last = is_steady or not left or count > _MAX_NAMES
                    if is_last and not is_steady:
                        self._record(path, UNSTEADY_NS)
                    elif is_last and is_recent:
                        self._record(path, before.st_ctime_ns if is_known else UNSTEADY_NS)
                    before = after
                    if not is_last and not seen:
                        count = 0
                        break
                if count <= _MAX_NAMES:  # a larger directory is not listed again
                    kinds = block.files, block.directories, block.links, block.specials
                    seen.append("\0".join(chain(*kinds)))
                yield block
            if is_last:
                return
            rewound(fd)

    def _record(self, path: bytes, time_ns: int) -> None:
        self._paths.append(path)
        self._times_ns.append(time_ns)

    def taken(self) -> Iterator[ListingTimes]:
        """Yield the times recorded since the last call."""
        paths, times_ns = self._paths, self._times_ns
        if not paths:
            return
        self._paths, self._times_ns = [], []
        for at in range(0, len(paths), _TIMES_TOGETHER):
            batch = slice(at, at + _TIMES_TOGETHER)
            yield packed_times(paths[batch], times_ns[batch])


def packed_times(paths: list[bytes], times_ns: list[int]) -> ListingTimes:
    """Return a notice of the change times of directories."""
    return ListingTimes(b"".join(path + b"\0" for path in paths), tuple(times_ns))


def _leave_out(block: Block, names: set[str]) -> None:
    for kind in ("files", "directories", "links", "specials"):
        setattr(block, kind, [name for name in getattr(block, kind) if name not in names])


class KnownTimes:
    """The change times of all recent directories at their listings, as collected on rank 0."""

    def __init__(self) -> None:
        self._times_ns: dict[bytes, int] = {}
        self.is_complete: bool = True  # no time is missing, and every listing was complete

    def add(self, notice: ListingTimes) -> None:
        """Add the times of directories."""
        for path, time_ns in notice.pairs() if self.is_complete else ():
            # If a rank was lost, another rank may have listed the same directory again.
            time_ns = self._times_ns[path] = min(time_ns, self._times_ns.get(path, time_ns))
            if time_ns == UNSTEADY_NS or len(self._times_ns) > _MAX_TIMES:
                self.is_complete = False
                self._times_ns.clear()

    def agree(self, notice: ListingTimes) -> bool:
        """Return whether the change times of directories are the same as at their listings."""
        return self.is_complete and all(
            self._times_ns.get(path, UNSTEADY_NS) == time_ns != UNSTEADY_NS
            for path, time_ns in notice.pairs()
        )
