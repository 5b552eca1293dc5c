"""The visitor of fdiff for the walk of both sides.

A directory is opened on both sides, and the two listings are compared before any look-up. Names
that exist on one side only are reported, and only common names become pairs. If A's names do not
fit in one block, neither listing is kept in memory. In this case, names that B lacks are detected
by their look-ups. To detect names that A lacks, each name of B is looked up in A, in parts that
other ranks can process.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from pcircle.fs.directories import Lease
from pcircle.fs.scan import Block, blocks, encoded
from pcircle.fs.stats import CAPACITY
from pcircle.jobs.tree_task import EntryVisitor, TreeItem
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.compare.fields import KIND
from pcircle.ops.compare.statuses import StatusComparer, UserNames, set_error_side, with_side
from pcircle.runtime import Context
from pcircle.tools.fdiff.plan import DiffCounters, DiffItem, ExtraneousLookup, ExtraneousScan
from pcircle.tools.fdiff.work.one_sided import KINDS, OneSidedReporter
from pcircle.tools.fdiff.work.pairs import PairComparer
from pcircle.walk.attributes import ANY
from pcircle.walk.globs import choosing
from pcircle.walk.items import DirectoryIdentity, unpack
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.tools.fdiff.reporter import ComparisonTask

_NONE_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class MissingInBError(OSError):
    """Raised if B lacks a directory. `mode` is that of an entry of another kind there, or None."""

    def __init__(self, mode: int | None) -> None:
        super().__init__(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self.mode = mode


class DiffVisitor(EntryVisitor):
    """Visits directories that exist on both sides.

    Each thread has its own instance.
    """

    task: ComparisonTask
    counters: DiffCounters
    batch_names: ClassVar[int] = 2 * CAPACITY

    def __init__(self, task: ComparisonTask) -> None:
        super().__init__(task)
        plan = self._plan = task.plan
        users = UserNames() if plan.by_names else None
        self._comparer = StatusComparer(plan.fields, plan.window_ns, users)
        self._details = DetailComparer(plan.fields, users)
        self._reporter = task.reporter
        self._one_sided = OneSidedReporter(task)
        self.pairs: PairComparer = PairComparer(
            task, self._one_sided, self._comparer, self._details
        )
        self._filtered = bool(plan.rules) or plan.attribute_filter != ANY
        self._choose = choosing(plan.rules, plan.attribute_filter, plan.now_ns)

    # ---- items -----------------------------------------------------------------

    def send_reports(self, context: Context[DiffItem]) -> None:
        self._reporter.tell(context)

    def end(self, context: Context[DiffItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """Report a failure with the path on the side that failed."""
        self.task.fail(path, doing, error, context)

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        """Open the same directory in B and compare both.

        Raise MissingInBError if B lacks it.
        """
        super().enter(opened, source, holder)
        target = with_side(1, lambda _: self._target(opened, holder))
        try:
            opened.place = DirectoryIdentity(source.identity, target.identity)
            if target.searched:
                raise set_error_side(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), 1)
            a, b = source.opened.status, target.opened.status
            found = self._comparer.differences(a, b)
            opened.own = self._compared(opened, found, (source, target))
        except BaseException:
            target.end()
            raise
        return target

    def _compared(self, opened: Open[int], found: int, leases: tuple[Lease, Lease]) -> bool:
        """Report a pair of directories, and return whether they could be compared."""
        a, b = (lease.opened.status for lease in leases)
        fds = leases[0].fd, leases[1].fd
        try:
            found |= self._details.compare_directories(fds, a, b)
        except OSError as error:
            self.task.fail(opened.path, "compare", error, self._context)
            return False
        self._reporter.pair(opened.path, a.st_mode, 0, found)
        return True

    def _target(self, opened: Open[int], holder: Open[int] | None) -> Lease:
        targets = self.task.targets
        if holder is None:
            return targets.lease(0, opened.path)
        above = holder.leases[1]
        name = opened.path.rpartition(b"/")[2]
        try:
            return targets.lease_below(above, name)
        except OSError as error:
            if error.errno not in _NONE_THERE:
                raise
            raise MissingInBError(_mode_of(name, above.fd)) from None

    def leave(self, opened: Open[int], context: Context[TreeItem]) -> int:
        self.counters.directories += opened.own is not False
        return 0

    def failed(self, opened: Open[int], error: OSError, context: Context[TreeItem]) -> None:
        """Report a directory that failed or does not exist in B."""
        if not isinstance(error, MissingInBError):
            if opened.own is not False:  # otherwise `_compared` has already reported the failure
                super().failed(opened, error, context)
            return
        if error.mode is None:
            self._reporter.alone(0, opened.path, stat.S_IFDIR)
        else:
            self._reporter.pair(opened.path, stat.S_IFDIR, 0, self._plan.fields & KIND)
        name = opened.path.rpartition(b"/")[2]
        self._one_sided.enter(0, opened.above, [name], self._context)

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """Report names that exist on one side only, and yield the other names."""
        found = iter(blocks)
        first = next(found)
        if opened.only is None:  # otherwise a list defines the names
            context = self._context
            if first.last:
                self._report_one_sided(opened, first, source.fd, context)
            elif not self._plan.one_sided:
                context.spawn([ExtraneousScan(opened.path, opened.place, opened.slot)])
        yield first
        yield from found

    def _report_one_sided(
        self, opened: Open[int], block: Block, source_fd: int, context: Context[DiffItem]
    ) -> None:
        """Report names that exist on one side only, and remove them from the block.

        If there are filters, a name that is selected on one side only may still exist on the other
        side. A's names therefore stay in the block and are looked up.
        """
        target_fd = opened.leases[1].fd
        every = {name for kind in KINDS for name in getattr(block, kind)}
        left = set(every)
        for other in _scanned(target_fd):
            if self._filtered:
                self._choose(other, opened.path, target_fd)
            for kind in KINDS:
                names = getattr(other, kind)
                left.difference_update(names)
                extras = [name for name in names if name not in every]
                if extras and not self._plan.one_sided:
                    self._extras(opened, encoded(extras), kind, (source_fd, target_fd), context)
        if self._filtered or not left:
            return
        for kind in KINDS:
            names = getattr(block, kind)
            alone = encoded([name for name in names if name in left])
            if alone:
                setattr(block, kind, [name for name in names if name not in left])
                self.counters.found += len(alone)
                self._one_sided.tell(0, opened, {kind: alone}, source_fd, context)

    def _extras(
        self,
        within: Open[int],
        names: Sequence[bytes],
        kind: str,
        fds: tuple[int, int],
        context: Context[DiffItem],
    ) -> None:
        """Report names of B that A lacks, after a look-up if filters may have hidden them."""
        if self._filtered:
            names = [name for name in names if _mode_of(name, fds[0]) is None]
        self.counters.found += len(names)
        self._one_sided.tell(1, within, {kind: names}, fds[1], context)

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        self.pairs.compare(where, names, fds, context)

    def scan_extras(self, item: ExtraneousScan, context: Context[DiffItem]) -> None:
        """List a large directory of B, and spawn look-ups of its names in A."""
        with self.task.targets.lease(0, item.path, item.place.target) as target:
            for block in _scanned(target.fd):
                if self._filtered:
                    self._choose(block, item.path, target.fd)
                names = encoded([name for kind in KINDS for name in getattr(block, kind)])
                for at in range(0, len(names), CAPACITY):
                    packed = b"\0".join(names[at : at + CAPACITY])
                    context.spawn([ExtraneousLookup(item.path, packed, item.place, item.slot)])
                if context.stopping:
                    return

    def look_up_extras(self, item: ExtraneousLookup, context: Context[DiffItem]) -> None:
        """Look up names of a directory of B in A, and report those that A lacks."""
        sources, targets, place = self.task.directories, self.task.targets, item.place
        with (
            sources.lease(0, item.path, place.source) as source,
            targets.lease(0, item.path, place.target) as target,
        ):
            by_kind: dict[str, list[bytes]] = {}
            for name in self.pairs.missing(unpack(item.names), source.fd):
                by_kind.setdefault(self.pairs.kind_of(name, target.fd), []).append(name)
            for kind, names in by_kind.items():
                self.counters.found += len(names)
                self._one_sided.tell(1, item, {kind: names}, target.fd, context)


def _scanned(fd: int) -> Iterator[Block]:
    """Yield the blocks of a directory of B. An OSError identifies B as the side that failed."""
    found = blocks(fd)
    while True:
        block = with_side(1, lambda _: next(found, None))
        if block is None:
            return
        yield block


def _mode_of(name: bytes, directory_fd: int) -> int | None:
    try:
        return os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode
    except OSError:
        return None
