"""A copy that keeps a checkpoint, a record of completed work.

Every result has an epoch (`pcircle.circle.epochs`) and its share of the job's counts. A directory
that is complete without a failure is one record, with the change time of its copy. A resumed run
skips the directory at the cost of one `stat` if its change time is the same. The run still visits
its subdirectories, so that changes deep in the tree are found. Completed parts of a directory have
records of their own: the names of each batch, the ranges of large files, and the names of
hard-linked inodes.

Work in a directory counts no sooner than the directory itself, and a link no sooner than its
target, whichever ranks made them. An item's epoch is the latest of the epochs of its own end, its
directory and its children.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from pcircle.core.guards import require
from pcircle.ops.checkpoint.journal import Counts, InodeRecord
from pcircle.ops.checkpoint.recorder import Recorder
from pcircle.ops.checkpoint.resume import CheckpointSession
from pcircle.ops.copy.entry.settings import Stamp
from pcircle.ops.copy.tree.counters import FOUND, has_failed, named
from pcircle.ops.copy.tree.items import (
    NOTHING,
    CopyResult,
    FirstName,
    HardLinkedName,
    HardLinkItem,
    Item,
    LargeFileItem,
    PartialResult,
)
from pcircle.ops.copy.tree.links import is_copy_of
from pcircle.ops.copy.tree.plan import CopyPlan
from pcircle.ops.copy.tree.task import CopyTask, ItemState, slot_of
from pcircle.walk.items import DirectoryIdentity

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists


class JournaledCopy(CopyTask):
    """The part of one rank in a copy that keeps a checkpoint."""

    def __init__(
        self,
        plan: CopyPlan,
        rank: int,
        size: int,
        session: CheckpointSession | None,
        lists: Lists | None,
        beside: CopyTask | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(plan, rank, size, lists, beside, number)
        self._session = session  # on rank 0
        self._recorder: Recorder = require(self._worker.recorder)
        self._committing = threading.Lock()
        self._sealed = 0
        self._late = 0  # commits up to this epoch come too late
        self.epoch_period_s = min(require(plan.journal).interval_s, self.epoch_period_s or math.inf)

    def beside(self, number: int) -> JournaledCopy:
        own = self._worker
        return type(self)(own.plan, own.rank, own.size, None, self._lists, self, number)

    def _record(self, item: Item, done: CopyResult, merged: CopyResult | None) -> None:
        """Record the result of a large file, or of a name of a hard-linked inode."""
        part = done.slots.get(slot_of(item), NOTHING)
        if has_failed(part) or done.cause is not None:
            return
        if isinstance(item, LargeFileItem):
            if not item.linked:
                self._name(item, part)
        elif isinstance(item, HardLinkItem):
            self._name(item.one, part)
            # The first name's own record may be lost with its rank, so this one must suffice.
            self._inode(item.first, item.made, item.copied, item.seal, item.one.place)
        elif isinstance(item, FirstName):
            self._name(item.one, part)
            if merged is not None and is_copy_of(item.one, merged):
                found = require(merged.made), require(merged.copied), self._seal_of(part)
                self._inode(item.one, *found, item.one.place)

    def _name(self, item: LargeFileItem | HardLinkedName, part: PartialResult) -> None:
        where = item.root, item.path
        made_in = self._worker.sides.copy_mark(*where)
        counts, entries = _of_one(part.counts), b"".join(part.runs)
        self._recorder.add_names(*where, [item.name], named(counts), made_in, entries)

    def _inode(
        self, one: HardLinkedName, made: int, copied: Stamp, seal: bytes, place: DirectoryIdentity
    ) -> None:
        key = self._recorder.keys.inode(place.file_system, copied.inode)
        where = one.root, one.path, one.name
        self._recorder.add(InodeRecord(key, *where, made, copied.version, seal))

    def _seal_of(self, part: PartialResult) -> bytes:
        signer = self._worker.signer
        return b"" if signer is None else signer.seal_of(part)

    def abandon(self, item: Item, own: ItemState) -> None:
        """Keep an incomplete large file, which is resumed later."""
        if isinstance(own, list):
            super().abandon(item, own)

    def finish(self) -> None:
        """Close the checkpoint's files, because NFS keeps removed files while they are open."""
        super().finish()
        with self._committing:
            self._late = self._sealed
            self._recorder.journal.close()
        for part in self.parts:
            if part._worker.earlier is not None:
                part._worker.earlier.resumed.release()

    # ---- epochs ----------------------------------------------------------------

    def seal(self, epoch: int) -> None:
        self._sealed = epoch
        super().seal(epoch)

    def commit(self, epoch: int) -> None:
        with self._committing:
            if epoch <= self._late:
                return  # the work has ended, and the checkpoint may be removed
            if self._session is not None:
                self._session.lock.check()
            self._recorder.journal.commit(epoch, named(self.measure().counts))
        super().commit(epoch)


def _of_one(counts: Counts) -> Counts:
    """Return the counts of one name for a record, in which it also counts as found."""
    return (*counts[:FOUND], 1, *counts[FOUND + 1 :])
