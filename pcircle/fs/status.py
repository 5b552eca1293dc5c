"""Fields of statx(2) that Python lacks: birth times and mount numbers.

This module can also refresh a status that a network client caches. `pcircle.fs.stats` looks up all
other fields.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from pcircle.core.units import NS_PER_S

if TYPE_CHECKING:
    from typing import Protocol

    class FileStatus(Protocol):
        """An `os.stat_result`, or a `pcircle.fs.stats.StatusRow`."""

        @property
        def st_mode(self) -> int: ...
        @property
        def st_dev(self) -> int: ...
        @property
        def st_size(self) -> int: ...
        @property
        def st_blocks(self) -> int: ...


AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_AT_STATX_FORCE_SYNC = 0x2000
_BASIC_STATS = 0x7FF
_BIRTH = 0x800
_MOUNT_NUMBER = 0x4000  # the mount number that is not reused (Linux 6.8)
_RECORD_BYTES = 256
_MASK_AT, _BIRTH_AT, _MOUNT_NUMBER_AT = 0, 80, 144


def birth_ns(name: bytes, directory_fd: int | None, *, follow: bool) -> int | None:
    """Return a file's birth time in nanoseconds since the epoch; None if it is unknown.

    An empty name refers to the open directory itself.
    """
    call = _statx()
    if call is None:
        return None
    buffer = bytearray(_RECORD_BYTES)
    flags = (0 if follow else _AT_SYMLINK_NOFOLLOW) | (0 if name else _AT_EMPTY_PATH)
    from pcircle.threads.deadline import call_with_timeout  # rarely needed

    holder = AT_FDCWD if directory_fd is None else directory_fd
    if call_with_timeout(call, holder, name, flags, _BIRTH, buffer):
        return None
    (mask,) = struct.unpack_from("I", buffer, _MASK_AT)
    seconds, ns = struct.unpack_from("qI", buffer, _BIRTH_AT)
    return int(seconds) * NS_PER_S + int(ns) if mask & _BIRTH else None


def mount_number(fd: int) -> str | None:
    """Return the number of an open file's mount, which is not reused until the next boot.

    Return None if the system does not report one.
    """
    call = _statx()
    buffer = bytearray(_RECORD_BYTES)
    if call is None or call(fd, b"", _AT_EMPTY_PATH, _MOUNT_NUMBER, buffer):
        return None
    (mask,) = struct.unpack_from("I", buffer, _MASK_AT)
    (number,) = struct.unpack_from("Q", buffer, _MOUNT_NUMBER_AT)
    return f"mount {number}" if mask & _MOUNT_NUMBER else None


def refreshed(fd: int) -> os.stat_result:
    """Return the status of an open file from its server, not from a cache. Raises OSError."""
    call = _statx()
    if call is not None:  # the call refreshes the cache
        flags = _AT_EMPTY_PATH | _AT_STATX_FORCE_SYNC
        call(fd, b"", flags, _BASIC_STATS, bytearray(_RECORD_BYTES))
    return os.fstat(fd)


@functools.cache
def _statx() -> Callable[[int, bytes, int, int, bytearray], int] | None:
    """Return a function that calls statx(2); None if the C library lacks it."""
    import ctypes  # few runs need ctypes

    try:
        found = ctypes.CDLL(None).statx
    except (AttributeError, OSError):
        return None

    def call(directory_fd: int, name: bytes, flags: int, mask: int, buffer: bytearray) -> int:
        record = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        return int(found(directory_fd, name, flags, mask, record))

    return call
