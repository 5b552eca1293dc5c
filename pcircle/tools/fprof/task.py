"""The profiling task: the work of each type of item, and the merging of sums.

The walk (`pcircle.walk`) traverses the trees. A directory is complete when everything below it is
complete, on all ranks. The other sums (`profile.collect`) stay on the rank that computes them until
the end of the job. They are then merged up the tree of ranks.

With `--files-from`, items are created for the entries of a list. `pcircle.fs.lists` sorts the list
on disk. The entries of a directory are then adjacent, and can be looked up together, as fast as in
a walk. The contents of a listed directory count only if they are also listed, or if the directory
is listed with a trailing slash.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.core.errors import require_type
from pcircle.fs.directories import HOLDER, device_and_inode, inode_alone
from pcircle.fs.stats import Stats, divide
from pcircle.jobs.action_log import ActionLines, ActionLog, ActionOutput
from pcircle.jobs.failures import Failure, RecallNotice
from pcircle.runtime import Context
from pcircle.tools.fprof.plan import (
    Claims,
    FileLines,
    Item,
    Lines,
    Mixed,
    ProfileCounters,
    ProfilePlan,
    ProfileResult,
    added,
    narrow,
    wide,
)
from pcircle.tools.fprof.profile.collect import Collector
from pcircle.tools.fprof.profile.groups import Claim, unpack
from pcircle.tools.fprof.profile.model import Profile, merge, pack
from pcircle.tools.fprof.profile.model import unpack as unpacked
from pcircle.tools.fprof.visitor import ProfileContext, ProfileVisitor
from pcircle.walk.items import SINK_ITEMS, Batch, Gather, Tree
from pcircle.walk.roots import open_roots
from pcircle.walk.walker import Scope, Walker, WalkTask

if TYPE_CHECKING:
    from pcircle.fs.directories import Directories
    from pcircle.fs.lists import Lists
    from pcircle.tools.fprof.entries import Entries, FileLists
    from pcircle.tools.fprof.plan import Sum
    from pcircle.tools.fprof.profile.examinations import FileExaminer
    from pcircle.walk.open_directory import Open

_MAX_NAMES = 1024  # names per item
_NUL = b"\0"


class _Waiting(msgspec.Struct):
    """Listed names in one directory: those that count alone, and those with their subtrees."""

    inside: bytes  # the prefix of the records of this directory
    alone: list[bytes] = []
    whole: list[bytes] = []

    def items(self, root: int, weight: float) -> Iterator[Mixed | Tree]:
        """Yield items for these names, and forget the names."""
        path = self.inside[:-1].replace(_NUL, b"/")
        if self.alone:
            names = _NUL.join(self.alone)
            yield Mixed(root, path, names, weight)
        if self.whole:
            yield Tree(root, path, weight, _NUL.join(self.whole))
        self.alone, self.whole = [], []


def divided(records: Iterable[bytes], root: int, weight: float) -> Iterator[Mixed | Tree]:
    """Yield items for the sorted records of a list, in bounded memory.

    `weight` is the weight of each path.
    """
    waiting: list[_Waiting] = []  # each directory is inside the previous one
    for record in records:
        whole = record.endswith(_NUL)
        above, _, name = record[: len(record) - whole].rpartition(_NUL)
        inside = above + _NUL if above else b""
        while waiting and not inside.startswith(waiting[-1].inside):
            yield from waiting.pop().items(root, weight)
        if not waiting or waiting[-1].inside != inside:
            waiting.append(_Waiting(inside))
        here = waiting[-1]
        # An empty name stands for the directory itself.
        (here.whole if whole else here.alone).append(name or b".")
        if len(here.alone) + len(here.whole) == _MAX_NAMES:
            yield from here.items(root, weight)
    while waiting:
        yield from waiting.pop().items(root, weight)


_LIST_BYTES = 1 << 20  # the part of a list that is divided at once


class ProfileTask(WalkTask[Item, ProfileResult]):
    """The profiling task of one worker.

    `first` is the task of the first worker of the rank, or None for that worker itself.
    """

    notice_type: ClassVar[Any] = Failure | RecallNotice | FileLines | ActionLines

    def __init__(
        self,
        plan: ProfilePlan,
        rank: int,
        lists: Lists | None = None,
        first: ProfileTask | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(rank, lists, plan.threads)
        division = divide(plan.threads)
        self.threads: int | None = division.workers
        self.max_threads: int = division.max_workers
        self.counters: Any = ProfileCounters(first=first is None)
        self._plan = plan
        inodes = None if first is None else first._collector.inodes
        self._collector: Collector = Collector(plan.facets, plan.top, plan.edges, inodes)
        self._lists_of_files: FileLists | None = None
        if plan.lists:
            from pcircle.tools.fprof.entries import FileLists

            self._lists_of_files = FileLists(plan.lists, plan.list_end, plan.roots)
        self._examiner: FileExaminer | None = None
        if {"sparse", "stripe", "compress"}.intersection(plan.facets):
            from pcircle.tools.fprof.profile.examinations import (
                FileExaminer,  # most runs do not need it
            )

            tell = None if self._lists_of_files is None else self._lists_of_files.add
            self._examiner = FileExaminer(plan.facets, plan.pieces, self.counters, tell)
        self._stats = Stats(division.helped_of(number))
        identify = device_and_inode if plan.one_node else inode_alone
        self.directories: Directories = open_roots(
            plan.roots, plan.directory, identify, is_first=first is None
        )
        self._entries: Entries | None = None
        if plan.index is not None:
            from pcircle.tools.fprof.entries import Entries  # few runs write an index

            entries: Entries | None = None if first is None else first._entries
            self._entries = Entries(plan, plan.index, rank, entries)
        self._log: ActionLog | None = None
        if plan.verbose:
            shown = tuple(root.shown for root in plan.roots)
            self._log = ActionLog("fprof", ActionOutput(word="profiled"), rank, shown=shown)
        added = (self.counters, self._collector, self._stats, self.directories)
        written = (self._entries, self._lists_of_files, self._log)
        means = ProfileContext(*added, self._examiner, *written)
        self._visitor = ProfileVisitor(plan, rank, means)
        # The visitor decides whether to enter a mount point.
        self._walker: Walker[Sum] = Walker(
            self._visitor,
            Scope(plan.rules, attribute_filter=plan.attribute_filter, now_ns=plan.now_ns),
            self.directories,
            None,
            self.counters,
            rank,
        )

    def close(self) -> None:
        self._collector.inodes.close()
        super().close()
        for part in self.parts:
            part._stats.close()

    def beside(self, number: int) -> ProfileTask:
        return ProfileTask(self._plan, self.rank, self.lists, self, number)

    def finish(self) -> ProfileResult:
        return ProfileResult(profile=pack(reduce(merge, (part._end() for part in self.parts))))

    def _end(self) -> Profile:
        """Complete the profile of this worker and return it."""
        profile = self._collector.end(tuple(root.shown for root in self._plan.roots))
        if self._examiner is not None:
            self._examiner.end(profile, self._plan.pieces)
        profile.failed = self.counters.failed
        profile.unreadable = self.counters.unreadable
        return profile

    def seed(self) -> Iterable[Item]:
        return self._begun() if self._entries is None else [Gather(tuple(self._begun()))]

    def _begun(self) -> Iterator[Tree | Mixed | Lines]:
        if self.lists is not None:
            only = self.lists.parts[0].listed
            if only is not None:
                yield Lines(0, only, 1.0)
                return
        weight = 1.0 / len(self._plan.roots)
        self.counters.found += len(self._plan.roots)
        for number, root in enumerate(self._plan.roots):
            if root.name:
                yield Mixed(number, HOLDER, root.name, weight)
            else:
                self.counters.scans_due += 1
                yield Tree(number, b"", weight)

    def process(self, item: Item, context: Context[Item]) -> Any:
        if self._entries is not None and isinstance(item, SINK_ITEMS):
            return self._entries.sink.process(item, context)
        began_s = time.perf_counter()
        own: ProfileResult | list[Open[Sum]] = ProfileResult()
        if isinstance(item, Tree | Batch):
            walked = self.walked(item, context)
            own = walked if isinstance(walked, list) else ProfileResult({item.slot: narrow(walked)})
        elif isinstance(item, Mixed):
            self._visitor.mixed(item, context)
        elif isinstance(item, Lines):
            self._lines(item, context)
        elif isinstance(item, Claims):
            for claim in unpack(item.packed):
                self._collector.claim(claim)
        for home, claims in self._visitor.claims.items():
            context.post(home, [Claims(b"".join(map(Claim.pack, claims)))])
        self._visitor.claims.clear()
        if self._lists_of_files is not None:
            self._lists_of_files.tell(context)
        if self._log is not None:
            self._log.tell(context)
        self.counters.work_s += time.perf_counter() - began_s
        return own

    def merge(self, a: ProfileResult, b: ProfileResult) -> ProfileResult:
        profile = a.profile or b.profile
        if a.profile and b.profile:
            profile = pack(merge(unpacked(a.profile), unpacked(b.profile)))
        slots = dict(a.slots)
        for slot, part in b.slots.items():
            known = slots.get(slot)
            slots[slot] = part if known is None else narrow(added(wide(known), wide(part)))
        return ProfileResult(slots, profile)

    def join(
        self, item: Item, own: object, merged: ProfileResult, context: Context[Item]
    ) -> ProfileResult:
        if self._entries is not None and isinstance(item, SINK_ITEMS):
            return self._entries.sink.join(item, own, merged, context)
        if isinstance(own, list):
            slots = {slot: wide(part) for slot, part in merged.slots.items()}
            whole = self._walker.join(own, slots, context)
            return ProfileResult({require_type(Tree, item).slot: narrow(whole)})
        return self.merge(require_type(ProfileResult, own), merged)

    def _lines(self, item: Lines, context: Context[Item]) -> None:
        """Spawn items for a part of a list, so that any rank can take them."""
        if self.lists is None:
            context.post(0, [item])
            return

        # The remaining lines become a later item, so that a long list need not fit into memory.
        only, remaining = self.lists.cut(item.only, _LIST_BYTES)
        whole = item.only.end - item.only.begin
        weight = item.weight * (only.end - only.begin) / whole if whole else item.weight
        if remaining.is_range:
            context.spawn([Lines(item.root, remaining, item.weight - weight)])
        count = sum(1 for _ in self.lists.records(only))
        if not count:
            self.counters.weight += weight
        for part in divided(self.lists.records(only), item.root, weight / max(1, count)):
            if context.stopping:
                break
            names = part.names.count(b"\0") + 1
            self.counters.found += names
            self.counters.scans_due += names if isinstance(part, Tree) else 0
            context.spawn([part])
