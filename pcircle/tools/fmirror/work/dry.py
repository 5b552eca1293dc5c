"""`--dry-run`: compares the two sides like a mirror, but changes nothing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.core.errors import require, require_type
from pcircle.fs.directories import HOLDER, NO_LEASE, Directories, Lease, closing_fd, join_path
from pcircle.fs.entry_errors import Changed, error_context, set_operation
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.scan import Block
from pcircle.jobs.plan_file import entry, mark_in, mark_of, sorted_by_kind, split_mark
from pcircle.ops.compare import fields
from pcircle.ops.copy.tree.counters import CopyActionLog, CopyCounters, letter_of
from pcircle.ops.copy.tree.dry_run import DryTask, DryVisitor
from pcircle.ops.copy.tree.items import CopyPlan, Notice, scope_of
from pcircle.ops.copy.tree.worker import ItemLimits
from pcircle.runtime import Context
from pcircle.tools.fmirror import plan_file
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.work import extraneous
from pcircle.tools.fmirror.work.itemize import Itemizer, LinkedRecords, count
from pcircle.tools.fmirror.work.listing import Lister, ListingTimes
from pcircle.tools.fmirror.work.overwrite_policy import MirrorOverwritePolicy
from pcircle.tools.fmirror.work.reference_trees import LinkDest
from pcircle.tools.fmirror.work.rename_pairs import PathHashes
from pcircle.walk.open_directory import Open
from pcircle.walk.visitor import Where
from pcircle.walk.walker import EmptinessTest

if TYPE_CHECKING:
    from pcircle.ops.copy.tree.items import Item

_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class DryMirrorVisitor(DryVisitor):
    """Determines and reports what a mirror would do.

    Each thread has its own instance.
    """

    def __init__(
        self,
        plan: CopyPlan,
        counters: CopyCounters,
        sources: Directories,
        targets: Directories,
        limits: ItemLimits | None,
        acting: CopyActionLog | None,
    ) -> None:
        super().__init__(plan, counters, sources, targets, limits, acting)
        mirror = require_type(MirrorPlan, plan)
        self._policy = MirrorOverwritePolicy(mirror, counters, self._extras)
        self._itemizer = Itemizer(mirror, self._policy)
        self._existing = mirror.upkeep.existing
        self._has_near = bool(mirror.copy_dest or mirror.reflink_dest)
        self._renamed = PathHashes(mirror.renamed)
        self._link_dest = LinkDest(mirror, self._policy.is_equal, dry=True)
        self._emptiness = EmptinessTest(scope_of(mirror)) if mirror.upkeep.prunes else None
        self._finder = (
            extraneous.ExtraneousFinder(mirror, self._emptiness)
            if mirror.deleting.enabled
            else None
        )
        self._lister: Lister | None = None
        if self._finder is not None:
            self._finder.tell_doubtful = self._tell_doubtful
            self._lister = Lister(mirror.began_ns)
        self._plans = mirror.acts.plan
        # If there is a backup, a replaced directory is moved there, so the removals do not list it.
        self._reports_replaced = self._plans or mirror.deleting.backup is None
        self._within: tuple[int, bytes] | None = None  # the last planned directory
        self._begin_run(mirror)

    def _begin_run(self, plan: MirrorPlan) -> None:
        """Initialise the state of a subclass."""

    def _tell_doubtful(self, paths: list[bytes]) -> None:
        """Report extraneous entries that may have moved, so that the recheck can decide."""
        self._here.note([extraneous.packed(0, paths, doubtful=True)])
        self._plan_surplus(0, paths)

    def _plan_surplus(self, root: int, paths: list[bytes]) -> None:
        if self._plans:
            self._plan_within(root, os.path.dirname(paths[0]))
            step = plan_file.Step(plan_file.NONE, plan_file.NONE, plan_file.DELETE)
            for path in paths:
                self._plan_step(root, path, step)

    def listed(self, opened: Open[None], source: Lease) -> Iterator[Block]:
        if self._lister is None:
            return super().listed(opened, source)
        return self._lister.blocks(opened.path, source)

    def end(self, context: Context[object], opens: Sequence[Open[None]]) -> None:
        if self._lister is not None:
            context.note(list(self._lister.taken()))
        super().end(context, opens)

    def _target_of(self, root: int, path: bytes) -> Lease | None:
        try:
            return self._targets.lease(root, path)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY:
                raise
        return None  # nothing exists there, or an entry of another kind that would be replaced

    def enter(self, opened: Open[None], source: Lease, holder: Open[None] | None) -> Lease | None:
        self._refuse_left(opened, source)
        lease = super().enter(opened, source, holder)
        target_fd = None if lease is None else lease.fd
        sides, context = (source.fd, source.opened.status), self._here
        try:
            different = self._itemizer.directory(opened.path, sides, target_fd, context)
            opened.own = _action(lease, different)
            if self._plans:
                self._plan_directory(opened, source, lease, different)
        except OSError:
            if lease is not None:
                lease.end()
            raise
        return lease

    def _refuse_left(self, opened: Open[None], source: Lease) -> None:
        """Raise OSError if a directory's name in the target belongs to an entry that stays."""
        above, _, name = opened.path.rpartition(b"/")
        if not (name and require_type(MirrorPlan, self._plan).upkeep.stays):
            return
        lease = self._target_of(opened.root, above)
        if lease is None:
            return
        with lease, suppress(FileNotFoundError):
            old = os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
            self._policy.refuse_left(source.opened.status, old)

    def _differs(self, source: Lease, lease: Lease) -> bool:
        return False  # `enter` compares directories

    def _action(self, action: str) -> str:
        return action

    def _plan_directory(
        self, opened: Open[None], source: Lease, lease: Lease | None, different: int
    ) -> None:
        """Add a directory to the plan if it is the root or would change."""
        root, path = opened.root, opened.path
        above, _, name = path.rpartition(b"/") if path else (HOLDER, b"", b"")
        mark, there = mark_of(source.opened.status), plan_file.NONE
        if lease is not None:
            there = mark_of(lease.opened.status)
        elif path:
            with suppress(OSError), self._targets.lease(root, above) as holder:
                there = plan_file.side(name, holder.fd)
        if not different:
            if not path:
                self._plan_step(root, path, plan_file.Step(mark, there, plan_file.WITHIN))
            return
        word = plan_file.TOUCH if lease is not None else plan_file.COPY
        self._plan_step(root, path, plan_file.Step(mark, there, word))
        if lease is None and path:
            self._plan_within(root, above)

    def _plan_step(self, root: int, path: bytes, step: plan_file.Step) -> None:
        actions = require(self._acting).actions
        actions.planned(entry(root, path, step.mark))
        if actions.is_full:
            actions.tell(self._here)

    def _plan_within(self, root: int, path: bytes) -> None:
        """Add the parent directory of planned entries to the plan, so that it keeps its times."""
        if self._within == (root, path):
            return
        self._within = root, path
        lease = self._targets.lease
        with suppress(OSError), self._sources.lease(root, path) as source, lease(root, path) as old:
            here, there = (mark_of(side.opened.status) for side in (source, old))
            self._plan_step(root, path, plan_file.Step(here, there, plan_file.WITHIN))

    def meant(self, opened: Open[None], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        target = opened.leases[1]
        if self._emptiness is not None:
            blocks = extraneous.without_empty(blocks, self._emptiness, opened.path, source.fd)
        if self._finder is not None and target is not NO_LEASE and opened.only is None:

            def tell(paths: list[bytes]) -> None:
                self._here.note([extraneous.packed(opened.root, paths)])
                self._plan_surplus(opened.root, paths)

            blocks = self._finder.watched(blocks, (source.fd, target.fd), opened.path, tell)
        if self._existing:
            blocks = extraneous.with_counterparts(blocks, target.fd)
        return super().meant(opened, blocks, source)

    def _entry(
        self, where: Where, name: bytes, source_fd: int, target_fd: int, context: Context[Item]
    ) -> None:
        root, path, marks = where.root, join_path(where.path, name), plan_file.NONE
        near = False
        if self._limits is not None:
            self._limits.operations(2)
        try:
            fds = source_fd, target_fd
            linked = self._link_dest.has(root, where.path, name, fds)
            if linked is not None:
                self.counters.skipped += 1
                self.counters.sized += 1
                self.counters.linked += linked
                if self._plans and linked:
                    self._plan_made(where, name, fds)
                return
            source, old, different = self._itemizer.entry(root, where.path, name, fds)
            if old is None and path in self._renamed:
                self.counters.skipped += 1
                self.counters.sized += 1
                return
            if old is not None:
                self._foretold.check(root, where.path, target_fd, name)
            if different & fields.CONTENT:
                self._refuse(name, source_fd, source, old)
                near = self._is_near(where, name, source_fd, source)
                self.counters.nearby += near and not self._itemizer.is_linked(source)
            is_linked = self._itemizer.is_linked(source) and not self._itemizer.is_left(source, old)
            if self._plans and (different or is_linked):
                marks = _marks(source, name, target_fd)
        except OSError as error:
            self._fail(root, path, error, context)
            return
        self._itemizer.say(path, source, old, different, context, marks=marks, near=near)
        self.counters.sized += 1
        mode, size = source.st_mode, source.st_size if stat.S_ISREG(source.st_mode) else 0
        stays = not different & fields.CONTENT and (old is None or old.st_nlink == 1)
        if self._acting is not None and not different:
            self._acting.actions.skipped(root, path, letter_of(mode))
        elif self._acting is not None:
            action = "touch" if stays else "copy"
            self._acting.actions.done(action, root, path, letter_of(mode), 0 if stays else size)
        if marks != plan_file.NONE:
            self._plan_within(root, where.path)
        if self._itemizer.is_linked(source):  # rank 0 decides
            self.counters.skipped += 1
        elif not different or stays:
            self.counters.skipped += 1
            self.counters.touched += different != 0
        else:
            count(self.counters, mode, size)
        if marks != plan_file.NONE and not self._itemizer.is_linked(source):
            word = plan_file.TOUCH if stays else plan_file.COPY
            here, _, there = marks.partition(b";")
            self._plan_step(root, path, plan_file.Step(here, there, word))
        replaced = old is not None and stat.S_ISDIR(old.st_mode) and different & fields.KIND
        if replaced and self._reports_replaced:
            context.note([extraneous.packed(root, [path])])

    def _plan_made(self, where: Where, name: bytes, fds: tuple[int, int]) -> None:
        """Add to the plan an entry that would be linked from a reference tree.

        Raise OSError if it cannot be examined.
        """
        source = os.stat(name, dir_fd=fds[0], follow_symlinks=False)
        here, _, there = _marks(source, name, fds[1]).partition(b";")
        self._plan_within(where.root, where.path)
        step = plan_file.Step(here, there, plan_file.COPY)
        self._plan_step(where.root, join_path(where.path, name), step)

    def _is_near(self, where: Where, name: bytes, source_fd: int, source: os.stat_result) -> bool:
        """Return whether a reference tree has the content of a source file."""
        if not self._has_near or not stat.S_ISREG(source.st_mode):
            return False
        with closing_fd(os.open(name, OPEN_FILE, dir_fd=source_fd)) as fd:
            self._policy.enter(where.root, where.path)
            return self._policy.has_content(name, fd, source)

    def _refuse(
        self, name: bytes, source_fd: int, source: os.stat_result, old: os.stat_result | None
    ) -> None:
        """Raise OSError if an entry could not be read, or must not replace the existing one."""
        if stat.S_ISREG(source.st_mode) and not os.access(
            name, os.R_OK, dir_fd=source_fd, effective_ids=True
        ):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if old is not None and not self._policy.may_replace(old):
            with error_context("create the copy of"):
                raise IsADirectoryError(errno.EISDIR, "a directory is in the way")

    def _say(self, root: int, path: bytes, text: str, context: Context[Item]) -> None:
        """Print nothing, because the itemizer reports all changes."""

    def tell(self, context: Context[Item]) -> None:
        """Release the directories of this item, and send all findings to rank 0."""
        self._link_dest.close()
        self._policy.close()
        self._itemizer.tell(context)


def _action(lease: Lease | None, different: int) -> str:
    """Return the action for a directory itself, or an empty string if it does not change."""
    if lease is None:
        return "copy"
    return "touch" if different else ""


def _marks(source: os.stat_result, name: bytes, target_fd: int) -> bytes:
    """Return the marks of both sides for an entry that is not a directory.

    Raise OSError if the target entry cannot be examined.
    """
    return b"%b;%b" % (mark_of(source), plan_file.mark_of_replaced(name, target_fd))


class DryMirrorTask(DryTask):
    """The dry run of a mirror on one rank."""

    notice_type: ClassVar[Any] = Notice | extraneous.Surplus | LinkedRecords | ListingTimes
    visitor_type: ClassVar[type[DryMirrorVisitor]] = DryMirrorVisitor

    def _tell_actions(self, context: Context[Item]) -> None:
        super()._tell_actions(context)
        require_type(DryMirrorVisitor, self._visitor).tell(context)


class DryApplyVisitor(DryMirrorVisitor):
    """Determines which actions of a plan remain to be done, and makes the checks of `--apply`."""

    def enter(self, opened: Open[None], source: Lease, holder: Open[None] | None) -> Lease | None:
        """Enter a directory, and report it unless it is only a parent of planned entries."""
        lease = DryVisitor.enter(self, opened, source, holder)
        opened.own = _action(lease, fields.NOTHING)
        status, target_fd = source.opened.status, None if lease is None else lease.fd
        try:
            with error_context(plan_file.DOING):
                step = plan_file.step_of(mark_in(opened.only, self.lists))
                as_planned = lease is not None
                if step is not None:
                    there = self._there(opened) if lease is None else mark_of(lease.opened.status)
                    as_planned = step.source == mark_of(status)
                    as_planned &= lease is not None or there == step.target
                if not as_planned:
                    raise Changed(plan_file.OTHER)
                if step is not None and step.word != plan_file.WITHIN:
                    sides, context = (source.fd, status), self._here
                    different = self._itemizer.directory(opened.path, sides, target_fd, context)
                    opened.own = _action(lease, different)
                    if different and there != step.target:
                        raise Changed(plan_file.OTHER)
        except OSError:
            if lease is not None:
                lease.end()
            raise
        return lease

    def failed(self, opened: Open[None], error: OSError, context: Context[Item]) -> None:
        """Report a failed directory as a deviation from the plan if it vanished or changed kind."""
        if isinstance(error, FileNotFoundError | NotADirectoryError | Changed):
            set_operation(error, plan_file.DOING)
        super().failed(opened, error, context)

    def _there(self, opened: Open[None]) -> bytes:
        """Return the mark of the target entry with a directory's name."""
        above, _, name = opened.path.rpartition(b"/")
        gone = FileNotFoundError, NotADirectoryError
        with suppress(*gone), self._targets.lease(opened.root, above) as lease:
            return plan_file.side(name, lease.fd)
        return plan_file.NONE

    def meant(self, opened: Open[None], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        for block in map(sorted_by_kind, blocks):
            # The walk does not lease the target if it reads only a part of a list.
            lease = self._target_of(opened.root, opened.path)
            try:
                self._confirm(opened, block, (source.fd, -1 if lease is None else lease.fd))
            finally:
                if lease is not None:
                    lease.end()
            yield block

    def _confirm(self, opened: Open[None], block: Block, fds: tuple[int, int]) -> None:
        context = self._here
        for path, error in plan_file.confirmed(block, opened.path, *fds):
            if error is None:
                context.note([extraneous.packed(opened.root, [path])])
            else:
                self.counters.found += 1
                self._fail(opened.root, path, error, context)

    def _entry(
        self, where: Where, name: bytes, source_fd: int, target_fd: int, context: Context[Item]
    ) -> None:
        name, mark = split_mark(name)
        try:
            with error_context(plan_file.DOING):
                step = plan_file.parse(mark)
                judged = self._itemizer.entry(where.root, where.path, name, (source_fd, target_fd))
                there = plan_file.side(name, target_fd)
                if there.startswith(b"d") and step.target.startswith(b"d"):
                    there = plan_file.mark_of_replaced(name, target_fd)
                if mark_of(judged[0]) != step.source or (there != step.target and judged[2]):
                    raise Changed(plan_file.OTHER)
        except OSError as error:
            self._fail(where.root, join_path(where.path, name), error, context)
            return
        super()._entry(where, name, source_fd, target_fd, context)


class DryApplyTask(DryMirrorTask):
    """The dry run of `--apply` on one rank."""

    visitor_type: ClassVar[type[DryApplyVisitor]] = DryApplyVisitor
