"""The copy as a task of the runtime, with or without a checkpoint.

The walk finds entries (`pcircle.ops.copy.tree.visitor`). This module processes the items that the
walk spawns: large files and their chunks, names of hard-linked inodes, and copies to verify. The
result of such an item is added to that of the directory that owns its slot.

`JournaledCopy` keeps a checkpoint, a record of completed work. Every result carries an epoch
(`pcircle.circle.rounds`) and its share of the job's counts. A directory that is completed without a
failure becomes one record, which contains the change time of the copy. If the change time is still
the same, a resumed run skips a directory without subdirectories after opening the copy to read that
time. It enters other directories, so that changes deep in the tree are found. Completed parts of a
directory are recorded separately: the names of each batch, the ranges of large files, and the names
of hard-linked inodes.

Work in a directory counts no earlier than the directory itself, and a hard link no earlier than the
copy that it links to, whichever ranks created them. Therefore the epoch of an item is the latest
among that of its end, that of its directory, and those of its children.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

from pcircle.core.errors import require, require_type
from pcircle.ops.checkpoint.journal import Counts, InodeRecord, Recorder
from pcircle.ops.checkpoint.resume import CheckpointSession
from pcircle.ops.copy.entry.settings import Stamp
from pcircle.ops.copy.tree.counters import FOUND, CopyCounters, has_failed, named
from pcircle.ops.copy.tree.entries import EntryCopier
from pcircle.ops.copy.tree.items import (
    NOTHING,
    OF_FILE,
    ChunkVerification,
    CopyChunk,
    CopyPlan,
    CopyResult,
    FileVerification,
    FirstName,
    HardLinkedName,
    HardLinkItem,
    Item,
    LargeFileItem,
    LinkClaim,
    Notice,
    PartialResult,
    SingleRoots,
    scope_of,
)
from pcircle.ops.copy.tree.large_files import LargeFileCopier, LargeFileState
from pcircle.ops.copy.tree.links import HardLinks, copy_of
from pcircle.ops.copy.tree.selection import first_items
from pcircle.ops.copy.tree.visitor import CopyVisitor
from pcircle.ops.copy.tree.worker import LONGEST_WAIT_S, Worker
from pcircle.runtime import Context
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.walker import Walker, WalkTask

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.ops.copy.tree.verify import Verifier


class ForwardedResult(msgspec.Struct, frozen=True):
    """The result of an item whose work is done by another item, perhaps on another rank."""


class PendingResult(msgspec.Struct, frozen=True):
    """The state of an item that its join needs, and its result so far."""

    value: CopyResult | LargeFileState | ForwardedResult | bool
    part: PartialResult


ItemState: TypeAlias = "CopyResult | PendingResult | ForwardedResult | list[Open[PartialResult]]"
"""The result of an item, or the state that its join receives."""


class CopyTask(WalkTask[Item, CopyResult]):
    """One rank's share of a copy.

    Other tools subclass it with their own visitor and overwrite policy.
    """

    notice_type: ClassVar[object] = Notice
    visitor_type: ClassVar[type[CopyVisitor]] = CopyVisitor
    keeping: ClassVar[Any] = None
    sides = 2

    def __init__(
        self,
        plan: CopyPlan,
        rank: int,
        size: int,
        lists: Lists | None = None,
        beside: CopyTask | None = None,
        number: int = 0,
    ) -> None:
        """Create the task of a rank's first thread, or of thread `number` if `beside` is given."""
        super().__init__(rank, lists, threads_of(plan))
        first: Worker | None = None if beside is None else beside._worker
        links: HardLinks | None = None if beside is None else beside._links
        self._worker: Worker = Worker(plan, rank, size, first, number, type(self).keeping)
        self._links: HardLinks = HardLinks(self._worker, links)
        own = self._worker
        self._entries = EntryCopier(own, self._links)
        self._visitor = self.visitor_type(own, self._entries)
        self._visitor.lists = lists
        scope = scope_of(plan)
        sides = own.sides.sources, own.sides.targets
        self._walker: Walker[PartialResult] = Walker(
            self._visitor, scope, *sides, own.counters, rank, lists
        )
        self._large = LargeFileCopier(own)
        self._verifier: Verifier | None = None
        if self._worker.waiting is not None:
            from pcircle.ops.copy.tree.verify import Verifier  # few copies need it

            self._verifier = Verifier(own)
            self.epoch_period_s: float = LONGEST_WAIT_S

    def seed(self) -> Iterator[Item]:
        return first_items(self._worker.plan, self.lists, self._worker.counters)

    # ---- one item --------------------------------------------------------------

    def process(self, item: Item, context: Context[Item]) -> ItemState:
        if not isinstance(item, Tree | Batch | Portion):
            return self._other(item, context)
        walked = self.walked(item, context)
        if walked is None:
            return ForwardedResult()
        return walked if isinstance(walked, list) else self._walked(item, walked)

    def _walked(self, item: Tree | Batch | Portion, part: PartialResult) -> CopyResult:
        return CopyResult({item.slot: self._visitor.since(part)})

    def _other(self, item: Item, line: Context[Item]) -> CopyResult | PendingResult:
        """Process an item that is not part of the walk; its result belongs to its slot."""
        context: ItemContext[PartialResult] = ItemContext(line)
        self._visitor.begin(item, context)
        if self._worker.limits is not None:
            self._worker.limits.begin(item, context.is_stopping)
        value = self._work(item, context)
        part = self._worker.delta.take()
        done = None
        if isinstance(value, CopyResult):
            done = self._with_part(value, slot_of(item), part)
            if not (context.spawned or context.stopping):  # otherwise it may be incomplete
                self._record(item, done, None)
        self._visitor.end(context, ())
        if isinstance(item, LinkClaim):
            self._links.publish(self._visitor.since(NOTHING).epoch, context)
        context.flush()
        line.spawned += context.spawned
        if done is not None:
            return self._since(done)
        return PendingResult(value, self._visitor.since(part))

    def _work(
        self, item: Item, context: ItemContext[PartialResult]
    ) -> CopyResult | LargeFileState | ForwardedResult | bool:
        if isinstance(item, CopyChunk):
            return self._large.chunk(item, context)
        if isinstance(item, LargeFileItem):
            return self._large.begin(item, context)
        if isinstance(item, SingleRoots):
            self._entries.singles(item, context)
            return CopyResult()
        if isinstance(item, FileVerification | ChunkVerification):
            return require(self._verifier).verify(item, context)
        if isinstance(item, HardLinkedName):
            return require(self._links.one(item, context))
        if isinstance(item, LinkClaim):
            claimed = self._links.claim(item, context, self._record)
            self._visitor.reached(max((part.epoch for part in claimed.slots.values()), default=0))
            return claimed
        if isinstance(item, FirstName):
            return self._links.first(item, context)
        done = self._links.link(require_type(HardLinkItem, item), context)
        return ForwardedResult() if done is None else done

    # ---- completion of an item -------------------------------------------------

    def join(
        self, item: Item, own: ItemState, merged: CopyResult, context: Context[Item]
    ) -> CopyResult:
        if isinstance(own, ForwardedResult):
            return merged
        if isinstance(own, list):
            tree = require_type(Tree, item)
            return self._walked(tree, self._walker.join(own, merged.slots, context))
        self._visitor.begin(item, context)
        slot = slot_of(item)
        if isinstance(own, CopyResult):
            done = self.merge(own, merged)
            if isinstance(item, HardLinkedName) and done.cause is not None:
                done = replace(done, copy=None)  # there is no copy to link to
            value: object = own
        else:
            value = require_type(PendingResult, own).value
            done = self._completed(item, own, merged, context)
        done = self._with_part(done, slot, self._worker.delta.take())
        if not context.spawned and _is_own_work(item, value):
            self._record(item, done, merged)
        self._visitor.reached(max((part.epoch for part in done.slots.values()), default=0))
        self._visitor.end(context, ())
        return self._since(done)

    def _completed(
        self, item: Item, own: PendingResult, merged: CopyResult, context: Context[Item]
    ) -> CopyResult:
        """Complete an item that has stored state for its join."""
        slot = slot_of(item)
        if isinstance(own.value, LargeFileState):
            large = require_type(LargeFileItem, item)
            done = self._large.complete(large, own.value, merged, context)
            of_file = merged.slots.get(OF_FILE, NOTHING)
            part = PartialResult(of_file.counts, of_file.epoch)
            other_slots = {s: p for s, p in merged.slots.items() if s != OF_FILE}
            done = self.merge(done, CopyResult(other_slots))
            return self._with_part(done, slot, self._worker.delta.merge(own.part, part))
        if isinstance(own.value, ForwardedResult):
            return self._with_part(merged, slot, own.part)
        if isinstance(item, FirstName) and own.value:
            self._links.first_ended(item, merged, context)
        return self._with_part(CopyResult(merged.slots), slot, own.part)

    def _with_part(self, done: CopyResult, slot: int, part: PartialResult) -> CopyResult:
        """Return a result with `part` added to that of its directory."""
        if part is NOTHING:
            return done
        known = done.slots.get(slot, NOTHING)
        slots = {**done.slots, slot: self._worker.delta.merge(known, part)}
        return replace(done, slots=slots)

    def _since(self, done: CopyResult) -> CopyResult:
        """Return a result with the epoch from which it counts."""
        slots = {slot: self._visitor.since(part) for slot, part in done.slots.items()}
        return replace(done, slots=slots)

    def _record(self, item: Item, done: CopyResult, merged: CopyResult | None) -> None:
        """Record a complete item in the journal, if there is one."""

    def merge(self, a: CopyResult, b: CopyResult) -> CopyResult:
        slots = dict(a.slots)
        for slot, part in b.slots.items():
            slots[slot] = self._worker.delta.merge(slots.get(slot, NOTHING), part)
        return CopyResult(slots, a.cause or b.cause, b.copy or a.copy)

    def portable(self, result: CopyResult) -> CopyResult:
        portable = self._worker.delta.portable
        slots = {slot: portable(part) for slot, part in result.slots.items()}
        return replace(result, slots=slots)

    def abandon(self, item: Item, own: ItemState) -> None:
        value = own.value if isinstance(own, PendingResult) else own
        if isinstance(value, list):
            self._visitor.stopped(value)
        if isinstance(value, LargeFileState) and isinstance(item, LargeFileItem):
            self._large.abandon(item, value)

    # ---- epochs ----------------------------------------------------------------

    def seal(self, epoch: int) -> None:
        if self._worker.disk is not None:
            self._worker.disk.enter(epoch + 1)

    def sync(self, epoch: int) -> None:
        if self._worker.disk is not None:
            self._worker.disk.sync()

    def commit(self, epoch: int) -> None:
        if self._worker.waiting is not None:
            self._worker.waiting.commit(epoch)

    # ---- the rank --------------------------------------------------------------

    def close(self) -> None:
        """Close the directories and files of all threads."""
        self._links.close()
        for part in self.parts:
            part._worker.sides.close()
            keeper = part._worker.copier.names.keeper
            if keeper is not None:
                keeper.close()
            if part._worker.earlier is not None:
                part._worker.earlier.resumed.close()
        if self._worker.disk is not None:
            self._worker.disk.close()

    @property
    def counted(self) -> CopyCounters:
        return self._worker.counters

    def beside(self, number: int) -> CopyTask:
        own = self._worker
        return type(self)(own.plan, own.rank, own.size, self.lists, self, number)


