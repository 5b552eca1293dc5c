"""`--apply`: mirrors the entries of a plan, and checks both sides before each action.

If an entry has changed on either side, it is left unchanged and reported as a failure. Entries that
an interrupted run has completed count as done, so the same plan can be applied again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from pcircle.core.encoding import to_scan
from pcircle.fs.directories import Lease, join_path
from pcircle.fs.entry_errors import Changed, error_context, set_operation
from pcircle.fs.scan import Block
from pcircle.jobs.plan_file import mark_in, mark_of, sorted_by_kind, split_mark
from pcircle.ops.compare import fields
from pcircle.ops.copy.tree.entries import EntryCopier
from pcircle.ops.copy.tree.items import PartialResult
from pcircle.ops.copy.tree.small_directories import made_with
from pcircle.ops.copy.tree.worker import Worker
from pcircle.runtime import Context
from pcircle.tools.fmirror import plan_file
from pcircle.tools.fmirror.plan_file import Step
from pcircle.tools.fmirror.work.visitor import (
    JournaledMirror,
    MirrorTask,
    MirrorVisitor,
    one_by_one,
)
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.ops.copy.tree.items import Item
    from pcircle.walk.visitor import DirectoryScan

_TEMPORARY = b".fcp-"


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
        for marked, one in one_by_one(where, names, context):
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


class MirrorApplyTask(MirrorTask):
    """The application of a plan on one rank."""

    visitor_type: ClassVar[type[ApplyVisitor]] = ApplyVisitor


class JournaledMirrorApply(JournaledMirror):
    """The application of a plan on one rank, with a checkpoint."""

    visitor_type: ClassVar[type[ApplyVisitor]] = ApplyVisitor
