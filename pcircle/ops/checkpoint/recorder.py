"""Collection of the checkpoint records of the current item, and their transfer to the journal.

Records are collected while an item is processed. At its end they get the rank's current epoch and
go to the journal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from pcircle.fs.open_flags import OPEN_DIRECTORY
from pcircle.ops.checkpoint.file_system_sync import FileSystemSync
from pcircle.ops.checkpoint.journal import (
    CreatedDirectoryRecord,
    Journal,
    NamedCounts,
    NamesRecord,
    RangeRecord,
    Record,
    RecordKeys,
    reserved_bytes,
)
from pcircle.ops.checkpoint.plan import JournalPlan


class Recorder(FileSystemSync):
    """Writes the records of one of `size` ranks."""

    def __init__(
        self,
        plan: JournalPlan,
        rank: int,
        size: int,
        first: Recorder | None = None,
        token: bytes = b"",
    ) -> None:
        super().__init__(first, token)
        self._records: list[Callable[[], Record]] = []
        self.keys: RecordKeys
        self.journal: Journal
        self._fd: int
        if first is not None:
            self.keys, self.journal, self._fd = first.keys, first.journal, first._fd
            return
        self.keys = RecordKeys(plan.secret)
        fd = os.open(plan.path, OPEN_DIRECTORY)
        self._fd = fd
        shared_by = token if size > 1 else b""
        space = reserved_bytes(size)
        self.journal = Journal(fd, plan.run, rank, self.keys, space, shared_by)

    # ---- the item at hand ------------------------------------------------------

    def begin_item(self) -> None:
        """Start an item. The first call reserves space for what will be recorded."""
        self.journal.reserve()
        self._records.clear()

    def add(self, record: Record) -> None:
        """Add a record of the current item."""
        self._records.append(lambda: record)

    def add_names(
        self,
        root: int,
        path: bytes,
        names: Sequence[bytes],
        counts: NamedCounts,
        made: int,
        entries: bytes = b"",
    ) -> None:
        """Record that the item has completed these names of a directory, with these counts.

        `made` is the inode of the directory's copy. `entries` are the packed signature entries of
        the names if the copy is signed.
        """

        def record() -> NamesRecord:
            key = self.keys.directory(root, path)
            return NamesRecord(key, self.keys.names(names), counts, made, entries)

        if names:
            # Names are hashed at the end of the item, and not at all if the whole directory was
            # completed.
            self._records.append(record)

    def add_range(
        self,
        file: tuple[int, bytes, bytes],
        temporary: bytes,
        offset: int,
        length: int,
        blocks: bytes = b"",
    ) -> None:
        """Record that the item has copied a range of a file, given as root, path and name.

        `blocks` has the digests of the range if the copy is signed.
        """
        self.add(RangeRecord(self.keys.file(*file), temporary, offset, length, blocks))

    def end_item(self, floor: int) -> int:
        """End the item and return the epoch of its records.

        The epoch is the current one, or `floor` if that is later.
        """
        if not self._records:
            return max(self.epoch, floor)
        epoch = self.journal.add([record() for record in self._records], floor)
        self._records.clear()
        return epoch

    def add_created_directory(self, root: int, path: bytes) -> None:
        """Record that a directory is about to be created whose mode needs special care."""
        self.journal.add([CreatedDirectoryRecord(self.keys.directory(root, path))], now=True)

    # ---- epochs ----------------------------------------------------------------

    def enter(self, epoch: int) -> None:
        super().enter(epoch)
        self.journal.enter(epoch)

    def sync(self) -> None:
        """Flush the journal's records and then the file systems."""
        self.journal.flush()
        super().sync()

    def close(self) -> None:
        """Write pending records and close everything."""
        self.journal.leave()
        super().close()
        os.close(self._fd)
