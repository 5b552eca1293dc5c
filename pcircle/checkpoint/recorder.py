"""A rank's side of the checkpoint: what the item at hand has done, and bringing it to disk.

While an item is at work its records are collected; when it ends they get the
epoch that the rank is in by then and go to the journal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from pcircle.checkpoint.disk import Disk
from pcircle.checkpoint.journal import (
    Journal,
    Keys,
    Made,
    Named,
    Names,
    Part,
    Record,
    reserved_bytes,
)
from pcircle.checkpoint.plan import JournalPlan


class Recorder(Disk):
    """The records of one rank of `size`."""

    def __init__(
        self,
        plan: JournalPlan,
        rank: int,
        size: int,
        beside: Recorder | None = None,
        token: bytes = b"",
    ) -> None:
        super().__init__(beside, token)
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
        shared_by = token if size > 1 else b""
        space = reserved_bytes(size)
        self.journal = Journal(fd, plan.run, rank, self.keys, space, shared_by)

    # ---- the item at hand ------------------------------------------------------

    def begin(self) -> None:
        """An item begins. Before the first one there must be space for what it will have done."""
        self.journal.reserve()
        self._some.clear()

    def add(self, record: Record) -> None:
        """The item has done this."""
        self._some.append(lambda: record)

    def names(
        self,
        root: int,
        path: bytes,
        names: Sequence[bytes],
        counts: Named,
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

    def part(
        self,
        file: tuple[int, bytes, bytes],
        temporary: bytes,
        offset: int,
        length: int,
        blocks: bytes = b"",
    ) -> None:
        """The item has copied a range of a file, which is given as root, path and name.

        `blocks` are its digests, if it is signed.
        """
        self.add(Part(self.keys.file(*file), temporary, offset, length, blocks))

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
        self.journal.leave()
        super().close()
        os.close(self._fd)
