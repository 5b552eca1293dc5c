"""System calls through ctypes: those that `os` lacks, and one that `os` makes slow.

`os.stat` creates some twenty objects for a name, which takes as long as the system call itself.
Here, statx(2) writes the status of many files into a buffer of the thread, and columns of the
buffer are slices with a stride. So a name and its status take 2.7 µs in place of 3.8 (CPython 3.11,
tmpfs).

The functions of ctypes have no `argtypes`, whose conversions would cost half of what is saved.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import repeat, starmap
from typing import Any

_FCHMODAT2, _OPENAT2 = 452, 437
_NO_FOLLOW, _NO_AUTOMOUNT = 0x100, 0x800
_NO_OTHER_MOUNT, _BENEATH = 0x01, 0x08
_HERE = -100  # AT_FDCWD
_BASIC = 0x7FF  # the fields of `os.stat_result`
_STATUS_BYTES = 256
_MODE_HIGH = 29 if sys.byteorder == "little" else 28  # the byte of a status with its kind
_KIND_OF = bytes(high >> 4 for high in range(256))
MAX_ROWS = 256
_DIRECTORY = 0o040000

_UNUSABLE = (AttributeError, OSError, NotImplementedError, TypeError)
"""Raised by another interpreter's ctypes, too, if it cannot share a buffer."""

_own = threading.local()


def open_beneath(name: bytes, flags: int, *, dir_fd: int) -> int:
    """Call openat2(2) to open a name on its directory's mount. Raises OSError."""
    how = (ctypes.c_uint64 * 3)(flags, 0, _NO_OTHER_MOUNT | _BENEATH)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    fd = _system_call()(_OPENAT2, dir_fd, name, ctypes.byref(how), size)
    if fd < 0:
        raise _error()
    return fd


def change_mode(directory_fd: int, name: bytes, mode: int) -> None:
    """Call fchmodat2(2) for a name, without following links. Raises OSError."""
    if _system_call()(_FCHMODAT2, directory_fd, name, mode, _NO_FOLLOW):
        raise _error()


@cache
def _system_call() -> Callable[..., int]:
    function: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syscall
    return function


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def status_rows() -> StatusRows | None:
    """Return this thread's rows, or None if the C library or the kernel has no statx."""
    try:
        found: StatusRows | None = _own.rows
    except AttributeError:
        try:
            found = StatusRows()
        except _UNUSABLE:
            found = None
        _own.rows = found
    return found


class StatusRows:
    """A buffer for the status of `MAX_ROWS` files.

    Raises one of `_UNUSABLE` if the C library or the kernel has no statx.
    """

    def __init__(self) -> None:
        self._statx: Callable[..., int] = ctypes.CDLL(None).statx
        buffer = bytearray(MAX_ROWS * _STATUS_BYTES)
        begin = ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
        self._places = [ctypes.c_void_p(begin + _STATUS_BYTES * row) for row in range(MAX_ROWS)]
        self._bytes: memoryview[int] = memoryview(buffer)
        self._by_2: memoryview[int] = self._bytes.cast("H")
        self._by_4: memoryview[int] = self._bytes.cast("I")
        self._by_8: memoryview[int] = self._bytes.cast("Q")
        root = os.stat("/")
        is_called = self._statx(_HERE, b"/", 0, _BASIC, self._places[0]) == 0
        if not is_called or (self._by_2[14], self._by_8[4]) != (root.st_mode, root.st_ino):
            raise OSError("statx is not permitted, or the buffer is not shared")

    def look(self, fd: int, names: Sequence[bytes], rows: Sequence[int]) -> bool:
        """Look up names in a directory, in these rows; return whether all look-ups succeeded."""
        places = map(self._places.__getitem__, rows)
        calls = zip(repeat(fd), names, repeat(_NO_FOLLOW | _NO_AUTOMOUNT), repeat(_BASIC), places)
        return not any(starmap(self._statx, calls))

    def set_directories(self, first: int, kinds: bytes) -> None:
        """Let the rows of directories contain their kind, one link, and zeros.

        `kinds` are those of the rows from `first` on.
        """
        for row, kind in enumerate(kinds, first):
            if kind == _DIRECTORY >> 12:
                begin = row * _STATUS_BYTES
                self._bytes[begin : begin + _STATUS_BYTES] = bytes(_STATUS_BYTES)
                self._by_2[128 * row + 14] = _DIRECTORY
                self._by_4[64 * row + 4] = 1

    def kinds(self, row: int, count: int) -> bytes:
        """Return the kinds (DT_*) of entries that were looked up, from this row on."""
        begin = row * _STATUS_BYTES + _MODE_HIGH
        highs = self._bytes[begin : begin + count * _STATUS_BYTES : _STATUS_BYTES]
        return bytes(highs).translate(_KIND_OF)

    def table(self, count: int) -> bytes:
        """Return a table of `interface.COLUMNS` of the first rows."""
        pack = struct.Struct(f"{count}q").pack
        ends = 128 * count, 64 * count, 32 * count
        half, word, long = self._by_2, self._by_4, self._by_8

        def words(place: int) -> Any:
            return word[place : ends[1] : 64]

        def longs(place: int) -> bytes:
            return long[place : ends[2] : 32].tobytes()

        columns = [pack(*half[14 : ends[0] : 128]), *(pack(*words(place)) for place in (4, 5, 6))]
        columns += [longs(5), longs(6), pack(*words(1)), longs(4)]
        columns += [pack(*map(os.makedev, words(place), words(place + 1))) for place in (34, 32)]
        for place in (8, 14, 12):  # seconds; nanoseconds follow
            columns += [longs(place), pack(*words(2 * place + 2))]
        return b"".join(columns)
