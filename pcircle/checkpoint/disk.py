"""Where a rank writes to, and bringing it there.

The file systems that the target is on are flushed as a whole, once an epoch: one call for
many files.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any

from pcircle.errors import StoppedEarly


class Disk:
    """Where one rank writes to, and bringing it there."""

    def __init__(self, beside: Disk | None = None) -> None:
        """With `beside` it is of another thread of the same rank, and in the same epoch."""
        self._of_rank = beside or self
        if beside is None:
            self._epoch = 1
            # By device, a descriptor of a directory on each.
            self._file_systems: dict[int, int] = {}
            self._lock = threading.Lock()
        else:
            self._file_systems, self._lock = beside._file_systems, beside._lock
        self._libc: Any = None

    @property
    def epoch(self) -> int:
        """The epoch that the rank is in."""
        return self._of_rank._epoch

    def enter(self, epoch: int) -> None:
        """What is done from now on is of this epoch."""
        self._epoch = epoch

    def opened(self, fd: int, status: os.stat_result) -> None:
        """A directory of the copy was opened, perhaps on a file system that is new to us."""
        if status.st_dev in self._file_systems:
            return
        # One that may not be read can't be synced by; another one on it will do.
        with suppress(OSError), self._lock:
            if status.st_dev not in self._file_systems:  # by another thread meanwhile
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                self._file_systems[status.st_dev] = os.open(b".", flags, dir_fd=fd)

    def sync(self) -> None:
        """Bring to disk what this node has written. StoppedEarly if it can't be."""
        with self._lock:
            descriptors = list(self._file_systems.values())
        for fd in descriptors:
            self._sync_file_system(fd)

    def _sync_file_system(self, fd: int) -> None:
        import ctypes  # takes a while, and few copies last until their first epoch

        if self._libc is None:
            self._libc = ctypes.CDLL(None, use_errno=True)
        if self._libc.syncfs(fd):
            reason = os.strerror(ctypes.get_errno())
            raise StoppedEarly(f"the copy cannot be flushed to disk: {reason}")

    def close(self) -> None:
        """Let go."""
        for fd in self._file_systems.values():
            os.close(fd)
        self._file_systems.clear()
