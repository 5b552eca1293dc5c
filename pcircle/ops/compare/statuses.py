"""Compares the statuses of two sides, and stores in errors the side that failed.

Statuses are compared as single pairs or as two blocks of look-ups. Most pairs are equal, so blocks
are compared column by column in C, and pair by pair only if a column differs. Therefore 500,000
equal pairs take only a tenth of a second.

Times are equal if they differ by at most a given window. If no window is given, two times are equal
if the side with the coarser timestamps would store both in the same way. The granularity of a file
system is inferred from its timestamps.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, TypeAlias, TypeVar

from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.attributes.owners import group_name, user_name
from pcircle.fs.directories import closing_fd
from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.stats import StatusRow, Table
from pcircle.ops.compare.fields import (
    ATIME,
    CTIME,
    GROUP,
    KIND,
    MODE,
    MTIME,
    OWNER,
    RDEV,
    SIZE,
)
from pcircle.ops.copy.entry.overwrite import UNITS_NS, infer_unit_ns

Status = os.stat_result | StatusRow

_COLUMNS: Final = {
    KIND: ("mode",),
    SIZE: ("size",),
    MTIME: ("mtime", "mtime_ns"),
    ATIME: ("atime", "atime_ns"),
    CTIME: ("ctime", "ctime_ns"),
    MODE: ("mode",),
    OWNER: ("uid",),
    GROUP: ("gid",),
}
_COARSEST_NS: Final = UNITS_NS[0]
_EVEN_SECONDS = frozenset({b"vfat", b"msdos"})  # modification times only, as change times are finer


class UserNames:
    """Cached names of users and groups on this node; an ID without a name is used as the name."""

    def __init__(self) -> None:
        self.user: Callable[[int], str] = cache(user_name)
        self.group: Callable[[int], str] = cache(group_name)


class StatusComparer:
    """Compares the fields in `OF_STATUS` of two entries; not thread-safe.

    Times at most `window_ns` apart are equal; if it is None, the granularity of both sides is used.
    If `users` is given, owners and groups are equal if their names on this node are the same.
    """

    def __init__(
        self, fields: int, window_ns: int | None = None, users: UserNames | None = None
    ) -> None:
        self._fields = fields
        self._window_ns = window_ns
        self._columns = tuple(
            dict.fromkeys(
                name for bit, columns in _COLUMNS.items() if fields & bit for name in columns
            )
        )
        self._users = users
        self._units_ns: dict[int, int] = {}  # granularity of timestamps by device
        self._even_seconds: set[int] = set()  # devices with timestamps in even seconds

    def differences(self, a: Status, b: Status) -> int:
        """Return the fields in which two statuses differ."""
        fields, mode, other = self._fields, a.st_mode, b.st_mode
        kind = mode & 0o170000
        if kind != other & 0o170000:
            return fields & KIND
        found = 0
        if mode != other and kind != stat.S_IFLNK:
            found = MODE
        if kind == stat.S_IFREG:
            if a.st_size != b.st_size:
                found |= SIZE
        elif kind in (stat.S_IFCHR, stat.S_IFBLK) and a.st_rdev != b.st_rdev:
            found |= RDEV
        users = self._users
        user, other_user, group, other_group = a.st_uid, b.st_uid, a.st_gid, b.st_gid
        if user != other_user and (users is None or users.user(user) != users.user(other_user)):
            found |= OWNER
        if group != other_group and (
            users is None or users.group(group) != users.group(other_group)
        ):
            found |= GROUP
        times = (
            (MTIME, a.st_mtime_ns, b.st_mtime_ns),
            (ATIME, a.st_atime_ns, b.st_atime_ns),
            (CTIME, a.st_ctime_ns, b.st_ctime_ns),
        )
        for bit, time_ns, other_ns in times:
            if time_ns != other_ns and fields & bit and not self._is_time(time_ns, other_ns, a, b):
                found |= bit
        return found & fields

    def compare_blocks(self, a: Table, b: Table, count: int) -> dict[int, int]:
        """Compare the first `count` pairs of two blocks, and return the differences by index.

        Equal pairs are omitted. Both blocks must contain the same names in the same order.
        """
        if not count or (
            all(a.agrees(b, name, count) for name in self._columns)
            and (not self._fields & RDEV or _are_same_devices(a, b, count))
        ):
            return {}
        return self._compare_rows(a, b, count)

    def compare_directories(self, a: Table, b: Table, count: int) -> dict[int, int]:
        """Return the differences like `compare_blocks`, but of directories; sizes are ignored."""
        if all(a.agrees(b, name, count) for name in self._columns if name != "size"):
            return {}
        return self._compare_rows(a, b, count)

    def _compare_rows(self, a: Table, b: Table, count: int) -> dict[int, int]:
        found = map(self.differences, a.rows(count), b.rows(count))
        return {place: different for place, different in enumerate(found) if different}

    def _is_time(self, a_ns: int, b_ns: int, a: Status, b: Status) -> bool:
        if self._window_ns is not None:
            return abs(a_ns - b_ns) <= self._window_ns
        if a_ns // _COARSEST_NS != b_ns // _COARSEST_NS:
            return False  # each unit is a multiple of all finer units
        self._infer_unit(a)
        self._infer_unit(b)
        unit_ns = max(self._units_ns[a.st_dev], self._units_ns[b.st_dev])
        return a_ns // unit_ns == b_ns // unit_ns

    def _infer_unit(self, status: Status) -> None:
        """Refine the granularity of timestamps on an entry's device.

        One in a hundred nanosecond timestamps looks like that of a 100 ns clock, so a single
        timestamp is not sufficient.
        """
        device, units_ns = status.st_dev, self._units_ns
        if device not in units_ns:
            units_ns[device] = _COARSEST_NS
            if type_of_device(device) in _EVEN_SECONDS:
                self._even_seconds.add(device)
        if device not in self._even_seconds:
            units_ns[device] = min(units_ns[device], infer_unit_ns(status))


def _are_same_devices(a: Table, b: Table, count: int) -> bool:
    """Return whether all device numbers are equal; the modes are known to be equal."""
    return a.are_files(count) or a.agrees(b, "rdev", count)


T = TypeVar("T")
E = TypeVar("E", bound=OSError)
Fds = tuple[int, int]
"""The descriptors of an open file or directory on sides A and B."""

_SIDE = "side"  # the attribute of an exception that stores the side


def error_side(error: OSError) -> int:
    """Return the side that failed: 0 for A, 1 for B."""
    side: int = getattr(error, _SIDE, 0)
    return side


def set_error_side(error: E, side: int) -> E:
    """Store the side in an error, and return the error."""
    setattr(error, _SIDE, side)
    return error


def with_side(side: int, function: Callable[[int], T]) -> T:
    """Call a function with a side, and store the side in an OSError that it raises."""
    try:
        return function(side)
    except OSError as error:
        set_error_side(error, side)
        raise


def both(function: Callable[[int], T]) -> tuple[T, T]:
    """Return the results of a function for both sides."""
    return with_side(0, function), with_side(1, function)


Openers: TypeAlias = "tuple[Callable[..., int], Callable[..., int]]"
_OPENERS: Openers = os.open, os.open


@contextmanager
def open_files(
    name: bytes, fds: Fds, other: bytes | None = None, openers: Openers = _OPENERS
) -> Iterator[tuple[Fds, tuple[os.stat_result, os.stat_result]]]:
    """Open regular files with the same name in two directories; yield descriptors and statuses.

    `other` is the name on side B if it differs, and `openers` replace `os.open`. Links are not
    followed, and opening does not block. Raises OSError with the side of the error.
    """
    names = name, other or name

    def opened(side: int) -> int:
        return openers[side](names[side], OPEN_FILE, dir_fd=fds[side])

    with closing_fd(with_side(0, opened)) as first, closing_fd(with_side(1, opened)) as second:
        files = first, second
        yield files, both(lambda side: _regular(files[side]))


def _regular(fd: int) -> os.stat_result:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise Changed("it is no longer a regular file")
    return status
