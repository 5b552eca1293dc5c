"""On what kind of file system an open file is, asked in a way that can't hang.

io_uring mustn't read or write files of FUSE: if one was opened with ``direct_io`` Linux (6.18 and
before) never moves the position of an asynchronous request on, so a read that comes short is
repeated from its beginning and returns the same bytes twice, and a write at the descriptor's
position leaves that where it was. ``statfs`` would ask the file system, which may hang; so the
kernel is asked for the number of the mount, which it has at hand, and the table of mounts for the
rest. The table is read again when the kernel says that it has changed.
"""

from __future__ import annotations

import ctypes
import os
import select
from struct import unpack_from

_TABLE = "/proc/self/mountinfo"
_EMPTY_PATH, _DONT_SYNC = 0x1000, 0x4000
_MOUNT_ID = 0x1000
_MASK_AT, _MOUNT_ID_AT, _STATX_BYTES = 0, 144, 256


class Mounts:
    """The mounts that this process sees."""

    def __init__(self) -> None:
        self._safe: dict[int, bool] = {}
        self._buffer = ctypes.create_string_buffer(_STATX_BYTES)
        # It doesn't wait, and to let go of the interpreter lock would cost more than the call.
        self._statx = getattr(ctypes.PyDLL(None), "statx", None)
        self._table = os.open(_TABLE, os.O_RDONLY | os.O_CLOEXEC)
        self._changes = select.poll()
        self._changes.register(self._table, select.POLLERR | select.POLLPRI)

    def refresh(self) -> None:
        """Forget what is known, if it may have changed since the last call."""
        if self._safe and self._changes.poll(0):
            self._safe.clear()

    def have_positions(self, fd: int) -> bool:
        """Whether asynchronous requests on an open file move on; if in doubt they don't."""
        number = self._number(fd)
        safe = self._safe.get(number)
        if safe is None:
            self._read()
            safe = self._safe.setdefault(number, False)  # of a mount that is none of ours
        return safe

    def close(self) -> None:
        os.close(self._table)

    def _number(self, fd: int) -> int:
        if self._statx is None:
            return -1
        if self._statx(fd, b"", _EMPTY_PATH | _DONT_SYNC, _MOUNT_ID, self._buffer):
            return -1  # not open: the threads find out
        mask = unpack_from("I", self._buffer, _MASK_AT)[0]
        return int(unpack_from("Q", self._buffer, _MOUNT_ID_AT)[0]) if mask & _MOUNT_ID else -1

    def _read(self) -> None:
        with open(_TABLE, "rb") as table:
            for line in table:
                fields = line.split()
                kind = fields[fields.index(b"-") + 1]
                self._safe[int(fields[0])] = not kind.startswith(b"fuse")
