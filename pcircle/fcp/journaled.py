"""A copy that keeps a checkpoint: the same work, with a record of what was done.

Every result has an epoch (`pcircle.circle.epochs`) and its part of the job's
counts. A directory that is complete without a failure is one record, and a
resumed run passes it over with all that is below. What of it was done before
that has records of its own: the names of each batch, the ranges of large
files, names of inodes that have several.

What is done in a directory counts no sooner than the directory itself, and a
link no sooner than what it is a link to, wherever these were made: so an
item's epoch is the latest of its own end, its place's, and its children's.
"""

from __future__ import annotations

import math
import stat
from typing import Any, NamedTuple

import msgspec

from pcircle.fcp.counters import FAILED, FOUND
from pcircle.fcp.items import (
    Batch,
    Chunk,
    Claim,
    Done,
    First,
    Item,
    Large,
    Links,
    One,
    Place,
    Portion,
    Reread,
    Singles,
    Tree,
    Verify,
)
from pcircle.fcp.journal import Counts, Inode, Subtree, add_counts
from pcircle.fcp.large import LargeFile
from pcircle.fcp.plan import Plan
from pcircle.fcp.recorder import Recorder
from pcircle.fcp.resume import Kept
from pcircle.fcp.task import CopyTask
from pcircle.fs.lists import Lists
from pcircle.runtime import Here


class Own(NamedTuple):
    """What an item keeps for its completion, with the epoch and the counts of its beginning."""

    value: Any
    epoch: int
    counts: Counts


