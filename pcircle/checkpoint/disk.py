"""Where a rank writes to, and bringing it there.

The file systems that the target is on are flushed as a whole, once an epoch: one call for
many files, and for many ranks of a node (`shared`).
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pcircle.errors import StoppedEarly

if TYPE_CHECKING:
    from pcircle.checkpoint.shared import SharedSync


class Disk:
    """Where one rank writes to, and bringing it there."""

    def __init__(self, beside: Disk | None = None, token: bytes = b"") -> None:
        """With `beside` it is of another thread of the same rank, and in the same epoch.

        With `token`, which is the job's own, ranks of a node flush for each other.
        """
        self._of_rank = beside or self
        self._token = token
        self._shared: dict[int, SharedSync | None] = {}  # by device; None: it can't be
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
            file_systems = list(self._file_systems.items())
        for device, fd in file_systems:
            shared = self._shared_sync(device)
            if shared is None:
                self._sync_file_system(fd)
            else:
                shared.sync(partial(self._sync_file_system, fd))

    def _shared_sync(self, device: int) -> SharedSync | None:
        if self._token and device not in self._shared:
            from pcircle.checkpoint.shared import SharedSync  # few copies last so long

            self._shared[device] = None
            with suppress(OSError):  # somebody else has the name
                self._shared[device] = SharedSync(self._token, f"{device:x}")
        return self._shared.get(device)

    def _sync_file_system(self, fd: int) -> None:
        import ctypes  # takes a while, and few copies last until their first epoch

        if self._libc is None:
            self._libc = ctypes.CDLL(None, use_errno=True)
        if self._libc.syncfs(fd):
            reason = os.strerror(ctypes.get_errno())
            raise StoppedEarly(f"the copy cannot be flushed to disk: {reason}")

    def close(self) -> None:
        """Let go."""
        for shared in self._shared.values():
            if shared is not None:
                shared.close()
        self._shared.clear()
        for fd in self._file_systems.values():
            os.close(fd)
        self._file_systems.clear()
