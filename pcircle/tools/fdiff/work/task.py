"""The task of a comparison: passes its items to visitors and comparers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.core.errors import require_type
from pcircle.fs.directories import device_and_inode, inode_alone
from pcircle.fs.stats import Stats, divide
from pcircle.jobs.action_log import ActionLines
from pcircle.jobs.failures import Failure, RecallNotice
from pcircle.jobs.tree_task import EntryVisitor, ItemState, TreeCounters
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
from pcircle.tools.fdiff.work.large import ChunkedPair, LargeFileComparer
from pcircle.tools.fdiff.work.one_sided import OneSidedVisitor
from pcircle.tools.fdiff.work.visitor import DiffVisitor
from pcircle.walk.items import Batch, Portion, Tree
from pcircle.walk.roots import open_roots, seeds
from pcircle.walk.walker import Scope, Walker

if TYPE_CHECKING:
    from pcircle.fs.directories import Directories

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