class JournaledCopy(CopyTask):
    """One rank's part of a copy that keeps a checkpoint."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        size: int,
        kept: Kept | None,
        lists: Lists | None,
        beside: CopyTask | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(plan, rank, size, lists, beside, number)
        self._kept = kept  # on rank 0
        assert plan.journal is not None
        assert self._site.recorder is not None
        self._recorder: Recorder = self._site.recorder
        self.epoch_period_s = min(plan.journal.interval_s, self.epoch_period_s or math.inf)

    def beside(self, number: int) -> JournaledCopy:
        site = self._site
        return JournaledCopy(site.plan, site.rank, site.size, None, self._lists, self, number)

    def process(self, item: Item, here: Here[Item]) -> Any:
        known = self._known(item) if isinstance(item, Tree) else None
        if known is not None:
            return known
        before = self._site.counters.counts()
        self._recorder.begin()
        value = super().process(item, here)
        counts = _less(self._site.counters.counts(), before)
        floor = _floor(item)
        if not isinstance(value, Done):
            return Own(value, self._recorder.end(floor), counts)
        done = msgspec.structs.replace(value, epoch=max(value.epoch, floor), counts=counts)
        if not (here.spawned or here.stopping):  # else it may have left off anywhere
            self._record(item, done)
        return msgspec.structs.replace(done, epoch=self._recorder.end(done.epoch))

    def join(self, item: Item, own: Any, merged: Done, here: Here[Item]) -> Done:
        before = self._site.counters.counts()
        self._recorder.begin()
        began = own if isinstance(own, Own) else Own(own, own.epoch, ())
        value = super().join(item, began.value, merged, here)
        ending = _less(self._site.counters.counts(), before)
        # The merged counts are in the value already if it was merged of the item's own.
        below = value.counts if isinstance(own, Done) else add_counts(began.counts, merged.counts)
        floor = max(began.epoch, merged.epoch)
        done = msgspec.structs.replace(value, epoch=floor, counts=add_counts(below, ending))
        # At home, and nowhere else, it is known which inode is copied.
        if not isinstance(item, First) or began.value:
            self._record(item, done, merged.made)
        return msgspec.structs.replace(done, epoch=self._recorder.end(floor))

    def _known(self, item: Tree) -> Done | None:
        """The result of a directory that an earlier run has done with all below."""
        resumed = self._site.resumed
        if resumed is None:
            return None
        record = resumed.subtree(item.root, item.path)
        if record is None or not self._is_there(item) or record.made != self._made_in(item):
            return None
        done = Done(counts=record.counts)
        signer = self._site.signer
        if signer is not None:
            if not signer.is_digest(record.digest):
                return None
            runs = (signer.directory_entry(item.root, item.path, record.digest),)
            done = Done(counts=record.counts, runs=runs, signed=record.signed)
        self._site.counters.resume(record.counts)
        self._site.counters.weight += item.weight
        return done

    def _is_there(self, item: Tree) -> bool:
        """Whether a directory's copy is still where it was made."""
        return self._site.target_is(item.root, item.path, stat.S_IFDIR)

    def _record(self, item: Item, done: Done, made: int | None = None) -> None:
        """An item is complete: what it came to is for the journal."""
        recorder = self._recorder
        if done.counts[FAILED] or done.cause is not None:
            return
        if isinstance(item, Tree):
            recorder.begin()  # one record says it all
            key, digest = recorder.keys.directory(item.root, item.path), self._seal_of(done)[1:]
            recorder.add(Subtree(key, done.counts, self._made_in(item), digest, done.signed))
        elif isinstance(item, Large):
            if not item.linked:
                where = item.root, item.path, [item.name]
                counts, entries = _of_one(done.counts), b"".join(done.runs)
                recorder.names(*where, counts, self._made_in(item), entries)
        elif isinstance(item, Links):
            self._name(item.one, done)
            # The first name's own record may be lost with its rank: this one must do alone.
            inode = item.one.place.file_system, item.inode
            self._inode(inode, item.first, item.made, item.seal)
        elif isinstance(item, First):
            self._name(item.one, done)
            if made is not None:
                inode = item.one.place.file_system, item.inode
                self._inode(inode, item.one, made, self._seal_of(done))

    def _name(self, one: One, done: Done) -> None:
        where = one.root, one.path, [one.name]
        counts, entries = _of_one(done.counts), b"".join(done.runs)
        self._recorder.names(*where, counts, self._made_in(one), entries)

    def _made_in(self, item: Tree | Large | One) -> int:
        return self._site.copy_inode(item.root, item.path)

    def _inode(self, inode: tuple[int, int], one: One, made: int, seal: bytes) -> None:
        key = self._recorder.keys.inode(*inode)
        self._recorder.add(Inode(key, one.root, one.path, one.name, made, seal))

    def _seal_of(self, done: Done) -> bytes:
        return b"" if self._site.signer is None else self._site.signer.seal_of(done)

    def abandon(self, item: Item, own: Any) -> None:
        value = own.value if isinstance(own, Own) else own
        # What there is of a large file is gone on with.
        if not isinstance(value, LargeFile):
            super().abandon(item, value)

    def finish(self) -> None:
        """Let go of the checkpoint's files: NFS keeps what is removed while a process has it."""
        super().finish()
        self._recorder.journal.close()
        for part in self.parts:
            if part._site.resumed is not None:
                part._site.resumed.let_go()

    # ---- epochs ----------------------------------------------------------------

    def commit(self, epoch: int) -> None:
        if self._kept is not None:
            self._kept.guard.check()
        self._recorder.journal.commit(epoch, self.measure().counts)
        super().commit(epoch)


def _less(after: Counts, before: Counts) -> Counts:
    return tuple(a - b for a, b in zip(after, before, strict=True))


def _of_one(counts: Counts) -> Counts:
    """Counts of one name as its directory's records have them: with its being found."""
    return (*counts[:FOUND], 1, *counts[FOUND + 1 :])


def _floor(item: Item) -> int:
    """The epoch before which nothing that the item does can count."""
    if isinstance(item, Links):
        return max(item.epoch, item.one.place.epoch)
    if isinstance(item, First):
        return item.one.place.epoch
    place: Place | None = None
    if isinstance(item, Tree):
        place = item.above
    elif isinstance(item, Batch | Portion | Large | One | Claim | Verify):
        place = item.place
    else:
        assert isinstance(item, Chunk | Singles | Reread)
    return 0 if place is None else place.epoch
