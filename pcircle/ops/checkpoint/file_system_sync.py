"""Flushes the file systems that a rank writes to.

Whole file systems of the target are flushed, once per epoch, so that one call serves many files and
all ranks of a node.

A flush of a file system or file covers the writes of all processes. Therefore a rank can skip its
flush if another rank on the node has started and completed a flush after this rank requested one.
The ranks of a node count their flushes on a `pcircle.ops.checkpoint.shared_board`. A rank that has
waited for the lock usually finds that the previous flush started late enough. All ranks seal an
epoch at about the same time, so the first one waits briefly for the others and flushes for all of
them.

A flush does not count as completed if its rank died or the flush failed. A rank whose flush fails
stops the job.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pcircle.core.errors import StoppedEarly
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.ops.checkpoint.shared_board import SharedBoard

# The time within which an idle rank learns that its epoch is sealed.
GATHER_S = 0.025


class SyncCounts(NamedTuple):
    """Counts of flushes, which are numbered in the order in which they start.

    `begun` is the number of the last flush that started, `ended` that of the last flush that was
    completed, and `ranks` the number of ranks.
    """

    begun: int = 0
    ended: int = 0
    ranks: int = 0

    def covers(self, seen: int) -> bool:
        """Return whether a flush that started after the first `seen` flushes was completed."""
        return self.ended > seen

    def started(self) -> SyncCounts:
        """Return the counts after a flush has started."""
        return self._replace(begun=self.begun + 1)

    def finished(self) -> SyncCounts:
        """Return the counts after the flush that started last is completed."""
        return self._replace(ended=self.begun)


class SharedSync:
    """Shares flushes of one file or file system among the ranks of a node.

    The job is identified by its `token`, and the object to flush by `name`. The first of several
    ranks waits `gather_s` seconds for the others.
    """

    def __init__(self, token: bytes, name: str, gather_s: float = GATHER_S) -> None:
        """Join the ranks that share `name`. Raises OSError if sharing is impossible."""
        self._gather_s = gather_s
        self._board = SharedBoard(token, name, len(SyncCounts()))
        with self._board.locked() as numbers:
            counts = SyncCounts(*numbers.read())
            numbers.write(counts._replace(ranks=counts.ranks + 1))

    @property
    def counts(self) -> SyncCounts:
        """The current counts of all ranks together."""
        return SyncCounts(*self._board.read())

    def sync(self, flush: Callable[[], None]) -> None:
        """Ensure that data written before this call is on disk; `flush` writes it if necessary."""
        seen = self.counts.begun
        with self._board.locked() as numbers:
            counts = SyncCounts(*numbers.read())
            if counts.covers(seen):
                return
            if counts.ranks > 1:
                time.sleep(self._gather_s)
            counts = counts.started()
            # Written first, because the flush does not cover data written later.
            numbers.write(counts)
            flush()
            numbers.write(counts.finished())

    def close(self) -> None:
        """Release the shared memory."""
        self._board.close()


class FileSystemSync:
    """Flushes the file systems that one rank writes to, and holds its current epoch."""

    def __init__(self, first: FileSystemSync | None = None, token: bytes = b"") -> None:
        """Create the state of a rank's first thread, or of another thread if `first` is given.

        The threads of a rank share file systems and epoch. If the `token` of the job is given, the
        ranks of a node share their flushes.
        """
        self._rank_state = first or self
        self._token = token
        self._shared: dict[int, SharedSync | None] = {}  # by device, None if impossible
        if first is None:
            self._epoch = 1
            # Maps each device to the descriptor of a directory on it.
            self._file_systems: dict[int, int] = {}
            self._lock = threading.Lock()
        else:
            self._file_systems, self._lock = first._file_systems, first._lock

    @property
    def epoch(self) -> int:
        """The rank's current epoch."""
        return self._rank_state._epoch

    def enter(self, epoch: int) -> None:
        """Assign all subsequent work to this epoch."""
        self._epoch = epoch

    def add_directory(self, fd: int, status: os.stat_result) -> None:
        """Register the file system of a directory of the copy."""
        if status.st_dev in self._file_systems:
            return
        # An unreadable directory cannot be used for syncfs, but any other directory on the device
        # can.
        with suppress(OSError), self._lock:
            if status.st_dev not in self._file_systems:  # another thread may have added it
                self._file_systems[status.st_dev] = os.open(b".", OPEN_DIRECTORY_FOLLOW, dir_fd=fd)

    def sync(self) -> None:
        """Flush what this node has written to the target. Raises StoppedEarly if that fails."""
        with self._lock:
            file_systems = list(self._file_systems.items())
        for device, fd in file_systems:
            shared = self._shared_sync(device)
            if shared is None:
                _sync_copies(fd)
            else:
                shared.sync(partial(_sync_copies, fd))

    def _shared_sync(self, device: int) -> SharedSync | None:
        if self._token and device not in self._shared:
            self._shared[device] = None
            with suppress(OSError):  # for example, another process uses the name
                self._shared[device] = SharedSync(self._token, f"{device:x}")
        return self._shared.get(device)

    def close(self) -> None:
        """Close all descriptors."""
        for shared in self._shared.values():
            if shared is not None:
                shared.close()
        self._shared.clear()
        for fd in self._file_systems.values():
            os.close(fd)
        self._file_systems.clear()


def sync_file_system(fd: int) -> None:
    """Flush a file system to disk, or all file systems if syncfs is not available.

    Raise OSError on failure.
    """
    import ctypes  # slow, and rarely needed

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
    elif library.syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _sync_copies(fd: int) -> None:
    try:
        sync_file_system(fd)
    except OSError as error:
        raise StoppedEarly(f"the copy cannot be flushed to disk: {error.strerror}") from error
