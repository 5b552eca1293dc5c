"""The copy as a task: which work each kind of item is, and how their results come together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from pcircle.checkpoint.journal import add_counts
from pcircle.errors import NoSpace
from pcircle.fcp.batches import Batches
from pcircle.fcp.counters import Counters
from pcircle.fcp.items import (
    Batch,
    Chunk,
    Claim,
    Done,
    First,
    Item,
    Large,
    Links,
    Notice,
    One,
    Portion,
    Reread,
    Singles,
    Tree,
    Verify,
)
from pcircle.fcp.large import LargeFile, LargeFiles
from pcircle.fcp.links import HardLinks
from pcircle.fcp.plan import DIRECTORY, Plan
from pcircle.fcp.seeds import seed_listed
from pcircle.fcp.site import Site
from pcircle.fcp.trees import BATCH_NAMES, Directory, Trees
from pcircle.fcp.verify import Verifier
from pcircle.fcp.waiting import LONGEST_WAIT_S
from pcircle.fs.directories import affordable_threads
from pcircle.fs.lists import Lists
from pcircle.guards import require, require_type
from pcircle.runtime import Here, PartedTask
from pcircle.ui.names import show


class Forwarded(NamedTuple):
    """In place of the result of an item that another item, perhaps of another rank, does."""


class CopyTask(PartedTask[Item, Done]):
    """One rank's part of a copy."""

    notice_type = Notice

    def __init__(
        self,
        plan: Plan,
        rank: int,
        size: int,
        lists: Lists | None = None,
        beside: CopyTask | None = None,
        number: int = 0,
    ) -> None:
        """With `beside` it is that task's part for the worker thread of this number."""
        super().__init__()
        self._lists = lists
        first: Site | None = None if beside is None else beside._site
        links: HardLinks | None = None if beside is None else beside._links
        self._site: Site = Site(plan, rank, size, first, number)
        self._links: HardLinks = HardLinks(self._site, links)
        self.most_threads = affordable_threads(sides=2)
        wanted = threads_of(plan)
        self.threads = None if wanted is None else min(wanted, self.most_threads)
        self._batches = Batches(self._site, self._links)
        self._trees = Trees(self._site, self._batches, lists)
        self._large = LargeFiles(self._site)
        self._verifier: Verifier | None = None
        if self._site.waiting is not None:
            self._verifier = Verifier(self._site)
            self.epoch_period_s = LONGEST_WAIT_S

    def seed(self) -> Iterator[Item]:
        roots = self._site.plan.roots
        if self._lists is not None:
            yield from seed_listed(self._site.plan, self._lists, self._site.counters)
            return
        weight = 1.0 / len(roots)
        self._site.counters.found += len(roots)
        singles = 0
        for number, root in enumerate(roots):
            if root.kind == DIRECTORY:
                self._site.counters.scans_due += 1
                yield Tree(number, b"", weight)
            else:
                singles += 1
            here_ends = root.kind == DIRECTORY or number == len(roots) - 1
            if singles and (here_ends or singles == BATCH_NAMES):
                end = number if root.kind == DIRECTORY else number + 1
                yield Singles(end - singles, end, weight)
                singles = 0

    def process(self, item: Item, here: Here[Item]) -> Any:
        if self._site.limits is not None:
            self._site.limits.begin(item, here.is_stopping)
        if self._site.waiting is not None:
            self._site.waiting.begin()
        self._site.copier.is_stopping = here.is_stopping
        signer = self._site.signer
        if signer is None:
            return self._process(item, here)
        signer.clear()
        own = self._process(item, here)
        return signer.take(own) if isinstance(own, Done) else own

    def _process(self, item: Item, here: Here[Item]) -> Any:
        try:
            if isinstance(item, Batch):
                return self._batches.batch(item, here)
            if isinstance(item, Tree):
                if item.only is not None and item.only.is_range and self._lists is None:
                    here.post(0, [item])
                    return Forwarded()
                return self._trees.begin(item, here)
            if isinstance(item, Portion):
                return self._trees.portion(item, here)
            if isinstance(item, Chunk):
                return self._large.chunk(item, here)
            if isinstance(item, Large):
                return self._large.begin(item, here)
            if isinstance(item, Singles):
                return self._batches.singles(item, here)
            if isinstance(item, Verify | Reread):
                return require(self._verifier).verify(item, here)
            return self._process_linked(item, here)
        except NoSpace as error:
            number = _root(item)
            shown = show(self._site.plan.roots[number].target_shown)
            raise NoSpace(f"cannot write any more to '{shown}': {error}") from error

    def _process_linked(self, item: One | Claim | First | Links, here: Here[Item]) -> Any:
        if isinstance(item, One):
            return self._links.one(item, here)
        if isinstance(item, Claim):
            return self._links.claim(item, here)
        if isinstance(item, First):
            return self._links.first(item, here)
        done = self._links.link(item, here)
        return Forwarded() if done is None else done

    def join(self, item: Item, own: Any, merged: Done, here: Here[Item]) -> Done:
        if isinstance(own, Forwarded):
            return merged
        if isinstance(own, Directory):
            return self._trees.complete(require_type(Tree, item), own, merged, here)
        if isinstance(own, LargeFile):
            return self._large.complete(require_type(Large, item), own, merged, here)
        if isinstance(item, First):
            if own:
                self._links.first_ended(item, merged, here)
            return Done(runs=merged.runs, signed=merged.signed)
        done = self.merge(require_type(Done, own), merged)
        if isinstance(item, One) and done.cause is not None:
            return msgspec.structs.replace(done, made=None)  # nothing to link to
        if isinstance(item, Tree):  # it has failed: what is in it is nobody's entry
            return msgspec.structs.replace(done, runs=(), shelved=(), signed=0)
        return done

    def merge(self, a: Done, b: Done) -> Done:
        copy = a if b.made is None else b
        counts = add_counts(a.counts, b.counts)
        epoch = max(a.epoch, b.epoch)
        done = Done(a.cause or b.cause, copy.made, epoch, counts, copied=copy.copied)
        signer = self._site.signer
        return done if signer is None else signer.gather(done, a, b)

    def abandon(self, item: Item, own: Any) -> None:
        if isinstance(own, LargeFile) and isinstance(item, Large):
            self._large.abandon(item, own)

    def seal(self, epoch: int) -> None:
        if self._site.disk is not None:
            self._site.disk.enter(epoch + 1)

    def sync(self, epoch: int) -> None:
        if self._site.disk is not None:
            self._site.disk.sync()

    def commit(self, epoch: int) -> None:
        if self._site.waiting is not None:
            self._site.waiting.commit(epoch)

    def close(self) -> None:
        """The job has ended: let the directories go."""
        self._links.close()
        for part in self.parts:
            part._site.sources.close()
            part._site.targets.close()
            if part._site.resumed is not None:
                part._site.resumed.close()
        if self._site.disk is not None:
            self._site.disk.close()

    @property
    def counted(self) -> Counters:
        return self._site.counters

    def beside(self, number: int) -> CopyTask:
        site = self._site
        return CopyTask(site.plan, site.rank, site.size, self._lists, self, number)


def threads_of(plan: Plan) -> int | None:
    """How many worker threads each rank has; None: as many as pay.

    To wait for a limit is no reason for more than one.
    """
    limited = plan.bytes_per_s is not None or plan.operations_per_s is not None
    if limited and plan.threads is None:
        return 1
    return plan.threads


def _root(item: Item) -> int:
    """The number of the root, or of one of them, that an item belongs to."""
    if isinstance(item, Singles):
        return item.first
    if isinstance(item, First | Links):
        return item.one.root
    if isinstance(item, Portion):
        return item.tree.root
    return item.chunk.root if isinstance(item, Reread) else item.root
