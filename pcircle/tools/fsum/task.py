"""Signing as a task: the work of each kind of item, and the merging of digests.

The walk (`pcircle.walk`) reads small files, and large files become chunks. The digest of a
directory is computed after all of its contents, on the rank that has read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pcircle.core.guards import require, require_type
from pcircle.fs.directories import HOLDER
from pcircle.ops.digest import Signer
from pcircle.ops.digest.digests import TRAILER_BYTES
from pcircle.runtime import Context
from pcircle.tools.fsum.large import LargeFile, LargeFileSigner
from pcircle.tools.fsum.plan import (
    FileChunk,
    Item,
    LargeFileEntry,
    Notice,
    SumCounters,
    SumPlan,
    SumResult,
)
from pcircle.tools.fsum.reader import EntryReader
from pcircle.tools.fsum.visitor import SumVisitor
from pcircle.walk.items import Batch, Portion, Tree
from pcircle.walk.roots import seeds
from pcircle.walk.sink import SINK_ITEMS
from pcircle.walk.tasks import WalkTask
from pcircle.walk.walker import Walker

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.tools.fsum.ledger import Ledger


class SumTask(WalkTask[Item, SumResult]):
    """The signing task of one rank. On rank 0, `lists` restrict the roots.

    With `first` it is the task of another worker thread of that rank.
    """

    notice_type = Notice

    def __init__(
        self,
        plan: SumPlan,
        rank: int,
        lists: Lists | None = None,
        first: SumTask | None = None,
    ) -> None:
        super().__init__(rank, lists, plan.threads)
        self.counters = SumCounters()
        self._plan = plan
        beside_bytes = TRAILER_BYTES if plan.detailed else 0
        of_first: Signer | None = None if first is None else first._signer
        self._signer: Signer = Signer(plan.algorithm, HOLDER, beside_bytes, of_first)
        self._ledger: Ledger | None = None
        if plan.detailed:
            from pcircle.tools.fsum.ledger import Ledger  # most runs use no manifest

            books: Ledger | None = None if first is None else first._ledger
            self._ledger = Ledger(plan, rank, self._signer, self.counters, books)
        reader = EntryReader(plan, self.counters, self._signer)
        self.directories = plan.reach(is_first=first is None)
        counted, signer = self.counters, self._signer
        self._visitor = SumVisitor(plan, counted, signer, reader, self._ledger, lists)
        self._large = LargeFileSigner(plan, self.directories, counted, reader, signer)
        self._walker = Walker(
            self._visitor, plan.scope, self.directories, None, counted, rank, lists
        )

    def beside(self, number: int) -> SumTask:
        return SumTask(self._plan, self.rank, self.lists, self)

    def seed(self) -> Iterable[Item]:
        return self._roots() if self._ledger is None else self._ledger.begin(self._roots())

    def _roots(self) -> Iterator[Tree | Batch]:
        only = None if self.lists is None else [part.listed for part in self.lists.parts]
        return seeds(self._plan.roots, self.counters, only)

    def process(self, item: Item, context: Context[Item]) -> Any:
        if isinstance(item, SINK_ITEMS):
            return require(require(self._ledger).sink).process(item, context)
        if isinstance(item, Tree | Batch | Portion):
            walked = self.walked(item, context)
            return (
                walked
                if walked is None or isinstance(walked, list)
                else SumResult({item.slot: walked})
            )
        self._signer.clear()
        if isinstance(item, FileChunk):
            return self._large.chunk(item, context)
        begun = self._large.begin(item, context)
        return begun if isinstance(begun, LargeFile) else SumResult({item.slot: begun})

    def merge(self, a: SumResult, b: SumResult) -> SumResult:
        slots = dict(a.slots)
        for slot, part in b.slots.items():
            known = slots.get(slot)
            slots[slot] = part if known is None else self._visitor.merge(known, part)
        return SumResult(slots, a.cause or b.cause, a.blocks + b.blocks)

    def portable(self, result: SumResult) -> SumResult:
        slots = {slot: self._signer.make_portable(part) for slot, part in result.slots.items()}
        return SumResult(slots, result.cause, result.blocks)

    def join(self, item: Item, own: object, merged: SumResult, context: Context[Item]) -> SumResult:
        if isinstance(item, SINK_ITEMS):
            return require(require(self._ledger).sink).join(item, own, merged, context)
        if own is None:
            return merged
        if isinstance(own, list):
            tree = require_type(Tree, item)
            return SumResult({tree.slot: self._walker.join(own, merged.slots, context)})
        if isinstance(own, LargeFile):
            large = require_type(LargeFileEntry, item)
            return SumResult({large.slot: self._large.complete(large, own, merged, context)})
        return self.merge(require_type(SumResult, own), merged)
