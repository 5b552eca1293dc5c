"""The precision of modification times on a target, measured once per file system.

A copy on ext3 or HFS has whole seconds, one on FAT even seconds. On most file systems a whole
second is an ordinary time that differs from a source that is 0.9 s newer. Change times do not show
the precision, because they may be stored differently or set by a tool that creates images. So a
temporary file is given a time and the stored time is read: four calls, made only when a target's
time equals a source's time rounded down. If nothing may be written, the times of the existing file
must suffice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pcircle.fs.open_flags import CREATE_FILE

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