def threads_of(plan: CopyPlan) -> int | None:
    """Return the number of worker threads of a rank, or None if the number is adaptive.

    A rate limit alone does not justify more than one thread. A polite copy uses one thread, because
    a thread rests only for its own work.
    """
    if plan.polite is not None:
        return 1
    limited = plan.bytes_per_s is not None or plan.operations_per_s is not None
    if limited and plan.threads is None:
        return 1
    return plan.threads


def slot_of(item: Item) -> int:
    """Return the slot to which the result of an item belongs."""
    if isinstance(item, CopyChunk | ChunkVerification):
        return OF_FILE
    if isinstance(item, FirstName | HardLinkItem):
        return item.one.slot
    if isinstance(item, LinkClaim | FileVerification):
        return item.groups[0].slot  # the result of such an item already contains all its slots
    return item.slot


def _is_own_work(item: Item, own: object) -> bool:
    """Return whether the join of an item has done the work itself and must record it.

    Only the home of an inode knows which name is copied. If a name is claimed again or a large file
    is started again, the new item records the result.
    """
    if isinstance(item, FirstName):
        return bool(own)
    if isinstance(item, LargeFileItem):
        return isinstance(own, LargeFileState)
    return not isinstance(own, ForwardedResult)


class JournaledCopy(CopyTask):
    """One rank's share of a copy that keeps a checkpoint."""

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
        self._late = 0  # commits up to this epoch are ignored
        self.epoch_period_s: float = min(
            require(plan.journal).interval_s, self.epoch_period_s or math.inf
        )

    def beside(self, number: int) -> JournaledCopy:
        own = self._worker
        return type(self)(own.plan, own.rank, own.size, None, self.lists, self, number)

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
            # The record of the first name may be lost with its rank, so this record must be
            # sufficient on its own.
            self._inode(item.first, item.made, item.copied, item.seal, item.one.place)
        elif isinstance(item, FirstName):
            self._name(item.one, part)
            copy = None if merged is None else copy_of(item.one, merged)
            if copy is not None:
                found = copy.made, copy.source, self._seal_of(part)
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
        """Keep an incomplete large file, so that a later run can resume it."""
        if isinstance(own, list):
            super().abandon(item, own)

    def finish(self) -> None:
        """Close the checkpoint's files, because NFS keeps removed files that are still open."""
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
                return  # the job has ended, and its checkpoint may already be removed
            if self._session is not None:
                self._session.lock.check()
            self._recorder.journal.commit(epoch, named(self.measure().counts))
        super().commit(epoch)


def _of_one(counts: Counts) -> Counts:
    """Return the counts of one name for its record, which counts it as found."""
    return (*counts[:FOUND], 1, *counts[FOUND + 1 :])
