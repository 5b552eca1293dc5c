"""The objects of one worker thread of a copy, built from the plan.

Each object knows only the objects that are passed to it here. Classes that process entries take
these objects from a `Worker`, most of them by deriving from `WorkerPart`. The threads of a rank
share the journal, the epochs, the limits and the waiting copies.

`WaitingCopies` holds copies until they are on disk and can be verified. An item whose copies will
be verified is held (`Context.hold`) with its epoch. When the epoch is committed, the item is
resumed with a new item, which reads the copies back on any rank. One sync serves all waiting
copies. Epochs are short, so usually only the work of a few seconds is waiting.

`ItemLimits` defines the costs of items for `--bwlimit` and `--ops-limit`; see
`pcircle.ops.copy.entry.observers`.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from pcircle.core.errors import NoSpace
from pcircle.fs.directories import HOLDER
from pcircle.fs.entry_errors import errno_and_reason, error_context, kind_of, tried
from pcircle.fs.file_system import is_read_only
from pcircle.jobs.failures import Failure, FailureReporter, NoticeSink, stop_reason
from pcircle.ops.checkpoint.file_system_sync import FileSystemSync
from pcircle.ops.checkpoint.journal import Counts, Recorder
from pcircle.ops.checkpoint.previous_records import PreviousRecords
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.files import Copier
from pcircle.ops.copy.entry.observers import RateLimits, SigningObserver
from pcircle.ops.copy.entry.overwrite import DestinationExistsError, OverwritePolicy
from pcircle.ops.copy.entry.target import FULL, TargetFullError, TemporaryNames
from pcircle.ops.copy.tree.counters import CopyActionLog, CopyCounters, CounterDelta
from pcircle.ops.copy.tree.directory import Sides
from pcircle.ops.copy.tree.items import (
    DIRECTORY,
    ChunkVerification,
    CopiedFiles,
    CopyChunk,
    CopyPlan,
    CopyResult,
    FileVerification,
    HardLinkItem,
    Item,
    LargeFileItem,
)
from pcircle.ops.copy.tree.resume import PreviousRun
from pcircle.ops.copy.tree.selection import siblings_of
from pcircle.runtime import Context
from pcircle.walk.items import DirectoryIdentity
from pcircle.walk.visitor import Where

if TYPE_CHECKING:
    from pcircle.ops.copy.entry.content_hash import HashObserver
    from pcircle.ops.digest import Signer


LONGEST_WAIT_S = 2.0
"""The period of the rounds that end epochs; idle ranks end an epoch sooner."""


class ItemLimits(RateLimits):
    """One rank's share of the limits of a copy, with the costs of its items."""

    def begin(self, item: Item, stop: Callable[[], bool]) -> None:
        """Wait until the limits allow an item to start; the names in a batch wait one by one."""
        self.start(stop)
        if isinstance(item, CopyChunk):
            self.operations(2)
        elif isinstance(item, HardLinkItem):
            self.operations(self.entry)
        elif isinstance(item, LargeFileItem):
            self.operations(self.entry + 2)  # one more lookup, and a rename


def limits_of(plan: CopyPlan, size: int) -> ItemLimits | None:
    """Return a rank's share of the limits, or None if there are none."""
    limits = plan.bytes_per_s, plan.operations_per_s
    if limits == (None, None) and plan.polite is None:
        return None
    return ItemLimits(plan, *limits, size, plan.polite)


