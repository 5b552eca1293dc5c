"""A rank's side of the checkpoint: what the item at hand has done, and bringing it to disk.

While an item is at work its records are collected; when it ends they get the
epoch that the rank is in by then and go to the journal. The file systems that
the copy is on are brought to disk as a whole, once an epoch: one call for
many files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pcircle.errors import StoppedEarly
from pcircle.fcp.items import Chunk
from pcircle.fcp.journal import Counts, Journal, Keys, Made, Names, Part, Record
from pcircle.fcp.plan import JournalPlan
from pcircle.fcp.resumed import journal_name


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
            raise StoppedEarly(f"what was copied can't be brought to disk: {reason}")

    def close(self) -> None:
        """Let go."""
        for fd in self._file_systems.values():
            os.close(fd)
        self._file_systems.clear()


class Recorder(Disk):
    """The records of one rank."""

    def __init__(self, plan: JournalPlan, rank: int, beside: Recorder | None = None) -> None:
        super().__init__(beside)
        self._some: list[Callable[[], Record]] = []
        self.keys: Keys
        self.journal: Journal
        self._fd: int
        if beside is not None:
            self.keys, self.journal, self._fd = beside.keys, beside.journal, beside._fd
            return
        self.keys = Keys(plan.secret)
        fd = os.open(plan.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._fd = fd
        self.journal = Journal(fd, journal_name(plan.run, rank), self.keys)
        self.journal.reserve()

    # ---- the item at hand ------------------------------------------------------

    def begin(self) -> None:
        """An item begins."""
        self._some.clear()

    def add(self, record: Record) -> None:
        """The item has done this."""
        self._some.append(lambda: record)

    def names(
        self,
        root: int,
        path: bytes,
        names: Sequence[bytes],
        counts: Counts,
        made: int,
        entries: bytes = b"",
    ) -> None:
        """The item has done these names of a directory, which came to these counts.

        `made` is the inode of the directory's copy;
        `entries` are these names' own, packed, if the copy is signed.
        """

        def record() -> Names:
            key = self.keys.directory(root, path)
            return Names(key, self.keys.names(names), counts, made, entries)

        if names:
            # Names are hashed at the end of the item, which may do without: the whole is done.
            self._some.append(record)

    def part(self, chunk: Chunk, length: int, blocks: bytes = b"") -> None:
        """The item has copied so much of a chunk; `blocks` are its digests, if it is signed."""
        key = self.keys.file(chunk.root, chunk.path, chunk.name)
        self.add(Part(key, chunk.temporary, chunk.offset, length, blocks))

    def end(self, floor: int) -> int:
        """The item has ended: what it did counts with the epoch that is returned.

        Which is that of now, or `floor` if that is later.
        """
        if not self._some:
            return max(self.epoch, floor)
        epoch = self.journal.add([record() for record in self._some], floor)
        self._some.clear()
        return epoch

    def making(self, root: int, path: bytes) -> None:
        """A directory is about to be made whose mode will need more care than others'."""
        self.journal.add([Made(self.keys.directory(root, path))], now=True)

    # ---- epochs ----------------------------------------------------------------

    def enter(self, epoch: int) -> None:
        """As of `Disk`, for the records as well."""
        super().enter(epoch)
        self.journal.enter(epoch)

    def sync(self) -> None:
        """As of `Disk`; the records that there are come first."""
        self.journal.flush()
        super().sync()

    def close(self) -> None:
        """Write what there is, and let go."""
        self.journal.close()
        super().close()
        os.close(self._fd)
