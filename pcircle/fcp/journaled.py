"""A copy that keeps a checkpoint: the same work, with a record of what was done.

Every result has an epoch (`pcircle.circle.epochs`) and its part of the job's
counts. A directory that is complete without a failure is one record, with the
time at which its copy was changed last. A resumed run passes it over as long
as nobody has changed that, at the cost of one `stat`; if there are directories
below, it goes on to these, so that what was changed far below is found. What of
a directory was done before has records of its own: the names of each batch, the
ranges of large files, names of inodes that have several.

What is done in a directory counts no sooner than the directory itself, and a
link no sooner than what it is a link to, wherever these were made: so an
item's epoch is the latest of its own end, its place's, and its children's.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec

from pcircle.checkpoint.journal import Counts, Inode, Subtree, add_counts
from pcircle.checkpoint.recorder import Recorder
from pcircle.checkpoint.resume import Kept
from pcircle.copying.settings import Stamp
from pcircle.fcp.counters import FAILED, FOUND, SPECIAL_SKIPPED, totals
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
    Skipped,
    Tree,
    Verify,
)
from pcircle.fcp.large import LargeFile
from pcircle.fcp.links import is_copy_of
from pcircle.fcp.plan import Plan
from pcircle.fcp.task import CopyTask, Forwarded
from pcircle.fs.lists import Lists
from pcircle.guards import require, require_that
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
        self._recorder: Recorder = require(self._site.recorder)
        self.epoch_period_s = min(require(plan.journal).interval_s, self.epoch_period_s or math.inf)

    def beside(self, number: int) -> JournaledCopy:
        site = self._site
        return JournaledCopy(site.plan, site.rank, site.size, None, self._lists, self, number)

    def process(self, item: Item, here: Here[Item]) -> Any:
        if isinstance(item, Tree) and (known := self._known(item)) is not None:
            if known.counts[SPECIAL_SKIPPED]:
                here.note([Skipped(item.path, "", item.root)])
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
        if not here.spawned and _is_own_work(item, began.value):
            self._record(item, done, merged)
        return msgspec.structs.replace(done, epoch=self._recorder.end(floor))

    def _known(self, item: Tree) -> Done | None:
        """The result of a directory that an earlier run has done, if there are none below it.

        Of others the directories below are looked at one by one: these may have been changed.
        """
        record = self._site.standing(item.root, item.path).record
        if record is None or totals(record.counts).directories > 1:
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

    def _record(self, item: Item, done: Done, merged: Done | None = None) -> None:
        """An item is complete: what it and its children came to is for the journal."""
        recorder = self._recorder
        if done.counts[FAILED] or done.cause is not None:
            return
        if isinstance(item, Tree):
            copy = self._site.copy_status(item.root, item.path)
            if copy is None:
                return
            recorder.begin()  # one record says it all
            key, digest = recorder.keys.directory(item.root, item.path), self._seal_of(done)[1:]
            made_there, changed_ns = copy.st_ino, copy.st_ctime_ns
            recorder.add(Subtree(key, done.counts, made_there, changed_ns, digest, done.signed))
        elif isinstance(item, Large):
            if not item.linked:
                where = item.root, item.path, [item.name]
                counts, entries = _of_one(done.counts), b"".join(done.runs)
                recorder.names(*where, counts, self._made_in(item), entries)
        elif isinstance(item, Links):
            self._name(item.one, done)
            # The first name's own record may be lost with its rank: this one must do alone.
            self._inode(item.first, item.made, item.copied, item.seal, item.one.place)
        elif isinstance(item, First):
            self._name(item.one, done)
            if merged is not None and is_copy_of(item.one, merged):
                found = require(merged.made), require(merged.copied), self._seal_of(done)
                self._inode(item.one, *found, item.one.place)

    def _name(self, one: One, done: Done) -> None:
        where = one.root, one.path, [one.name]
        counts, entries = _of_one(done.counts), b"".join(done.runs)
        self._recorder.names(*where, counts, self._made_in(one), entries)

    def _made_in(self, item: Large | One) -> int:
        return self._site.copy_mark(item.root, item.path)

    def _inode(self, one: One, made: int, copied: Stamp, seal: bytes, place: Place) -> None:
        key = self._recorder.keys.inode(place.file_system, copied.inode)
        where = one.root, one.path, one.name
        self._recorder.add(Inode(key, *where, made, copied.version, seal))

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


def _is_own_work(item: Item, own: Any) -> bool:
    """Whether an item's completion is where what it did is known, and is recorded once.

    Which inode is copied is known at its home alone; a name that was claimed anew, and a large file
    that was begun anew, have records by the items that did so.
    """
    if isinstance(item, First):
        return bool(own)
    if isinstance(item, Large):
        return isinstance(own, LargeFile)
    return not isinstance(own, Forwarded)


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
        require_that(isinstance(item, Chunk | Singles | Reread), "an item of an unknown place")
    return 0 if place is None else place.epoch
