"""The copy job of a mirror: fcp's task with another overwrite policy and visitor.

`MirrorVisitor` adds a comparison with the target to the visitor of a copy. The files of an existing
directory are looked up in batches on both sides. Files that are up to date, usually almost all of
them, are only counted. The remaining files are copied as in fcp, except that
`MirrorOverwritePolicy` decides how existing entries are treated.

`ApplyVisitor` mirrors the entries of a plan for `--apply`, and checks both sides before each
action. If an entry has changed on either side, it is left unchanged and reported as a failure.
Entries that an interrupted run has completed count as done, so the same plan can be applied again.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from pcircle.core.encoding import to_scan
from pcircle.core.errors import require_type
from pcircle.fs.attributes.xattrs import drop_attributes
from pcircle.fs.directories import CLOSED, Lease, join_path
from pcircle.fs.entry_errors import Changed, error_context, set_operation, tried
from pcircle.fs.file_system import is_pseudo
from pcircle.fs.scan import Block, rewound
from pcircle.fs.stats import CAPACITY, divide
from pcircle.fs.write_access import WriteAccess
from pcircle.jobs.failures import report_effects
from pcircle.jobs.plan_file import mark_in, mark_of, sorted_by_kind, split_mark
from pcircle.ops.compare import fields
from pcircle.ops.copy.tree.directory import TargetDirectory
from pcircle.ops.copy.tree.entries import EntryCopier
from pcircle.ops.copy.tree.items import CopyPlan, Item, Notice, PartialResult, scope_of
from pcircle.ops.copy.tree.small_directories import SCAN, made_with
from pcircle.ops.copy.tree.task import CopyTask, JournaledCopy, threads_of
from pcircle.ops.copy.tree.visitor import CopyVisitor
from pcircle.ops.copy.tree.worker import Worker
from pcircle.runtime import Context
from pcircle.tools.fmirror import plan_file
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.plan_file import Step
from pcircle.tools.fmirror.work.extraneous import (
    ExtraneousFinder,
    InlineDeletion,
    Surplus,
    packed,
    with_counterparts,
    without_empty,
)
from pcircle.tools.fmirror.work.itemize import Itemizer, LinkedRecords
from pcircle.tools.fmirror.work.listing import Lister, ListingTimes
from pcircle.tools.fmirror.work.overwrite_policy import MirrorOverwritePolicy
from pcircle.tools.fmirror.work.unchanged import MOVED, OF_FILES, QuickCheck, Subtrees, since_last
from pcircle.walk.items import DirectoryIdentity, handed_back
from pcircle.walk.open_directory import BATCH_S, ItemContext, Open
from pcircle.walk.visitor import Names, Where
from pcircle.walk.walker import EmptinessTest, device

if TYPE_CHECKING:
    from pcircle.ops.checkpoint.journal import Counts
    from pcircle.tools.fmirror.work.reference_trees import LinkDest
    from pcircle.walk.visitor import DirectoryScan

_PATHS_TOGETHER = 1000
_TEMPORARY = b".fcp-"


class MirrorVisitor(CopyVisitor):
    """Visits directories and copies names.

    Each thread has its own instance.
    """

    _context: Context[Item]
    """The context of the current item, set by `_begin`."""

    def __init__(self, worker: Worker, entries: EntryCopier) -> None:
        super().__init__(worker, entries)
        plan = self._mirror = require_type(MirrorPlan, worker.plan)
        self._policy = require_type(MirrorOverwritePolicy, self._copier.names.keeper)
        # If the number of threads is fixed, all of them process names, so none helps with look-ups.
        helped = divide(None).helped_of(worker.number) if threads_of(plan) is None else 1
        self._quick = QuickCheck(plan, self._policy, helped)
        self._emptiness = EmptinessTest(scope_of(plan)) if plan.upkeep.prunes else None
        self._finder = ExtraneousFinder(plan, self._emptiness) if plan.deleting.enabled else None
        self._lister: Lister | None = None
        if self._finder is not None:
            self._finder.tell_doubtful = self._tell_doubtful
            self._lister = Lister(plan.began_ns)
        self._surplus: dict[int, list[bytes]] = {}  # extraneous paths of the current item, by root
        self._inline_deletion = InlineDeletion(plan, worker) if plan.deleting.during else None
        # Signatures, action logs and content comparisons must process every entry.
        needs_all = worker.signer is not None or worker.acting is not None
        upkeep = plan.upkeep
        by_status = upkeep.look in ("time", "size")
        self._skips = by_status and not needs_all and plan.since_ns is None
        self._itemizer = Itemizer(plan, self._policy) if plan.itemize else None
        self._link_dest: LinkDest | None = None
        if plan.link_dest or plan.compare_dest:
            # Few runs have the option.
            from pcircle.tools.fmirror.work.reference_trees import LinkDest

            self._link_dest = LinkDest(plan, self._policy.is_equal)
        if self._itemizer or self._link_dest or plan.copy_dest or plan.reflink_dest:
            self._small = None
        if self._small is not None and self._lister is not None:
            self._small.leaves = self._lister.is_recent
        looked_at = worker.limits is None and worker.earlier is None and self._link_dest is None
        self._checks_together = self._skips and looked_at and self._itemizer is None
        self.scan: DirectoryScan | None = (
            SCAN if self._checks_together or self._small is not None else None
        )
        self._subtrees = Subtrees(self._quick, is_first=not worker.number)
        self._done = 0  # number of changes counted so far
        self._is_marked = self._has_made = False

    @staticmethod
    def access_of(plan: CopyPlan) -> WriteAccess:
        """Return which protections of the target may be removed.

        Like rsync, a mirror overrides modes of the target. It overrides flags only if it also
        preserves them.
        """
        return WriteAccess(owner=True, flags=plan.keep.flags)

    # ---- items -----------------------------------------------------------------

    def _begin(self, context: Context[Item]) -> Counts:
        self._context = context
        report_effects(self._policy.effects, self._plan.shown, context)
        self._subtrees.forget()
        if self._inline_deletion is not None:
            self._inline_deletion.begin(context)
        return super()._begin(context)

    def send_reports(self, context: Context[Item]) -> None:
        if self._inline_deletion is not None:
            self._inline_deletion.tell()
        if self._itemizer is not None:
            self._itemizer.tell(context)
        super().send_reports(context)

    def end(self, context: Context[Item], opens: Sequence[Open[PartialResult]]) -> None:
        self._tell_aside(context)
        self._tell_surplus(context)
        if self._inline_deletion is not None:
            self._inline_deletion.close()
        if self._link_dest is not None:
            self._link_dest.close()
        self._mark_changed()
        super().end(context, opens)

    def _tell_aside(self, context: Context[Item]) -> None:
        """Remove replaced directories now, or report them so that a later job removes them."""
        aside, self._policy.aside = self._policy.aside, []
        deletion = self._inline_deletion
        if deletion is None:
            context.note([Surplus(root, path + b"\0", was) for root, path, was in aside])
            return
        for root, path, was in aside:
            above = path.rpartition(b"/")[0]
            with suppress(OSError), self._sides.targets.lease(root, above) as lease:
                deletion.remove_replaced(root, path, was, lease.fd)

    def _tell_doubtful(self, paths: list[bytes]) -> None:
        """Report extraneous entries that may have moved, so that the recheck can decide."""
        for at in range(0, len(paths), _PATHS_TOGETHER):
            batch = paths[at : at + _PATHS_TOGETHER]
            self._context.note([packed(0, batch, doubtful=True)])

    def _tell_surplus(self, context: Context[Item]) -> None:
        if self._lister is not None:
            context.note(list(self._lister.taken()))
        if self._surplus:
            surplus, self._surplus = self._surplus, {}
            for root, paths in surplus.items():
                for at in range(0, len(paths), _PATHS_TOGETHER):
                    context.note([packed(root, paths[at : at + _PATHS_TOGETHER])])

    def _mark(self, root: int) -> None:
        """Do nothing: `_mark_changed` leaves the mark once an entry has changed.

        Creating and removing the mark would change the times of an unchanged root.
        """

    def _mark_changed(self) -> None:
        counts = self._counters
        done = counts.files + counts.links + counts.special + counts.touched + counts.bytes_found
        done += counts.linked + counts.removed
        if not self._is_marked and (done > self._done or self._has_made):
            self._is_marked = True
            self._sides.leave_mark(0)
        self._done = done

    # ---- directories -----------------------------------------------------------

    def select_directories(
        self, above: Open[PartialResult], names: list[bytes], context: ItemContext[PartialResult]
    ) -> tuple[list[bytes], list[bytes]]:
        """Omit directories whose whole subtrees are equal on both sides."""
        (source, target), place = above.leases, above.place
        if self._checks_together and not place.made:
            devices = device(source), device(target)
            self._quick.is_trusted = place.since != MOVED
            if not is_pseudo(source.fd) and self._quick.enter(devices, place.copy):
                names = self._compare(above, names, (source.fd, target.fd), context)
        return super().select_directories(above, names, context)

    def _compare(
        self,
        above: Open[PartialResult],
        names: list[bytes],
        fds: tuple[int, int],
        context: ItemContext[PartialResult],
    ) -> list[bytes]:
        """Compare subdirectories, and return those that the walk must enter now."""
        found = self._subtrees.compare(
            above.path, names, fds, returns_early=context.has_idle_workers()
        )
        above.pending += found.later
        done = len(names) - len(found.to_walk) - len(found.later)
        below, counters = found.directories - done, self._counters
        counters.skipped += found.entries
        counters.done_at_once(done, found.entries + below, above.weight)
        counters.scans_due += below
        counters.scans_done += below
        counters.directories += below
        return found.to_walk

    def _itemize(self, opened: Open[PartialResult], source: Lease, lease: Lease | None) -> None:
        if self._itemizer is not None:
            target_fd, status = None if lease is None else lease.fd, source.opened.status
            with suppress(OSError):  # the copy will encounter and report the same error
                sides = source.fd, status
                self._itemizer.directory(opened.path, sides, target_fd, self._context)

    def _make_in(
        self,
        opened: Open[PartialResult],
        status: os.stat_result,
        name: bytes,
        holder_fd: int,
        holder: Open[PartialResult] | None,
    ) -> bool:
        if holder is not None and holder.place.made:
            self._has_made = True
            return super()._make_in(opened, status, name, holder_fd, holder)
        try:
            old = os.stat(name, dir_fd=holder_fd, follow_symlinks=False)
        except FileNotFoundError:
            self._has_made = True
            return super()._make_in(opened, status, name, holder_fd, holder)
        self._is_there(opened, name, holder_fd, holder)
        if stat.S_ISDIR(old.st_mode):
            return False
        self._policy.refuse_left(status, old)
        names = self._copier.names
        written = names.next()
        os.mkdir(written, 0o700, dir_fd=holder_fd)
        try:
            names.replace(written, name, holder_fd)
        except OSError:
            os.rmdir(written, dir_fd=holder_fd)
            raise
        self._has_made = True
        return True

    def _between(
        self,
        source_fd: int,
        status: os.stat_result,
        lease: Lease,
        holder: Open[PartialResult] | None,
        *,
        created: bool,
    ) -> TargetDirectory:
        trusted = holder is None or holder.place.since != MOVED
        if not created and trusted and self._quick.is_quiet(status, lease.opened.status):
            return TargetDirectory(status, lease.identity, created, quiet=True)
        return super()._between(source_fd, status, lease, holder, created=created)

    def _differs(self, own: TargetDirectory, lease: Lease) -> bool:
        # Use the status at the time of opening, because changes to entries have updated the times.
        return bool(self._policy.status_differences(own.source, lease.opened.status))

    def _place(
        self,
        opened: Open[PartialResult],
        source: Lease,
        lease: Lease,
        holder: Open[PartialResult] | None,
        *,
        made: bool,
    ) -> DirectoryIdentity:
        place = super()._place(opened, source, lease, holder, made=made)
        if self._mirror.quiet_ns is None or made:
            return place
        quick, statuses = self._quick, (source.opened.status, lease.opened.status)
        is_known, is_quiet = quick.is_known(*statuses), quick.is_quiet(*statuses)
        above = None if holder is None else holder.place.since
        since = since_last(above, is_known=is_known, is_quiet=is_quiet)
        return replace(place, since=since) if since else place

    def listed(self, opened: Open[PartialResult], source: Lease) -> Iterator[Block]:
        if self._lister is None:
            return super().listed(opened, source)
        return self._lister.blocks(opened.path, source)

    def meant(
        self, opened: Open[PartialResult], blocks: Iterable[Block], source: Lease
    ) -> Iterable[Block]:
        """Find extraneous entries while the source directory is being listed."""
        leases = opened.leases
        if self._emptiness is not None:
            blocks = without_empty(blocks, self._emptiness, opened.path, source.fd)
        seen = opened.own is not None and not opened.own.created and opened.only is None
        if self._finder is not None and seen and leases is not CLOSED:
            fds = source.fd, leases[1].fd

            def tell(paths: list[bytes]) -> None:
                if self._inline_deletion is not None:
                    self._inline_deletion.remove(opened.root, paths, fds[1])
                    return
                self._surplus.setdefault(opened.root, []).extend(paths)
                if len(paths) > _PATHS_TOGETHER:
                    self._tell_surplus(self._context)

            blocks = self._finder.watched(
                blocks, fds, opened.path, tell, partial(self._waits, opened)
            )
        if self._mirror.upkeep.existing and leases is not CLOSED:
            blocks = with_counterparts(blocks, leases[1].fd)
        return super().meant(opened, blocks, source)

    def _waits(self, opened: Open[PartialResult]) -> bool:
        """Return whether removals in a directory must wait for items of other ranks."""
        if self._inline_deletion is None or not opened.waits:
            return False
        opened.own = replace(opened.own, due=True)
        return True

    def leave(self, opened: Open[PartialResult], context: Context[Item]) -> PartialResult:
        finder, deletion = self._finder, self._inline_deletion
        if opened.own.due and finder is not None and deletion is not None:
            try:
                self._dispose(opened, finder, deletion)
            except OSError as error:
                doing = tried(error, "list the copy of directory")
                self._counters.found += 1
                self._accounts.fail(opened.root, opened.path, doing, error, context)
        return super().leave(opened, context)

    def _dispose(
        self, opened: Open[PartialResult], finder: ExtraneousFinder, deletion: InlineDeletion
    ) -> None:
        """Remove extraneous entries of a directory that was listed earlier.

        Raise OSError if either side cannot be listed.
        """
        root, path, place = opened.root, opened.path, opened.place
        sides = self._sides
        with (
            sides.sources.lease(root, path, place.source) as source,
            sides.targets.lease(root, path, place.target) as target,
        ):
            fds = source.fd, rewound(target.fd)
            for paths in finder.surplus(None, fds, path):
                deletion.remove(root, paths, target.fd)

    def known(self, opened: Open[PartialResult], context: Context[Item]) -> PartialResult | None:
        """Return None if the walk must enter the directory to find extraneous entries."""
        if self._finder is None:
            return super().known(opened, context)
        self._counted = False
        opened.began = self._delta.now()
        if self._earlier is not None:
            self._standing = self._earlier.standing(opened.root, opened.path)
        return None

    def _finish_open(self, opened: Open[PartialResult], lease: Lease, missing: int) -> None:
        own = opened.own
        if not opened.path:  # a mark left later would change the final times of the root
            self._mark_changed()
        if not (own.created or lease.searched):
            lifted = 0 if own.obstacle is None else own.obstacle.flags
            is_held = self._is_held(own, lease)
            differs = not (is_held if not lifted else self._is_held(own, lease, lifted))
            opened.own = replace(own, differs=own.differs or differs)
            status = os.fstat(lease.fd)
            if is_held and not (own.begun or self._policy.status_differences(own.source, status)):
                return
            if lifted:
                self._access.admit(lease.fd)  # attributes of a protected directory cannot be set
        if own.held is not None and self._plan.keep.xattr and not lease.searched:
            drop_attributes(lease.fd, own.held)
        super()._finish_open(opened, lease, missing)

    def _is_held(self, own: TargetDirectory, lease: Lease, lifted: int = 0) -> bool:
        """Return whether an existing directory already has its final extended attributes and flags.

        Flags that this run has `lifted` count as set.
        """
        expected = self._plan.keep.extended_attributes(own.source, own.held)
        if expected is None:
            return True
        held = self._extras.read_directory(lease.fd, alone=False)
        if held is None:
            return not expected.values and expected.flags == lifted
        same_flags = held.flags | lifted == expected.flags
        return sorted(held.values) == sorted(expected.values) and same_flags

    def _action(self, own: TargetDirectory) -> str:
        return "copy" if own.created else "touch" if own.differs else ""

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[PartialResult]
    ) -> None:
        place = where.place
        self._quick.is_trusted = place.since != MOVED
        self._policy.doubts = not self._quick.is_trusted
        if self._skips and not place.made and not is_pseudo(fds[0]):
            names.files = self._changed_names(where, names.files, fds, OF_FILES)
            names.links = self._changed_names(where, names.links, fds, fields.ALL)
        if len(names):
            self._admit(where, fds[1])
        if self._link_dest is not None:
            for kind_names in (names.files, names.links, names.specials):
                kind_names[:] = self._without(self._link_dest, where, kind_names, fds)
        if self._itemizer is not None:
            self._itemize_names(self._itemizer, where, names, fds, context)
        elif len(names):
            super().names(where, names, fds, context)
        if self._inline_deletion is not None:  # a later removal would change the final times
            self._tell_aside(context)

    def _without(
        self, link_dest: LinkDest, where: Where, names: list[bytes], fds: tuple[int, int]
    ) -> list[bytes]:
        """Return the names that were neither linked from a reference tree nor left out."""
        left, counters = [], self._counters
        for name in names:
            linked = link_dest.has(where.root, where.path, name, fds)
            if linked is None:
                left.append(name)
            else:
                counters.linked += linked
        done = len(names) - len(left)
        counters.skipped += done
        counters.sized += done
        counters.weight += where.weight * done
        return left

    def _itemize_names(
        self,
        itemizer: Itemizer,
        where: Where,
        names: Names,
        fds: tuple[int, int],
        context: ItemContext[PartialResult],
    ) -> None:
        """Itemize each name and then copy it.

        Names that are handed back when the time slice ends are itemized when their new item is
        processed.
        """
        for name, one in _one_by_one(where, names, context):
            with suppress(OSError):  # the copy will encounter and report the same error
                path = join_path(where.path, name)
                judged = itemizer.entry(where.root, where.path, name, fds)
                itemizer.say(path, *judged, context)
            super().names(where, one, fds, context)

    def _changed_names(
        self, where: Where, names: list[bytes], fds: tuple[int, int], among: int
    ) -> list[bytes]:
        """Return the names that may differ, and count the unchanged ones."""
        left: list[bytes] = []
        for at in range(0, len(names), CAPACITY):
            batch = names[at : at + CAPACITY]
            changed = self._quick.changed_names(batch, fds, among)
            done = len(batch) - len(changed)
            self._counters.skipped += done
            self._counters.sized += done
            self._counters.weight += where.weight * done
            left += changed
        return left


def _one_by_one(
    where: Where, names: Names, context: ItemContext[PartialResult]
) -> Iterator[tuple[bytes, Names]]:
    """Yield each name, files last, and hand back the remaining files when the time slice ends."""
    until_s = time.monotonic() + BATCH_S
    yield from ((name, Names([], [name], [])) for name in names.links)
    yield from ((name, Names([], [], [name])) for name in names.specials)
    for number, name in enumerate(names.files, 1):
        yield name, Names([name], [], [])
        if time.monotonic() > until_s and number < len(names.files):
            context.spawn(list(handed_back(where, names.files[number:])))
            return


class ApplyVisitor(MirrorVisitor):
    """Carries out the actions of a plan.

    Each thread has its own instance.
    """

    def __init__(self, worker: Worker, entries: EntryCopier) -> None:
        super().__init__(worker, entries)
        self._skips = False
        self.scan: DirectoryScan | None = None
        self._is_to_change = False  # whether the current directory's own attributes will change
        self._asks_all = self._mirror.upkeep.look == "none"

    def _step(self, opened: Open[PartialResult]) -> Step | None:
        """Return the planned step of a directory."""
        return plan_file.step_of(mark_in(opened.only, self.lists))

    # ---- directories -----------------------------------------------------------

    def _make_in(
        self,
        opened: Open[PartialResult],
        status: os.stat_result,
        name: bytes,
        holder_fd: int,
        holder: Open[PartialResult] | None,
    ) -> bool:
        with error_context(plan_file.DOING):
            step, there = self._step(opened), plan_file.side(name, holder_fd)
            if step is None:  # only a parent of planned entries
                as_planned = there.startswith(b"d")
            else:
                as_planned = step.source == mark_of(status)
                begun = there != step.target and not self._has_begun(status, name, holder_fd)
                as_planned = as_planned and not begun
            if not as_planned:
                raise Changed(plan_file.OTHER)
        self._copier.names.expected = there
        self._is_to_change = step is not None and step.word != plan_file.WITHIN
        return super()._make_in(opened, status, name, holder_fd, holder)

    def _is_ours(self, holder_fd: int, name: bytes) -> bool:
        # An interrupted run can have made a directory unwritable only if it changes its attributes.
        return self._is_to_change and super()._is_ours(holder_fd, name)

    def _has_begun(self, source: os.stat_result, name: bytes, holder_fd: int) -> bool:
        """Return whether a directory has a mode and owner that an interrupted run would give it."""
        with suppress(FileNotFoundError):
            old = os.stat(name, dir_fd=holder_fd, follow_symlinks=False)
            plan = self._plan
            made = made_with(source.st_mode, plan.umask, closed=plan.keep.mode)
            final = plan.keep.status(source)
            mode = final.st_mode
            modes = {stat.S_IMODE(value) & 0o777 for value in (made, mode, mode | stat.S_IRWXU)}
            owners = os.geteuid(), final.st_uid
            mode = stat.S_IMODE(old.st_mode) & 0o777
            return stat.S_ISDIR(old.st_mode) and mode in modes and old.st_uid in owners
        return False

    def _finish_open(self, opened: Open[PartialResult], lease: Lease, missing: int) -> None:
        step = self._step(opened)
        if step is not None and step.word != plan_file.WITHIN:
            super()._finish_open(opened, lease, missing)
            return
        if not opened.path:  # a mark left later would change the final times of the root
            self._mark_changed()
        opened.own = replace(opened.own, differs=False)
        source, now = opened.own.source, os.fstat(lease.fd)
        moved = now.st_mtime_ns != source.st_mtime_ns
        if step is not None and self._plan.keep.timestamps and moved and not lease.searched:
            os.utime(lease.fd, ns=(source.st_atime_ns, source.st_mtime_ns))

    def _is_settled(self, opened: Open[PartialResult]) -> bool:
        step = self._step(opened)
        is_changed = step is not None and step.word != plan_file.WITHIN
        return is_changed and super()._is_settled(opened)

    def failed(self, opened: Open[PartialResult], error: OSError, context: Context[Item]) -> None:
        """Report a failed directory as a deviation from the plan if it vanished or changed kind."""
        if isinstance(error, FileNotFoundError | NotADirectoryError | Changed):
            set_operation(error, plan_file.DOING)
        super().failed(opened, error, context)

    # ---- names -----------------------------------------------------------------

    def meant(
        self, opened: Open[PartialResult], blocks: Iterable[Block], source: Lease
    ) -> Iterable[Block]:
        there = opened.leases[1]
        for block in map(sorted_by_kind, super().meant(opened, blocks, source)):
            for path, error in plan_file.confirmed(block, opened.path, source.fd, there.fd):
                if error is None:
                    self._surplus.setdefault(opened.root, []).append(path)
                else:
                    self._counters.found += 1
                    self._accounts.fail(opened.root, path, None, error, self._context)
            yield block

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[PartialResult]
    ) -> None:
        """Check each name right before its action."""
        for marked, one in _one_by_one(where, names, context):
            name, mark = split_mark(marked)
            for kind_names in (one.files, one.links, one.specials):
                kind_names[:] = [name for _ in kind_names]
            try:
                with error_context(plan_file.DOING):
                    is_over = self._check(where, name, mark, fds)
            except OSError as error:
                self._counters.weight += where.weight
                path = join_path(where.path, name)
                self._accounts.fail(where.root, path, None, error, context)
            else:
                if is_over:
                    self._counters.skipped += 1
                    self._counters.sized += 1
                    self._counters.weight += where.weight
                else:
                    super().names(where, one, fds, context)

    def _check(self, where: Where, name: bytes, mark: bytes, fds: tuple[int, int]) -> bool:
        """Return whether an entry needs no further action. Raise Changed if it is not as planned.

        A target entry is checked again right before it is replaced.
        """
        step = plan_file.step_of(mark)
        source = os.stat(name, dir_fd=fds[0], follow_symlinks=False)
        if step is None or mark_of(source) != step.source:
            raise Changed(plan_file.OTHER)
        there = plan_file.side(name, fds[1])
        digest = step.target.startswith(b"d")  # the plan replaces a directory of the target
        if digest and there.startswith(b"d"):
            there = plan_file.mark_of_replaced(name, fds[1])
        self._copier.names.expected = there
        if there != step.target:
            if not self._is_done(where, source, name, fds):
                raise Changed(plan_file.OTHER)
            if digest:
                self._find_aside(where, name, step.target, fds[1])
            return self._asks_all and source.st_nlink == 1
        return False

    def _is_done(
        self, where: Where, source: os.stat_result, name: bytes, fds: tuple[int, int]
    ) -> bool:
        """Return whether an earlier run has already completed an entry."""
        with suppress(FileNotFoundError):
            old = os.stat(name, dir_fd=fds[1], follow_symlinks=False)
            if self._asks_all:  # all files are copied, even if their contents are equal
                return not self._policy.status_differences(source, old)
            self._policy.enter(where.root, where.path)
            different = self._policy.differences(source, old, (fds[0], name, fds[1], name))
            # An interrupted run may have created a link or special file without its attributes.
            made = not (stat.S_ISREG(old.st_mode) or different & fields.CONTENT)
            return made or not different
        return False

    def _find_aside(self, where: Where, name: bytes, target: bytes, directory_fd: int) -> None:
        """Schedule the removal of a replaced directory that an interrupted run did not remove."""
        inode = int(target.split(b",")[1])
        with os.scandir(to_scan(directory_fd)) as entries:
            found = [(os.fsencode(entry.name), entry.inode()) for entry in entries]
        for text, number in found:
            if text.startswith(_TEMPORARY) and number == inode:
                paths = join_path(where.path, text), join_path(where.path, name)
                self._policy.aside.append((where.root, *paths))


# ---- tasks ---------------------------------------------------------------------------------------


class MirrorTask(CopyTask):
    """The copy of a mirror on one rank."""

    notice_type: ClassVar[Any] = Notice | Surplus | LinkedRecords | ListingTimes
    visitor_type: ClassVar[type[MirrorVisitor]] = MirrorVisitor
    keeping = MirrorOverwritePolicy


class JournaledMirror(JournaledCopy):
    """The copy of a mirror on one rank, with a checkpoint."""

    notice_type: ClassVar[Any] = Notice | Surplus | LinkedRecords | ListingTimes
    visitor_type: ClassVar[type[MirrorVisitor]] = MirrorVisitor
    keeping = MirrorOverwritePolicy


class MirrorApplyTask(MirrorTask):
    """The application of a plan on one rank."""

    visitor_type: ClassVar[type[ApplyVisitor]] = ApplyVisitor


class JournaledMirrorApply(JournaledMirror):
    """The application of a plan on one rank, with a checkpoint."""

    visitor_type: ClassVar[type[ApplyVisitor]] = ApplyVisitor