class _Held:
    """The waiting items of one rank, with their epochs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committed = 0
        self._held: list[tuple[int, Item, Context[Item]]] = []

    def add(self, epoch: int, item: Item, context: Context[Item]) -> None:
        """Hold an item until this epoch is committed."""
        context.hold(epoch)
        with self._lock:
            if epoch > self._committed:
                self._held.append((epoch, item, context))
                return
        context.resume(context.ticket, [item], CopyResult(), epoch)

    def commit(self, epoch: int) -> None:
        """Resume the items of this epoch and of earlier epochs."""
        with self._lock:
            self._committed = epoch
            ready = [held for held in self._held if held[0] <= epoch]
            self._held = [held for held in self._held if held[0] > epoch]
        for of, item, context in ready:
            context.resume(context.ticket, [item], CopyResult(), of)


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
    ) -> CopiedFiles | None:
        """Return the files to verify among completed names, or None if there are none.

        `counts`, if given, and `entries` are recorded with the names after verification.
        """
        seen = self._hasher.take()
        files = [name for name in names if name in seen]
        if not files:
            return None
        found = [seen[name] for name in files]
        return CopiedFiles(
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

    def hold(self, copied: Sequence[CopiedFiles], context: Context[Item]) -> None:
        """Hold the copies of the item until they are on disk."""
        self._held.add(self._disk.epoch, FileVerification(tuple(copied)), context)

    def part(self, chunk: CopyChunk, reached: int, blocks: bytes, context: Context[Item]) -> None:
        """Hold the copied part of a chunk, which ends at `reached`."""
        length = reached - chunk.offset
        part = msgspec.structs.replace(chunk, length=length, weight=0.0)
        self._held.add(
            self._disk.epoch, ChunkVerification(part, self._hasher.digest, blocks), context
        )

    def commit(self, epoch: int) -> None:
        """Resume all items up to this epoch; this is called on another thread."""
        self._held.commit(epoch)


class CopyAccounts(FailureReporter):
    """Counts and reports the failures of one worker thread."""

    def __init__(
        self, plan: CopyPlan, counters: CopyCounters, acting: CopyActionLog | None
    ) -> None:
        super().__init__(counters)
        self._plan = plan
        self._acting = acting

    def fail(
        self,
        root: int,
        path: bytes,
        doing: str | None,
        error: OSError,
        context: NoticeSink,
        *,
        sized: bool = False,
    ) -> None:
        super().fail(root, path, doing, error, context, sized=sized)
        self.stop_if_full(root, error)

    def stop_if_full(self, root: int, error: OSError) -> None:
        """Raise NoSpace if the error of a failed entry means that nothing more can be copied."""
        if error.errno not in FULL:
            return
        target = self._plan.roots[root]
        path = os.path.join(self._plan.directory, target.target_holder, target.target_name)
        read_only = error.errno == errno.EROFS and is_read_only(path)
        if read_only or isinstance(error, TargetFullError):
            raise NoSpace(stop_reason(target.target_shown, error))

    def tell(self, failure: Failure, context: NoticeSink) -> None:
        if self._acting is not None:
            self._acting.failed(failure)
        super().tell(failure, context)

    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        entry = path if self._plan.roots[root].kind == DIRECTORY else b""
        doing = doing or tried(error, "copy")
        shown = self._plan.shown(root, path)
        return Failure(shown, doing, *errno_and_reason(error), root, entry, kind_of(error))


Keeping: TypeAlias = "Callable[[Any, CopyCounters, AttributeCopier], OverwritePolicy]"
"""Creates the overwrite policy of one thread."""


class Worker:
    """The objects of worker thread `number` on rank `rank` of `size` ranks.

    Objects that the options do not require are None: `recorder` is for a checkpoint, `disk` for a
    checkpoint or --verify, `waiting` for --verify, `earlier` for --resume, `signer` for -s,
    `limits` for rate limits, and `acting` for --json-lines.
    """

    def __init__(
        self,
        plan: CopyPlan,
        rank: int,
        size: int,
        first: Worker | None = None,
        number: int = 0,
        keeping: Keeping | None = None,
    ) -> None:
        """Create the worker of a rank's first thread, or of thread `number` if `first` is given."""
        self.plan: CopyPlan = plan
        self.rank: int = rank
        self.size: int = size
        self.number: int = number
        self.counters: CopyCounters = CopyCounters()
        self.recorder: Recorder | None
        self.disk: FileSystemSync | None
        self.recorder, self.disk = _journal(plan, rank, size, first)
        opened = None if self.disk is None else self.disk.add_directory
        self.sides: Sides = Sides(plan, opened, is_first=first is None)
        self.limits: ItemLimits | None = limits_of(plan, size) if first is None else first.limits
        self.signer: Signer | None = None
        if plan.sign is not None:
            from pcircle.ops.digest import Signer  # few copies are signed

            self.signer = Signer(plan.sign, HOLDER, first=None if first is None else first.signer)
        hasher: HashObserver | None = None
        if plan.verify:
            from pcircle.ops.copy.entry.content_hash import HashObserver  # few copies are verified

            hasher = HashObserver()
        self.acting: CopyActionLog | None = None
        if plan.acts.any:
            before = None if first is None else first.acting
            shown = [root.source_shown for root in plan.roots]
            self.acting = CopyActionLog(plan.tool, plan.acts, rank, before, shown=shown)
        # The number makes temporary names unique among all threads of all ranks.
        temporary = TemporaryNames(plan, rank + size * number, siblings_of(plan))
        self.extras: AttributeCopier = AttributeCopier(plan.keep, self.counters, temporary)
        if keeping is not None:
            temporary.keeper = keeping(plan, self.counters, self.extras)
        signing = None if self.signer is None else SigningObserver(self.signer)
        optional = (hasher, signing, self.limits, self.acting)
        observers = [observer for observer in optional if observer is not None]
        self.copier: Copier = Copier(plan, self.counters, self.extras, observers)
        self.accounts: CopyAccounts = CopyAccounts(plan, self.counters, self.acting)
        counted = self.recorder is not None
        self.delta: CounterDelta = CounterDelta(self.counters, self.signer, counted=counted)
        self.waiting: WaitingCopies | None = None
        if self.disk is not None and hasher is not None:
            of_first = None if first is None else first.waiting
            self.waiting = WaitingCopies(self.disk, hasher, of_first)
        self.earlier: PreviousRun | None = None
        if plan.journal is not None and self.recorder is not None and plan.journal.stale:
            records = PreviousRecords(plan.journal, self.recorder.keys)
            self.earlier = PreviousRun(plan, records, self.sides, self.signer)

    def enter(self, root: int, path: bytes, place: DirectoryIdentity, target_fd: int) -> None:
        """Set the directory of the following entries; its copy is open as `target_fd`."""
        self.extras.enter(target_fd, bare=place.bare)
        self.enter_names(root, path, made=place.made)

    def enter_names(self, root: int, path: bytes, *, made: bool) -> None:
        """Set the directory of the following names; `made` means that this run created its copy."""
        names = self.copier.names
        names.collisions.enter(self.sides.sources, root, path, made=made)
        self.copier.context.effects.place = root, path
        if names.keeper is not None:
            names.keeper.enter(root, path)
        if self.acting is not None:
            self.acting.at(root, path)

    def copy_special(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = True
    ) -> os.stat_result | None:
        """Copy and count a special file; see `special_files.copy_special`."""
        from pcircle.ops.copy.entry.special_files import copy_special  # rarely needed

        names = (source_fd, source, target_fd, name)
        self.copier.context.observers.attempt(0)
        try:
            status = copy_special(self.copier.context, names, claimed=claimed)
        except DestinationExistsError:
            self.copier.skip(target_fd, name)
            return None
        if status is None:
            if self.signer is not None:
                with error_context("read the existing copy of"):
                    made = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
                self.signer.seal_node(made.st_mode, made.st_rdev)
            self.counters.special += 1
            self.counters.sized += 1
            if self.acting is not None:
                self.acting.special(target_fd, name)
        return status


class WorkerPart:
    """The base class of the parts of a copy on one worker thread; holds the `Worker`'s objects."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._plan = worker.plan
        self._rank, self._size = worker.rank, worker.size
        self._sides = worker.sides
        self._counters = worker.counters
        self._accounts = worker.accounts
        self._delta = worker.delta
        self._extras = worker.extras
        self._copier = worker.copier
        self._signer = worker.signer
        self._limits = worker.limits
        self._disk = worker.disk
        self._recorder = worker.recorder
        self._waiting = worker.waiting
        self._earlier = worker.earlier
        self._acting = worker.acting


def _journal(
    plan: CopyPlan, rank: int, size: int, first: Worker | None
) -> tuple[Recorder | None, FileSystemSync | None]:
    """Return the recorder and the object that syncs files, each None if not required."""
    if plan.journal is not None:
        beside = None if first is None else first.recorder
        recorder = Recorder(plan.journal, rank, size, beside, plan.token)
        return recorder, recorder
    disk = None if first is None else first.disk
    return None, FileSystemSync(disk, plan.token) if plan.verify else None
