"""The visitor of a copy, which creates, fills and completes directories.

A directory of the target is created when its source is opened. `pcircle.ops.copy.tree.entries` then
copies its entries other than directories. The attributes of a directory are set after all its
entries are complete. If there is a checkpoint, a directory that is completed without a failure
becomes one record; in other directories the completed names are recorded. Records are written at
the end of the item, with the latest epoch of anything that the item has touched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from pcircle.fs.attributes.exposure import withdraw
from pcircle.fs.attributes.metadata import settle_file, settle_searched
from pcircle.fs.attributes.xattrs import FORBIDDING, read_flags
from pcircle.fs.directories import HOLDER, NO_LEASE, Lease, join_path
from pcircle.fs.entry_errors import LOOP, Changed, EntryError, error_context, set_operation, tried
from pcircle.fs.naming import sync_directory
from pcircle.fs.scan import Block, DirectoryBatch
from pcircle.fs.write_access import WriteAccess
from pcircle.jobs.failures import report_effects
from pcircle.ops.checkpoint import previous_records
from pcircle.ops.checkpoint.journal import Counts, Recorder, SubtreeRecord
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import path_of
from pcircle.ops.copy.tree.counters import DIRECTORIES, FAILED, between, has_failed, named, totals
from pcircle.ops.copy.tree.directory import DirectoryComparison, TargetDirectory
from pcircle.ops.copy.tree.entries import EntryCopier
from pcircle.ops.copy.tree.items import (
    NOTHING,
    CopyPlan,
    Item,
    PartialResult,
    SkippedSpecial,
    floor_of,
)
from pcircle.ops.copy.tree.resume import open_again, sweep, sweep_all
from pcircle.ops.copy.tree.selection import ancestors_of, below, refuse_cycle
from pcircle.ops.copy.tree.small_directories import (
    SCAN,
    PartialDirectory,
    is_to_be_opened,
    made_with,
    small_directories,
)
from pcircle.ops.copy.tree.worker import Worker, WorkerPart
from pcircle.runtime import Context
from pcircle.walk.items import DirectoryIdentity, Tree
from pcircle.walk.open_directory import ItemContext, Open, child_of
from pcircle.walk.visitor import Names, Visitor, Where
from pcircle.walk.walker import device, release

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.walk.visitor import DirectoryScan


class CopyVisitor(WorkerPart, Visitor[PartialResult]):
    """Creates, fills and completes directories for one worker thread."""

    nothing: ClassVar[PartialResult] = NOTHING
    lists: Lists | None = None  # on rank 0

    def __init__(self, worker: Worker, entries: EntryCopier) -> None:
        super().__init__(worker)
        self._differing = DirectoryComparison(worker.plan.keep, worker.extras)
        self._entries = entries
        self._counted = False  # whether the current directory is already counted as read
        self._in_place = False  # whether directories are completed by the item that read them
        self._began: Counts = ()  # counts at the start of the item
        # The earlier record of the current directory.
        self._standing = previous_records.RecordedDirectory()
        self._floor = 0  # latest epoch of anything that the item has touched
        self._small = small_directories(worker)
        self.scan: DirectoryScan | None = None if self._small is None else SCAN
        self._access = self.access_of(worker.plan)

    @staticmethod
    def access_of(plan: CopyPlan) -> WriteAccess:
        """Return which protections of existing directories the run may remove temporarily.

        As with cp, existing modes are respected, unless the modes of the source replace them or an
        earlier copy created the directories.
        """
        return WriteAccess(owner=plan.keep.mode or plan.retries)

    # ---- items -----------------------------------------------------------------

    def begin(self, item: Item, context: Context[Item]) -> None:
        self._floor = floor_of(item)
        self._in_place = isinstance(item, Tree)
        self._began = self._begin(context)

    def resume(self, base: Open[PartialResult], context: Context[Item]) -> None:
        self._floor = base.own or 0
        self._in_place = False
        self._begin(context)

    def _begin(self, context: Context[Item]) -> Counts:
        """Start an item, discard leftovers of the previous one, and return the counts so far."""
        self._copier.context.is_stopping = context.is_stopping
        report_effects(self._copier.context.effects, self._plan.shown, context)
        if self._limits is not None:
            self._limits.start(context.is_stopping)
        if self._waiting is not None:
            self._waiting.begin()
        if self._recorder is not None:
            self._recorder.begin_item()
        return self._delta.begin()

    def send_reports(self, context: Context[Item]) -> None:
        if self._acting is not None:
            self._acting.actions.tell(context)

    def end(self, context: Context[Item], opens: Sequence[Open[PartialResult]]) -> None:
        """Record completed work, claim hard-linked names, and hold copies to be verified."""
        self._entries.end(context)
        if self._limits is not None:
            self._limits.rest()
        self.send_reports(context)
        if opens and self._began:
            self._share(opens)
        recorder = self._recorder
        if recorder is not None:
            self._floor = recorder.end_item(self._floor)
        if opens:
            opens[0].own = self._floor

    def reached(self, epoch: int) -> None:
        """Raise the epoch of the item to at least `epoch`."""
        self._floor = max(self._floor, epoch)

    def stays(self, opened: Open[PartialResult]) -> None:
        opened.ended = self._delta.now()

    def _share(self, opens: Sequence[Open[PartialResult]]) -> None:
        """Give each directory that awaits completion the counts of its own entries.

        The counts of a directory include those of subdirectories that the same item completed.
        """
        opens[0].began, opens[0].ended = self._began, self._delta.now()
        counts = [between(opened.began, opened.ended) for opened in opens]
        own = list(counts)
        for opened, all_below in zip(opens[1:], counts[1:], strict=True):
            above = opened.above.slot
            own[above] = between(all_below, own[above])
        for opened, share in zip(opens, own, strict=True):
            opened.part = self.merge(opened.part, PartialResult(share))

    def since(self, part: PartialResult) -> PartialResult:
        """Return the result of an item that has just ended, with the epoch of the item."""
        if self._recorder is None or part.epoch >= self._floor:
            return part
        return replace(part, epoch=self._floor)

    def taken(self) -> PartialResult:
        delta = self._delta
        return delta.signed() if self._in_place else delta.take()

    def merge(self, a: PartialResult, b: PartialResult) -> PartialResult:
        return self._delta.merge(a, b)

    # ---- entering --------------------------------------------------------------

    def known(self, opened: Open[PartialResult], context: Context[Item]) -> PartialResult | None:
        """Return an earlier run's result for a complete directory without subdirectories, or None.

        Other directories are entered, because their subdirectories may have changed.
        """
        self._counted = False
        opened.began = self._delta.now()
        if self._earlier is None:
            return None
        self._standing = self._earlier.standing(opened.root, opened.path)
        record = self._standing.record
        if record is None or totals(record.counts).directories > 1:
            return None
        part = NOTHING
        signer = self._signer
        if signer is not None:
            if not signer.is_digest(record.digest):
                return None
            runs = (signer.pack_directory(opened.root, opened.path, record.digest),)
            part = PartialResult(runs=runs, signed=record.signed)
        self._counters.resume(record.counts)
        if totals(record.counts).special_skipped:
            context.note([SkippedSpecial(opened.path, "", opened.root)])
        return part

    def select_directories(
        self, above: Open[PartialResult], names: list[bytes], context: ItemContext[PartialResult]
    ) -> tuple[list[bytes], list[bytes]]:
        """Select directories that may be new, if small directories are copied in batches."""
        return ([], names) if self._small is None else self._small.select(above, names)

    def process_directories(
        self, above: Open[PartialResult], batch: DirectoryBatch, context: ItemContext[PartialResult]
    ) -> list[bytes]:
        """Copy small directories in a batch; return the names that are left to the walk."""
        if self._small is None:
            return batch.names
        return self._small.copy(above, batch, partial(self._go_on, above, context))

    def _go_on(
        self,
        above: Open[PartialResult],
        context: ItemContext[PartialResult],
        name: bytes,
        begun: PartialDirectory | OSError,
    ) -> None:
        """Continue with a small directory that proved not to be plain, as the walk would."""
        opened = child_of(above, name, len(context.opens), NOTHING)
        context.opens.append(opened)
        opened.began = self._delta.now()
        try:
            if isinstance(begun, OSError):
                self._begin_directory()
                set_operation(begun, "create the copy of directory")
                opened.failed = True
                self._counters.weight += above.weight
                self.failed(opened, begun, context)
            else:
                opened.leases = begun.leases
                self._copy_rest(above, opened, begun, context)
        except BaseException:  # which ends the job
            release(opened)
            raise
        context.complete(opened)

    def _copy_rest(
        self,
        above: Open[PartialResult],
        opened: Open[PartialResult],
        begun: PartialDirectory,
        context: ItemContext[PartialResult],
    ) -> None:
        source, made = begun.leases
        bare = self._extras.any
        opened.own = TargetDirectory(source.opened.status, made.identity, created=True, bare=bare)
        opened.place = self._place(opened, source, made, above, made=True)
        self.reached(opened.place.epoch)
        opened.weight = above.weight / max(1, len(begun.names))
        self._entries.are_copied(opened, begun, context)
        self._begin_directory()
        self._counters.found += len(begun.names)
        self._counters.weight += 0.0 if begun.names else above.weight
        self._entries.go_on(opened, begun, context)

    def enter(
        self, opened: Open[PartialResult], source: Lease, holder: Open[PartialResult] | None
    ) -> Lease | None:
        """Create or open the directory in the target."""
        self._begin_directory()
        doing = "open directory"
        try:
            if holder is not None:
                self._refuse(opened, source, holder)
            doing = "create the copy of directory"
            return self._enter(opened, source, holder)
        except OSError as error:
            set_operation(error, doing)
            raise

    def _enter(
        self, opened: Open[PartialResult], source: Lease, holder: Open[PartialResult] | None
    ) -> Lease:
        status = source.opened.status
        if holder is None:
            created = self._make_root(opened, status)
            self._mark(opened.root)
            target_side = self._sides.targets.lease(opened.root, opened.path)
        else:
            above = holder.leases[1]
            name = opened.path.rpartition(b"/")[2]
            try:
                created = self._make_in(opened, status, name, above.fd, holder)
            except PermissionError as error:
                if not self._is_admitted(above.fd, error):
                    raise
                created = self._make_in(opened, status, name, above.fd, holder)
            target_side = self._sides.targets.lease_below(above, name)
        obstacle = None
        try:
            if not created and self._access.any:
                obstacle = self._access.obstacle(target_side.fd, target_side.opened.status)
                if target_side.searched and obstacle is not None:
                    target_side = self._readable(opened, holder, target_side)
            own = self._between(source.fd, status, target_side, holder, created=created)
            if not created:
                own = self._take_up(opened, target_side, own)
                own = replace(own, differs=self._differs(own, target_side))
            self._itemize(opened, source, None if own.created else target_side)
            if not created and self._withdraw(own, target_side):
                own = replace(own, differs=True)
            opened.own = own = replace(own, obstacle=obstacle)
            opened.place = self._place(opened, source, target_side, holder, made=created)
            self.reached(opened.place.epoch)
            if self._plan.follow:
                opened.ancestors = below(ancestors_of(holder), opened.place)
        except BaseException:
            if obstacle is not None:
                with suppress(OSError):
                    obstacle.restore(target_side.fd)
            target_side.end()
            raise
        return target_side

    def _is_admitted(self, target_fd: int, error: OSError) -> bool:
        """Remove the protection that prevented a change; return whether that succeeded."""
        return self._access.may_have_caused(error) and self._access.admit(target_fd) is not None

    def _readable(
        self, opened: Open[PartialResult], holder: Open[PartialResult] | None, lease: Lease
    ) -> Lease:
        """Lease a directory again after its mode was changed to allow reading. Raises OSError.

        The new lease keeps the status from before the change.
        """
        if self._access.admit(lease.fd) is None:
            return lease
        status, targets = lease.opened.status, self._sides.targets
        if holder is None:
            targets.forget(opened.root, opened.path)
            again = targets.lease(opened.root, opened.path, lease.identity)
        else:
            name = opened.path.rpartition(b"/")[2]
            again = targets.lease_below(holder.leases[1], name)
            if again.identity != lease.identity:
                again.end()
                raise Changed("the directory was replaced by another one")
        again.opened.status = status
        lease.end()
        return again

    def _admit(self, where: Where, target_fd: int) -> None:
        """Lift the protections of a directory until all its entries are complete."""
        if self._access.any and not where.place.made:
            self._access.admit(target_fd)

    def _mark(self, root: int) -> None:
        """Mark the target of a root before the first records that refer to it."""
        self._sides.leave_mark(root)

    def _begin_directory(self) -> None:
        self._counted = True
        self._counters.scans_done += 1
        self._counters.sized += 1
        if self._limits is not None:
            self._limits.operations(self._limits.entry)

    def _refuse(
        self, opened: Open[PartialResult], source: Lease, holder: Open[PartialResult]
    ) -> None:
        """Raise EntryError if the directory is the copy itself, or would close a cycle of links."""
        if source.identity == holder.place.copy:
            raise EntryError(LOOP, "it is the copy being made")
        if self._plan.follow:
            where = opened.root, opened.path, ancestors_of(holder)
            refuse_cycle(where, source, self._sides.sources, self._sides.targets)

    def _between(
        self,
        source_fd: int,
        status: os.stat_result,
        lease: Lease,
        holder: Open[PartialResult] | None,
        *,
        created: bool,
    ) -> TargetDirectory:
        extras = self._extras
        layout = self._copier.layouts.directory_layout(source_fd)
        if not extras.any:
            return TargetDirectory(status, lease.identity, created, layout=layout)
        bare = holder is not None and holder.place.bare
        inherited = created and extras.made_directory(lease.fd, bare=bare)
        try:
            held = extras.read_directory(source_fd, alone=inherited or not created)
        except OSError as error:
            set_operation(error, "read the attributes of")
            raise
        bare = created and not inherited
        return TargetDirectory(status, lease.identity, created, held, layout=layout, bare=bare)

    def _differs(self, own: TargetDirectory, lease: Lease) -> bool:
        """Return whether the attributes of an existing directory will change."""
        return self._differing.of(own.source, own.held, lease)

    def _itemize(self, opened: Open[PartialResult], source: Lease, lease: Lease | None) -> None:
        """Report how a directory differs from its copy; `lease` is None if that was just created.

        This is called before permissions of an existing copy are withdrawn. Raises OSError.
        """

    def _withdraw(self, own: TargetDirectory, lease: Lease) -> bool:
        """Withdraw permissions that the source does not grant, before a directory is filled.

        Return whether anything was changed.
        """
        if own.quiet or not self._plan.keep.mode:
            return False
        target = path_of(lease.fd) if lease.searched else lease.fd
        try:
            return withdraw(target, own.source, self._plan.keep, own.held)
        except PermissionError as error:
            is_admitted = self._is_admitted(lease.fd, error)
        with suppress(PermissionError):  # another user owns it; setting attributes will report that
            return is_admitted and withdraw(target, own.source, self._plan.keep, own.held)
        return False

    def _make_root(self, opened: Open[PartialResult], status: os.stat_result) -> bool:
        """Create the copy of a root; return False if the name already exists."""
        root = self._plan.roots[opened.root]
        if not root.target_name:
            return False
        with self._sides.targets.lease(opened.root, HOLDER) as lease:
            return self._make_in(opened, status, root.target_name, lease.fd, None)

    def _make_in(
        self,
        opened: Open[PartialResult],
        status: os.stat_result,
        name: bytes,
        holder_fd: int,
        holder: Open[PartialResult] | None,
    ) -> bool:
        """Create the target directory; return False if the name already exists."""
        mode = made_with(status.st_mode, self._plan.umask, closed=self._plan.keep.mode)
        if self._recorder is not None and is_to_be_opened(
            self._plan.keep.status(status).st_mode, self._plan.umask
        ):
            self._announce(self._recorder, opened, name, holder_fd)
        try:
            os.mkdir(name, mode, dir_fd=holder_fd)
        except FileExistsError:
            self._is_there(opened, name, holder_fd, holder)
            return False
        except OSError as error:
            target.stop_if_full(error, holder_fd, self._copier.names)
            raise
        return True

    def _is_there(
        self,
        opened: Open[PartialResult],
        name: bytes,
        holder_fd: int,
        holder: Open[PartialResult] | None,
    ) -> None:
        """Accept an existing directory. Raises CollisionError if it is the copy of another name."""
        made = holder is not None and holder.place.made
        where = opened.root, HOLDER if holder is None else holder.path
        self._worker.enter_names(*where, made=made)
        self._copier.names.collisions.check(holder_fd, name)
        if self._earlier is not None and self._is_ours(holder_fd, name):
            # Other programs set the flags that the source lacks, so these flags are kept.
            source, _ = opened.leases
            flags = self._plan.keep.flags and bool(read_flags(source.fd) & FORBIDDING)
            open_again(holder_fd, name, flags=flags)

    def _place(
        self,
        opened: Open[PartialResult],
        source: Lease,
        lease: Lease,
        holder: Open[PartialResult] | None,
        *,
        made: bool,
    ) -> DirectoryIdentity:
        number = self._file_system(opened, source, holder)
        copy, epoch = lease.identity, 0 if self._disk is None else self._disk.epoch
        if holder is not None:
            above = holder.place
            copy, epoch = above.copy, max(epoch, above.epoch)
        bare = opened.own.bare
        return DirectoryIdentity(source.identity, lease.identity, copy, number, epoch, made, bare)

    def _file_system(
        self, opened: Open[PartialResult], source: Lease, holder: Open[PartialResult] | None
    ) -> int:
        """Return the number that the walk assigns to the file system of a directory."""
        if holder is None:
            return self._plan.roots[opened.root].file_system
        if not self._plan.keep.links:
            return 0  # the number is only needed for hard links
        above, _ = holder.leases
        if device(above) == device(source):
            return holder.place.file_system
        # The path of a mount point is the same on every node; its device number may differ.
        from zlib import crc32

        return crc32(b"%d %s" % (opened.root, opened.path))

    def _is_ours(self, holder_fd: int, name: bytes) -> bool:
        """Return whether an earlier run of this copy has changed an existing directory."""
        status = os.stat(name, dir_fd=holder_fd, follow_symlinks=False)
        return self._plan.is_ours(status)

    def _announce(
        self, recorder: Recorder, opened: Open[PartialResult], name: bytes, holder_fd: int
    ) -> None:
        """Record for later runs that this job creates a directory, unless it exists."""
        try:
            os.stat(name, dir_fd=holder_fd, follow_symlinks=False)
        except FileNotFoundError:
            recorder.add_created_directory(opened.root, opened.path)

    def _take_up(
        self, opened: Open[PartialResult], lease: Lease, own: TargetDirectory
    ) -> TargetDirectory:
        """Resume a directory of an earlier run after removing its stale temporary files."""
        earlier = self._earlier
        if earlier is None:
            return own
        where, standing = (opened.root, opened.path), self._standing
        partial = None
        if standing.record is not None:  # the entries that existed then are complete
            # A directory that lost attributes is completed again, so that they are counted again.
            if not totals(standing.record.counts).not_kept:
                own = replace(own, finished_ns=standing.record.changed)
            partial = earlier.partial(*where)
        elif not lease.searched:  # with search permission only, it cannot be listed
            begun, listing = sweep(earlier.resumed, *where, lease.fd)
            own = replace(own, begun=begun)
            partial = None if standing.modified else earlier.partial(*where, listing)
        if partial is not None:
            self._counters.resume(partial.counts)
        # An earlier run may have created the directory.
        return replace(own, created=earlier.resumed.is_created(*where), partial=partial)

    # ---- entries ---------------------------------------------------------------

    def meant(
        self, opened: Open[PartialResult], blocks: Iterable[Block], source: Lease
    ) -> Iterable[Block]:
        """Return the blocks without the checkpoint's directory and without completed names."""
        if self._plan.journal is not None:
            blocks = previous_records.exclude_checkpoint(blocks, source.fd, self._plan.journal.path)
        partial = None if opened.own is None else opened.own.partial
        if partial is None or self._recorder is None:
            return blocks
        return previous_records.exclude_completed(blocks, partial, self._recorder.keys)

    def divided(self, opened: Open[PartialResult], text: bytes) -> bytes:
        recorder = self._recorder
        if opened.own.partial is None or recorder is None:
            return text
        return previous_records.exclude_completed_from_list(text, opened.own.partial, recorder.keys)

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[PartialResult]
    ) -> None:
        self._admit(where, fds[1])
        self._entries.copy(where, names, fds, context)

    def unreached(self, where: Where, name: bytes, error: OSError, context: Context[Item]) -> None:
        self._accounts.fail(where.root, join_path(where.path, name), "reach", error, context)

    def failed(self, opened: Open[PartialResult], error: OSError, context: Context[Item]) -> None:
        if not self._counted:  # because its parent cannot be reached
            self._begin_directory()
        doing = tried(error, "open directory" if opened.own is None else "read directory")
        self._accounts.fail(opened.root, opened.path, doing, error, context, sized=True)

    # ---- leaving ---------------------------------------------------------------

    def stopped(self, opens: Sequence[Open[PartialResult]]) -> None:
        """Restore the protections of directories that stay incomplete."""
        for opened in reversed(opens[1:]):
            self._restore(opened)

    def _restore(self, opened: Open[PartialResult]) -> None:
        """Restore the protections of a directory, unless they have been changed since."""
        obstacle = getattr(opened.own, "obstacle", None)
        if obstacle is not None:
            where = opened.root, opened.path, opened.own.identity
            with suppress(OSError), self._sides.targets.lease(*where) as lease:
                obstacle.restore(lease.fd)

    def lost(self, opened: Open[PartialResult]) -> PartialResult:
        """Return the result of a failed directory; its signature entries are dropped."""
        self._restore(opened)
        if self._in_place:
            return NOTHING
        part = self.merge(opened.part, self.taken())
        self.reached(part.epoch)
        return replace(part, runs=(), spilled=(), signed=0)

    def leave(self, opened: Open[PartialResult], context: Context[Item]) -> PartialResult:
        """Complete a directory after its entries: set its attributes, sign and record it."""
        where = opened.root, opened.path
        try:
            self._finish(opened)
        except OSError as error:
            set_operation(error, "set the attributes of the copy of")
            self._accounts.fail(*where, None, error, context, sized=True)
            return self.lost(opened)
        self._counters.directories += 1
        part, signer = opened.part, self._signer
        if signer is not None:
            try:
                signed = signer.finish_directory(*where, NOTHING, part)
            except ValueError as twice:
                self._counters.directories -= 1
                why = Changed(str(twice))
                self._accounts.fail(*where, "sign directory", why, context, sized=True)
                return self.lost(opened)
            part = replace(signed, counts=part.counts, epoch=part.epoch)
        self._account(opened)
        recorder = self._recorder
        if recorder is None:
            return part
        if self._in_place:
            counts = between(opened.began, self._delta.now())
            if not counts[FAILED]:
                self._record(recorder, opened, part, counts)
            return part  # the counts of its parent include these
        part = self.merge(part, self.taken())
        self._floor = max(self._floor, part.epoch, opened.place.epoch)
        if not has_failed(part):
            self._record(recorder, opened, part, part.counts)
        return part

    def _account(self, opened: Open[PartialResult]) -> None:
        """Count and report a completed directory."""
        own, counters = opened.own, self._counters
        counters.directories_created += own.created
        counters.directories_touched += own.differs and not own.created
        if self._acting is not None:
            self._acting.directory(opened.root, opened.path, self._action(own))

    def _action(self, own: TargetDirectory) -> str:
        """Return the action of a completed directory for `--json-lines`."""
        return "copy"

    def _record(
        self, recorder: Recorder, opened: Open[PartialResult], part: PartialResult, counts: Counts
    ) -> None:
        """Write the record of a complete directory, for `known` in a later run."""
        copy: os.stat_result | None = None
        if opened.leases[1] is not NO_LEASE:
            with suppress(OSError):  # then the directory has no record
                copy = os.fstat(opened.leases[1].fd)
        else:
            copy = self._sides.copy_status(opened.root, opened.path, opened.own.identity)
        if copy is None:
            return
        if counts[DIRECTORIES] == 1:
            self._entries.forget(opened.root, opened.path)
        key = recorder.keys.directory(opened.root, opened.path)
        digest = b"" if self._signer is None else self._signer.digest_of(part)
        recorder.add(
            SubtreeRecord(key, named(counts), copy.st_ino, copy.st_ctime_ns, digest, part.signed)
        )

    def _finish(self, opened: Open[PartialResult]) -> None:
        """Set the attributes of a directory, and sync it if requested. Raises OSError."""
        own = opened.own
        keep = self._plan.keep
        missing = is_to_be_opened(own.source.st_mode, self._plan.umask) if own.created else 0
        sync = self._plan.existing.sync
        any_attribute = keep.mode or keep.any
        own_work = any_attribute or missing or sync or own.begun or own.layout is not None
        if not (own_work or own.finished_ns or own.obstacle):
            return
        if opened.leases[1] is not NO_LEASE:
            self._finish_open(opened, opened.leases[1], missing)
        else:
            with self._sides.targets.lease(opened.root, opened.path, own.identity) as lease:
                self._finish_open(opened, lease, missing)
        if own.obstacle is not None and not self._is_settled(opened):
            self._restore(opened)

    def _is_settled(self, opened: Open[PartialResult]) -> bool:
        """Return whether completion has set the directory's final mode and flags."""
        return self._plan.keep.mode

    def _finish_open(self, opened: Open[PartialResult], lease: Lease, missing: int) -> None:
        own = opened.own
        if own.finished_ns and os.fstat(lease.fd).st_ctime_ns == own.finished_ns:
            self._counters.resumed += 1
            return  # complete since an earlier run, and unchanged
        if own.begun and self._earlier is not None:
            sweep_all(self._earlier.resumed, lease.fd)
        if own.layout is not None:
            self._copier.layouts.set_directory_layout(lease, own.layout)
        self._settle(lease, own)
        if missing and not self._plan.keep.mode:
            os.fchmod(lease.fd, stat.S_IMODE(os.fstat(lease.fd).st_mode) & ~missing)
        if own.held is not None:
            self._extras.protect(lease.fd, own.held)
        if self._plan.existing.sync:
            with error_context("flush the copy of"):
                sync_directory(lease.fd, searched=lease.searched)
                if not opened.path and own.created:
                    with self._sides.targets.lease(opened.root, HOLDER) as holder:
                        self._sides.sync_holder(HOLDER, holder)

    def _settle(self, lease: Lease, own: TargetDirectory) -> None:
        keep = self._plan.keep
        if lease.searched and own.held is None:
            settle_searched(lease.fd, own.source, keep)
            return
        target_fd = path_of(lease.fd) if lease.searched else lease.fd
        refused = settle_file(target_fd, own.source, keep, own.held)
        if refused:
            try:
                self._extras.account(refused, lease.fd)
            finally:
                if keep.timestamps:  # a probe for free space may have changed them
                    times = own.source.st_atime_ns, own.source.st_mtime_ns
                    os.utime(target_fd, ns=times)
