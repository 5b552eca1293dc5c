"""The task of a comparison, and its visitor for the walk of both sides.

A directory is opened on both sides, and the two listings are compared before any look-up. Names
that exist on one side only are reported, and only common names become pairs. If A's names do not
fit in one block, neither listing is kept in memory. In this case, names that B lacks are detected
by their look-ups. To detect names that A lacks, each name of B is looked up in A, in parts that
other ranks can process.

The task passes these parts, directories, large files and their chunks to visitors and comparers.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.core.errors import require_type
from pcircle.fs.directories import Lease, device_and_inode, inode_alone
from pcircle.fs.scan import Block, blocks, encoded
from pcircle.fs.stats import CAPACITY, Stats, divide
from pcircle.jobs.action_log import ActionLines
from pcircle.jobs.failures import Failure, RecallNotice
from pcircle.jobs.tree_task import EntryVisitor, ItemState, TreeCounters, TreeItem
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.compare.fields import KIND
from pcircle.ops.compare.statuses import StatusComparer, UserNames, set_error_side, with_side
from pcircle.runtime import Context, PartedTask
from pcircle.tools.fdiff.plan import (
    ONLY_B,
    PAIRS,
    DiffCounters,
    DiffItem,
    DiffPlan,
    ExtraneousLookup,
    ExtraneousScan,
    LargeFilePair,
    LinkedPair,
    MatchedPaths,
    OneSidedFile,
    PairChunk,
)
from pcircle.tools.fdiff.reporter import ComparisonTask, DiffReporter
from pcircle.tools.fdiff.work.entries import (
    KINDS,
    ChunkedPair,
    LargeFileComparer,
    OneSidedReporter,
    OneSidedVisitor,
    PairComparer,
)
from pcircle.walk.attributes import ANY
from pcircle.walk.globs import choosing
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree, unpack
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.roots import open_roots, seeds
from pcircle.walk.visitor import Names, Where
from pcircle.walk.walker import Scope, Walker

if TYPE_CHECKING:
    from pcircle.fs.directories import Directories

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


_OWN = LargeFilePair | PairChunk | ExtraneousScan | ExtraneousLookup


class DiffTask(  # pyright: ignore[reportGeneralTypeIssues]
    ComparisonTask,
    PartedTask[DiffItem, dict[int, int]],
):
    """The comparison on one rank or thread."""

    notice_type: ClassVar[Any] = (
        Failure | RecallNotice | ActionLines | LinkedPair | OneSidedFile | MatchedPaths
    )
    counters_type: ClassVar[type[DiffCounters]] = DiffCounters
    visitor_type: ClassVar[type[DiffVisitor]] = DiffVisitor
    plan: DiffPlan
    first: DiffTask | None
    doing = "compare"

    def begin(self) -> None:
        division = divide(self.plan.threads)
        self.threads: int | None = division.workers
        self.max_threads: int = division.max_workers
        number = 0 if self.first is None else len(self.first.parts)
        helped = division.helped_of(number)
        self.stats: tuple[Stats, Stats] = Stats(helped), Stats(helped)
        first = None if self.first is None else self.first.reporter.actions
        self.reporter: DiffReporter = DiffReporter(self.plan, self.counters, self.rank, first)
        identify = device_and_inode if self.plan.one_node else inode_alone
        roots = self.plan.roots[ONLY_B:]
        is_first = self.first is None
        self.targets: Directories = open_roots(
            roots, self.plan.directory, identify, is_first=is_first
        )

    def walker(self, visitor: EntryVisitor) -> Walker[int]:
        """Return the walker of both sides, and create the walker of single sides."""
        plan, counters, rank, lists = self.plan, self.counters, self.rank, self.lists
        self.visitor: DiffVisitor = require_type(DiffVisitor, visitor)
        if plan.manifest:
            # Imported here, because few runs compare manifests.
            from pcircle.tools.fdiff.work.manifests import ManifestVisitor

            visitor = ManifestVisitor(self)
        self.large: LargeFileComparer = LargeFileComparer(self, self.visitor.pairs)
        scope = Scope(
            plan.rules,
            plan.one_file_system,
            attribute_filter=plan.attribute_filter,
            now_ns=plan.now_ns,
        )
        alone = OneSidedVisitor(self)
        self._alone = Walker(alone, scope, self.directories, None, counters, rank, lists)
        targets = None if plan.manifest else self.targets
        return Walker(visitor, scope, self.directories, targets, counters, rank, lists)

    def walker_of(self, item: Tree | Batch | Portion) -> Walker[Any]:
        return self._walker if item.root == PAIRS else self._alone

    def begun(self, counters: TreeCounters) -> Iterator[Tree | Batch]:
        """Yield items for the first root only, because its walk covers both sides."""
        if not self.plan.walks:
            return iter(())
        only = None if self.lists is None else [part.listed for part in self.lists.parts]
        return seeds(self.plan.roots[:1], counters, only)

    def process(self, item: DiffItem, context: Context[Any]) -> Any:
        if not isinstance(item, _OWN):
            return super().process(item, context)
        own: ChunkedPair | ItemState
        if isinstance(item, LargeFilePair):
            own = self.large.begin(item, context) or {item.slot: 0}
        elif isinstance(item, PairChunk):
            return self.large.chunk(item, context)
        else:
            self._of_b(item, context)
            own = {item.slot: 0}
        self.reporter.tell(context)
        return own

    def _of_b(self, item: ExtraneousScan | ExtraneousLookup, context: Context[DiffItem]) -> None:
        try:
            if isinstance(item, ExtraneousScan):
                self.visitor.scan_extras(item, context)
            else:
                self.visitor.look_up_extras(item, context)
        except OSError as error:
            self.counters.found += 1
            self.counters.sized += 1
            self.fail(item.path, "compare directory", error, context)

    def join(
        self, item: Any, own: ItemState | ChunkedPair, merged: dict[int, int], context: Context[Any]
    ) -> Any:
        if not isinstance(own, ChunkedPair):
            return super().join(item, own, merged, context)
        self.large.complete(own, merged, context)
        self.reporter.tell(context)
        return {item.slot: 0}

    def close(self) -> None:
        for part in self.parts:
            for stats in part.stats:
                stats.close()
            part.targets.close()
        super().close()
