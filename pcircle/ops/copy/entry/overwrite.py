"""Decision about existing target entries, how files get their names, and precision of times.

Without options an existing entry is replaced at the moment its copy is complete. `-n` leaves
everything, `-u` entries that are not older than their source, `--skip-same` files of equal size and
modification time and links with equal targets. An entry that is left is *skipped*: it is counted
and never modified.

A target may store times with less precision than the source. As in cp, a time that equals the
source's time at the target's precision is the same for `--skip-same`, and not older for `-u`.

Instead of the options an `OverwritePolicy` may decide, for tools that update an existing tree.

The precision of modification times on a target is measured once per file system. A copy on ext3 or
HFS has whole seconds, one on FAT even seconds. On most file systems a whole second is an ordinary
time that differs from a source that is 0.9 s newer. Change times do not show the precision, because
they may be stored differently or set by a tool that creates images. So a temporary file is given a
time and the stored time is read: four calls, made only when a target's time equals a source's time
rounded down. If nothing may be written, the times of the existing file must suffice.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from pcircle.fs.open_flags import CREATE_FILE

SPECIAL_KINDS = frozenset((stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK))
"""File types of FIFOs, sockets and devices."""


class OverwriteOptions(msgspec.Struct, frozen=True, array_like=True):
    """How existing entries are treated and how files are written.

    `stays` is -n, `newer` -u, `same` --skip-same, `force` -f, `in_place` --inplace and `sync`
    --fsync. With `stays`, the options `newer`, `same` and `force` have no effect. With `by_policy`
    an `OverwritePolicy` decides, which may also supply content (`near`). With `whole` no file has
    its name before it is complete.
    """

    stays: bool = False
    newer: bool = False
    same: bool = False
    force: bool = False
    in_place: bool = False
    sync: bool = False
    by_policy: bool = False
    near: bool = False
    whole: bool = False

    @property
    def decides(self) -> bool:
        """True if an existing entry may be left."""
        return self.stays or self.newer or self.same or self.by_policy

    @property
    def beside(self) -> bool:
        """True if new files are also written under a temporary name first.

        A file truncated by an interruption would otherwise never be replaced.
        """
        return (self.stays or self.newer or self.whole) and not self.in_place

    @property
    def plain(self) -> bool:
        """True if a file whose name is free is written directly under its name."""
        return not (self.beside or self.sync or self.near)


class OverwritePolicy(Protocol):
    """Decides about existing entries, one directory at a time, for one thread.

    A policy may update the entries that it keeps; all other entries are replaced.
    """

    def enter(self, root: int, path: bytes) -> None:
        """Start a directory of the target."""

    def keeps(
        self, source: os.stat_result, old: os.stat_result, names: tuple[int, bytes, int, bytes]
    ) -> bool:
        """Return whether `old` is left.

        `names` are the source's and the target's directory and name. OSError.
        """
        ...

    def leaves(self, source: os.stat_result, old: os.stat_result) -> bool:
        """Return whether an option leaves `old`, which need not be a copy of the source."""
        ...

    def may_replace(self, old: os.stat_result) -> bool:
        """Return whether an entry other than a regular file or link may be replaced."""
        ...

    def replace(self, written: bytes, name: bytes, directory_fd: int) -> None:
        """Rename a complete file to its final name, even if the name exists. OSError."""

    def check(self, name: bytes, directory_fd: int, expected: bytes) -> None:
        """Raise OSError if a name is not as `expected`, in a format that only the policy knows."""

    def has_content(self, name: bytes, fd: int, source: os.stat_result) -> bool:
        """Return whether the content of an open source file is available elsewhere."""
        ...

    def gives_content(
        self,
        name: bytes,
        source: tuple[int, os.stat_result],
        out: int,
        copy: Callable[[int, int, os.stat_result], None],
    ) -> bool:
        """Fill an empty copy with content from elsewhere; return whether that was possible."""
        ...

    def close(self) -> None:
        """End the job and close everything."""


class DestinationExistsError(FileExistsError):
    """The name was created by another process during the copy and must not be replaced."""

    def __init__(self) -> None:
        super().__init__(errno.EEXIST, os.strerror(errno.EEXIST))


def file_stays(
    existing: OverwriteOptions,
    source: os.stat_result,
    old: os.stat_result,
    is_kept: Callable[[int, os.stat_result], bool] | None,
) -> bool:
    """Return whether the file or link `old` is left in place of a copy of `source`.

    `is_kept` returns whether a time equals a source's time at the target's precision, see
    `TimestampPrecision`; it is None if copies do not preserve times.
    """
    if existing.stays:
        return True
    if existing.newer:
        if old.st_mtime_ns >= source.st_mtime_ns:
            return True
        if is_kept is not None and is_kept(source.st_mtime_ns, old):
            return True
    return (
        existing.same
        and stat.S_ISREG(source.st_mode)
        and stat.S_ISREG(old.st_mode)
        and source.st_size == old.st_size
        and is_kept is not None
        and is_kept(source.st_mtime_ns, old)
    )


def is_same_special(a: os.stat_result, b: os.stat_result) -> bool:
    """Return whether two files are the same FIFO, socket or device, apart from their names."""
    kind = stat.S_IFMT(a.st_mode)
    return kind in SPECIAL_KINDS and (kind, a.st_rdev) == (stat.S_IFMT(b.st_mode), b.st_rdev)


def is_copied_special(source: os.stat_result, old: os.stat_result) -> bool:
    """Return whether one file looks like a copy of the other.

    All pipes are equal as objects but serve different processes, so attributes are compared.
    """

    def attributes(status: os.stat_result) -> tuple[int, ...]:
        return status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns

    return is_same_special(source, old) and attributes(source) == attributes(old)


_SECOND = 10**9
UNITS_NS = (2 * _SECOND, _SECOND, 10**7, 10**6, 10**3, 100)
"""Timestamp units of file systems without nanoseconds, coarsest first."""

_TRIAL_NS = 1_000_000_001 * _SECOND + 999_999_999


class TimestampPrecision:
    """A thread's measurements; `next_name` returns temporary names, None forbids writing."""

    def __init__(self, next_name: Callable[[], bytes] | None) -> None:
        self._next_name = next_name
        self._known: dict[int, int] = {}  # by device

    def is_kept(self, source_ns: int, old: os.stat_result, directory_fd: int) -> bool:
        """Return whether the time of `old` is `source_ns` at the precision of this directory."""
        if old.st_mtime_ns == source_ns:
            return True
        if not any(source_ns // unit * unit == old.st_mtime_ns for unit in UNITS_NS):
            return False
        unit_ns = self._unit_ns(old, directory_fd)
        return source_ns // unit_ns * unit_ns == old.st_mtime_ns

    def _unit_ns(self, old: os.stat_result, directory_fd: int) -> int:
        if self._next_name is None:
            return infer_unit_ns(old)
        known = self._known.get(old.st_dev)
        if known is None:
            known = self._known[old.st_dev] = measure_unit_ns(
                self._next_name(), old.st_dev, directory_fd
            )
        return known or infer_unit_ns(old)


def measure_unit_ns(name: bytes, device: int, directory_fd: int) -> int:
    """Measure the unit of modification times with a new file.

    Return 0 if the file cannot be created, or is on another device.
    """
    try:
        fd = os.open(name, CREATE_FILE, 0o600, dir_fd=directory_fd)
    except OSError:
        return 0
    try:
        os.utime(fd, ns=(_TRIAL_NS, _TRIAL_NS))
        status = os.fstat(fd)
    except OSError:
        return 0
    finally:
        os.close(fd)
        with suppress(OSError):  # creation succeeded, so removal will
            os.unlink(name, dir_fd=directory_fd)
    if status.st_dev != device:
        return 0
    units = (unit for unit in UNITS_NS if _TRIAL_NS // unit * unit == status.st_mtime_ns)
    return next(units, 1)


class StatusTimes(Protocol):
    """The times of a file under the names of `os.stat`."""

    @property
    def st_atime_ns(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...


def infer_unit_ns(status: StatusTimes) -> int:
    """Return the coarsest unit that divides all times of a file, as cp does."""
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return next((unit for unit in UNITS_NS if not any(time % unit for time in times)), 1)
