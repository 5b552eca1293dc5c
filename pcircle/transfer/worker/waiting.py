"""What is copied and waits to be verified: until it is on disk, so that it can be read from there.

An item whose copies are to be read again is held, see `Context.hold`, with the
epoch that it is of; when that is committed it is resumed with an item that
reads them, which any rank can do. One sync serves for all that waits. Epochs
are kept short, so what waits is what is copied in some seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pcircle.checkpoint.file_system_sync import FileSystemSync
from pcircle.checkpoint.journal import Counts
from pcircle.guards import require
from pcircle.runtime import Context
from pcircle.transfer.items import Chunk, Copied, Done, Item, Reread, Verify
from pcircle.walk.visitor import Where

if TYPE_CHECKING:
    from pcircle.copying.hashing import Hasher

LONGEST_WAIT_S = 2.0
"""The time between epochs; they come sooner where there is nothing else to do."""


class _Held:
    """The items of one rank that wait, and for which epoch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committed = 0
        self._held: list[tuple[int, Item, Context[Item]]] = []

    def add(self, epoch: int, item: Item, context: Context[Item]) -> None:
        """An item that waits for this epoch's commit."""
        context.hold(epoch)
        with self._lock:
            if epoch > self._committed:
                self._held.append((epoch, item, context))
                return
        context.resume(context.ticket, [item], Done(), epoch)

    def commit(self, epoch: int) -> None:
        """What was done in this epoch and before is on disk."""
        with self._lock:
            self._committed = epoch
            ready = [each for each in self._held if each[0] <= epoch]
            self._held = [each for each in self._held if each[0] > epoch]
        for of, item, context in ready:
            context.resume(context.ticket, [item], Done(), of)


class Waiting:
    """What waits on one rank. `hasher` has seen the items' copies, on the worker's thread.

    With `beside` it waits with what that one, of another thread of the rank, has.
    """

    def __init__(self, disk: FileSystemSync, hasher: Hasher, beside: Waiting | None = None) -> None:
        self._disk = disk
        self._hasher = hasher
        self._held: _Held = _Held() if beside is None else beside._held

    def begin(self) -> None:
        """An item begins: what the last one left is not its own."""
        self._hasher.take()

    def copied(
        self, where: Where, names: Sequence[bytes], counts: Counts = (), entries: bytes = b""
    ) -> Copied | None:
        """What is to be read again of names of a directory that are done; None if nothing is.

        `counts`, if there are any, and `entries` are recorded with the names when they are.
        """
        seen = self._hasher.take()
        files = [name for name in names if name in seen]
        if not files:
            return None
        found = [seen[name] for name in files]
        return Copied(
            where.root,
            where.path,
            require(where.place),
            b"\0".join(files),
            tuple(each.size for each in found),
            b"".join(each.digest for each in found),
            b"\0".join(name for name in names if name not in seen),
            counts,
            entries,
            where.slot,
        )

    def hold(self, copied: Sequence[Copied], context: Context[Item]) -> None:
        """The item has made these: hold it until they are on disk and can be read again."""
        self._held.add(self._disk.epoch, Verify(tuple(copied)), context)

    def part(self, chunk: Chunk, reached: int, blocks: bytes, context: Context[Item]) -> None:
        """A chunk was copied up to here."""
        length = reached - chunk.offset
        part = msgspec.structs.replace(chunk, length=length, weight=0.0)
        self._held.add(self._disk.epoch, Reread(part, self._hasher.digest, blocks), context)

    def commit(self, epoch: int) -> None:
        """All that was done up to this epoch is on disk. Called on another thread."""
        self._held.commit(epoch)
