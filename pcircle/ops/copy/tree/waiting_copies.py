"""Holds copies until they are on disk and can be verified.

An item whose copies will be verified is held (`Context.hold`) with its epoch. When the epoch is
committed, the item is resumed with a new item, which reads the copies back on any rank. One sync
serves all waiting copies. Epochs are short, so usually only the work of a few seconds is waiting.

`ItemLimits` defines the costs of items for `--bwlimit` and `--ops-limit`; see
`pcircle.ops.copy.entry.observers`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from pcircle.ops.checkpoint.file_system_sync import FileSystemSync
from pcircle.ops.checkpoint.journal import Counts
from pcircle.ops.copy.entry.observers import RateLimits
from pcircle.ops.copy.tree import items
from pcircle.runtime import Context
from pcircle.walk.visitor import Where

if TYPE_CHECKING:
    from pcircle.ops.copy.entry.content_hash import HashObserver


class ItemLimits(RateLimits):
    """One rank's share of the limits of a copy, with the costs of its items."""

    def begin(self, item: items.Item, stop: Callable[[], bool]) -> None:
        """Wait until the limits allow an item to start; the names in a batch wait one by one."""
        self.start(stop)
        if isinstance(item, items.CopyChunk):
            self.operations(2)
        elif isinstance(item, items.HardLinkItem):
            self.operations(self.entry)
        elif isinstance(item, items.LargeFileItem):
            self.operations(self.entry + 2)  # one more lookup, and a rename


def limits_of(plan: items.CopyPlan, size: int) -> ItemLimits | None:
    """Return a rank's share of the limits, or None if there are none."""
    limits = plan.bytes_per_s, plan.operations_per_s
    if limits == (None, None) and plan.polite is None:
        return None
    return ItemLimits(plan, *limits, size, plan.polite)


LONGEST_WAIT_S = 2.0
"""The period of the rounds that end epochs; idle ranks end an epoch sooner."""


class _Held:
    """The waiting items of one rank, with their epochs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committed = 0
        self._held: list[tuple[int, items.Item, Context[items.Item]]] = []

    def add(self, epoch: int, item: items.Item, context: Context[items.Item]) -> None:
        """Hold an item until this epoch is committed."""
        context.hold(epoch)
        with self._lock:
            if epoch > self._committed:
                self._held.append((epoch, item, context))
                return
        context.resume(context.ticket, [item], items.CopyResult(), epoch)

    def commit(self, epoch: int) -> None:
        """Resume the items of this epoch and of earlier epochs."""
        with self._lock:
            self._committed = epoch
            ready = [held for held in self._held if held[0] <= epoch]
            self._held = [held for held in self._held if held[0] > epoch]
        for of, item, context in ready:
            context.resume(context.ticket, [item], items.CopyResult(), of)


class WaitingCopies:
    """Holds the copies of one worker thread; its `hasher` has computed their digests.

    If `beside` (of another thread of the rank) is given, the held items are shared with it.
    """

    def __init__(
        self, disk: FileSystemSync, hasher: HashObserver, beside: WaitingCopies | None = None
    ) -> None:
        self._disk = disk
        self._hasher = hasher
        self._held: _Held = _Held() if beside is None else beside._held

    def begin(self) -> None:
        """Start an item, and discard the digests of the previous one."""
        self._hasher.take()

    def copied(
        self, where: Where, names: Sequence[bytes], counts: Counts = (), entries: bytes = b""
    ) -> items.CopiedFiles | None:
        """Return the files to verify among completed names, or None if there are none.

        `counts`, if given, and `entries` are recorded with the names after verification.
        """
        seen = self._hasher.take()
        files = [name for name in names if name in seen]
        if not files:
            return None
        found = [seen[name] for name in files]
        return items.CopiedFiles(
            where.root,
            where.path,
            where.place,
            b"\0".join(files),
            tuple(content.size for content in found),
            b"".join(content.digest for content in found),
            b"\0".join(name for name in names if name not in seen),
            counts,
            entries,
            where.slot,
        )

    def hold(self, copied: Sequence[items.CopiedFiles], context: Context[items.Item]) -> None:
        """Hold the copies of the item until they are on disk."""
        self._held.add(self._disk.epoch, items.FileVerification(tuple(copied)), context)

    def part(
        self, chunk: items.CopyChunk, reached: int, blocks: bytes, context: Context[items.Item]
    ) -> None:
        """Hold the copied part of a chunk, which ends at `reached`."""
        length = reached - chunk.offset
        part = msgspec.structs.replace(chunk, length=length, weight=0.0)
        self._held.add(
            self._disk.epoch, items.ChunkVerification(part, self._hasher.digest, blocks), context
        )

    def commit(self, epoch: int) -> None:
        """Resume all items up to this epoch; this is called on another thread."""
        self._held.commit(epoch)
