"""How exactly a target keeps modification times: found out once for each file system.

A copy on ext3 or HFS has whole seconds, one on FAT even ones; on most file systems a whole second
is just another time than a source's that is 0.9 s newer. A change time does not tell (it may be
kept in another way, or be set by a tool that makes images), so a file of our own is given a time,
and what became of it is read: four calls, made only when a time in the target is the source's, cut
to less. Where nothing may be written the times of the file that is there must tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

_SECOND = 10**9
UNITS_NS = (2 * _SECOND, _SECOND, 10**7, 10**6, 10**3, 100)
"""What file systems count times in that do not keep nanoseconds, the coarsest first."""

_TRIAL_NS = 1_000_000_001 * _SECOND + 999_999_999
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class Precision:
    """What a thread knows of it. `next_name` gives temporary names; None: write nothing."""

    def __init__(self, next_name: Callable[[], bytes] | None) -> None:
        self._next_name = next_name
        self._known: dict[int, int] = {}  # by device

    def is_kept(self, source_ns: int, old: os.stat_result, directory_fd: int) -> bool:
        """Whether the time of a file in a directory is what becomes of `source_ns` there."""
        if old.st_mtime_ns == source_ns:
            return True
        if not any(source_ns // unit * unit == old.st_mtime_ns for unit in UNITS_NS):
            return False
        unit_ns = self._unit_ns(old, directory_fd)
        return source_ns // unit_ns * unit_ns == old.st_mtime_ns

    def _unit_ns(self, old: os.stat_result, directory_fd: int) -> int:
        if self._next_name is None:
            return unit_shown_by(old)
        known = self._known.get(old.st_dev)
        if known is None:
            known = self._known[old.st_dev] = kept_unit_ns(
                self._next_name(), old.st_dev, directory_fd
            )
        return known or unit_shown_by(old)


def kept_unit_ns(name: bytes, device: int, directory_fd: int) -> int:
    """The unit in which modification times are kept, by what becomes of that of a new file.

    0 if it can't be made, or not on this device.
    """
    try:
        fd = os.open(name, _CREATE, 0o600, dir_fd=directory_fd)
    except OSError:
        return 0
    try:
        os.utime(fd, ns=(_TRIAL_NS, _TRIAL_NS))
        status = os.fstat(fd)
    except OSError:
        return 0
    finally:
        os.close(fd)
        with suppress(OSError):  # it could be made here
            os.unlink(name, dir_fd=directory_fd)
    if status.st_dev != device:
        return 0
    units = (unit for unit in UNITS_NS if _TRIAL_NS // unit * unit == status.st_mtime_ns)
    return next(units, 1)


class Times(Protocol):
    """The times of a file, as `os.stat` names them."""

    @property
    def st_atime_ns(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...


def unit_shown_by(status: Times) -> int:
    """What times are counted in, as far as those of one file show it; as cp reads it."""
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return next((unit for unit in UNITS_NS if not any(time % unit for time in times)), 1)
