"""Decides how existing target entries are treated, and measures the precision of timestamps.

By default, an existing file or link is replaced as soon as the new copy is complete. `-n` leaves
all existing entries in place, and `-u` those that are not older than their source. `--skip-same`
does so for files with the same size and modification time and for links with the same text. An
entry that is left in place is *skipped*: it is counted but not modified.

A target may store times with less precision than the source. If the target's time equals the
source's time rounded down to the target's precision, it counts as the same for `--skip-same` and as
not older for `-u`, as in cp.

Tools that update an existing tree supply an `OverwritePolicy`, which decides instead of the
options.

Each thread measures the precision of modification times at most once per target file system. Copies
on ext3 or HFS have times in whole seconds, and on FAT in even seconds. On most other file systems a
whole second is an ordinary time, which differs from that of a source that is 0.9 s newer. Change
times do not reveal the precision, because they may be stored differently or set by a tool that
creates images. Therefore the modification time of a temporary file is set and read back. This takes
five calls, which are made only if a target's time equals a source's time rounded down. If the
temporary file may not or cannot be created, the precision is inferred from the times of the
existing file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from pcircle.fs.open_flags import CREATE_FILE

if TYPE_CHECKING:
    from pcircle.fs.stats import StatusRow

SPECIAL_KINDS = frozenset((stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK))
"""The file types of FIFOs, sockets and devices."""


class OverwriteOptions(msgspec.Struct, frozen=True, array_like=True):
    """The options for treating existing entries and for writing files.

    `stays` is -n, `newer` -u, `same` --skip-same, `force` -f, `in_place` --inplace and `sync`
    --fsync. If `stays` is set, `newer`, `same` and `force` have no effect. `by_policy` means that
    an `OverwritePolicy` decides, and `near` that the policy may also supply content. If `whole` is
    set and `in_place` is not, a file gets its final name only when it is complete.
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
        """True if an existing entry may be left in place."""
        return self.stays or self.newer or self.same or self.by_policy

    @property
    def beside(self) -> bool:
        """True if new files, like existing ones, are first written under a temporary name.

        Otherwise a file that is truncated by an interruption might never be replaced.
        """
        return (self.stays or self.newer or self.whole) and not self.in_place

    @property
    def plain(self) -> bool:
        """True if a file is written directly under its final name when that name is not taken."""
        return not (self.beside or self.sync or self.near)


class OverwritePolicy(Protocol):
    """Decides how existing entries are treated, one directory at a time, for one thread.

    A policy may update the entries that it keeps. Other files and links are replaced, and entries
    of other types are replaced if `may_replace` allows it.
    """

    def enter(self, root: int, path: bytes) -> None:
        """Set the target directory of the following entries."""

    def keeps(
        self, source: os.stat_result, old: os.stat_result, names: tuple[int, bytes, int, bytes]
    ) -> bool:
        """Return whether `old` is left in place.

        `names` are the directory and name of the source, then those of the target. Raises OSError.
        """
        ...

    def leaves(self, source: os.stat_result, old: os.stat_result) -> bool:
        """Return whether an option leaves `old` in place, even if it is not a copy."""
        ...

    def may_replace(self, old: os.stat_result) -> bool:
        """Return whether an entry that is neither a regular file nor a link may be replaced."""
        ...

    def replace(self, written: bytes, name: bytes, directory_fd: int) -> None:
        """Rename a complete file to its final name, even if the name exists. Raises OSError."""

    def check(self, name: bytes, directory_fd: int, expected: bytes) -> None:
        """Raise OSError if a name is not in the state `expected`; the policy defines the format."""

    def has_content(self, name: bytes, fd: int, source: os.stat_result) -> bool:
        """Return whether the policy can supply the content of an already open source file."""
        ...

    def gives_content(
        self,
        name: bytes,
        source: tuple[int, os.stat_result],
        out: int,
        copy: Callable[[int, int, os.stat_result], None],
    ) -> bool:
        """Fill an empty copy with content from another file; return whether that was possible."""
        ...

    def close(self) -> None:
        """Release all resources at the end of the job."""


class DestinationExistsError(FileExistsError):
    """The entry exists and must stay, perhaps because another process just created it."""

    def __init__(self) -> None:
        super().__init__(errno.EEXIST, os.strerror(errno.EEXIST))


def file_stays(
    existing: OverwriteOptions,
    source: os.stat_result,
    old: os.stat_result,
    is_kept: Callable[[int, os.stat_result], bool] | None,
) -> bool:
    """Return whether the file or link `old` stays instead of being replaced by a copy of `source`.

    `is_kept` returns whether a time equals a source's time at the precision of the target (see
    `TimestampPrecision`); it is None if copies do not preserve times.
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
    """Return whether two special files have the same type and device number."""
    kind = stat.S_IFMT(a.st_mode)
    return kind in SPECIAL_KINDS and (kind, a.st_rdev) == (stat.S_IFMT(b.st_mode), b.st_rdev)


def is_copied_special(source: os.stat_result, old: os.stat_result) -> bool:
    """Return whether a special file looks like a copy of another one.

    All FIFOs have the same device number but serve different processes, so attributes are compared.
    """

    def attributes(status: os.stat_result) -> tuple[int, ...]:
        return status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns

    return is_same_special(source, old) and attributes(source) == attributes(old)


_SECOND = 10**9
UNITS_NS = (2 * _SECOND, _SECOND, 10**7, 10**6, 10**3, 100)
"""The timestamp units of file systems without nanoseconds, coarsest first."""

_TRIAL_NS = 1_000_000_001 * _SECOND + 999_999_999


class TimestampPrecision:
    """Measures the precision of timestamps for one thread.

    `next_name` generates names for temporary files; if it is None, nothing may be written.
    """

    def __init__(self, next_name: Callable[[], bytes] | None) -> None:
        self._next_name = next_name
        self._known: dict[int, int] = {}  # by device

    def is_kept(self, source_ns: int, old: os.stat_result, directory_fd: int) -> bool:
        """Return whether `old` has the time `source_ns`, at the precision of its file system."""
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

    Return 0 if that is impossible, or the file is on another device.
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
        with suppress(OSError):  # creation succeeded, so removal should too
            os.unlink(name, dir_fd=directory_fd)
    if status.st_dev != device:
        return 0
    units = (unit for unit in UNITS_NS if _TRIAL_NS // unit * unit == status.st_mtime_ns)
    return next(units, 1)


def infer_unit_ns(status: os.stat_result | StatusRow) -> int:
    """Return the coarsest time unit that divides all timestamps of a file; cp does the same."""
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return next((unit for unit in UNITS_NS if not any(time % unit for time in times)), 1)
