"""The signing task: reads entries, processes items and merges digests.

Small files are read during the walk (`pcircle.walk`), and large files are divided into chunks. The
rank that has read a directory computes its digest when the digests of all its contents are known.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.core.errors import require, require_type
from pcircle.fs.directories import HOLDER, Lease, join_path
from pcircle.fs.entry_errors import Changed
from pcircle.fs.scan import Block, DirectoryBatch
from pcircle.jobs.failures import NoticeSink, report_effects
from pcircle.ops.digest import Signer
from pcircle.runtime import Context
from pcircle.tools.fsum.plan import (
    NOTHING,
    FileChunk,
    Item,
    LargeFileEntry,
    Notice,
    SignedPart,
    SumCounters,
    SumPlan,
    SumResult,
)
from pcircle.tools.fsum.reader import EntryReader, LargeFile, LargeFileSigner
from pcircle.walk.items import (
    SINK_ITEMS,
    UNREACHED,
    Batch,
    DirectoryIdentity,
    Gather,
    Portion,
    Tree,
    handed_back,
)
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.roots import seeds
from pcircle.walk.visitor import DirectoryScan, Names, Visitor, Where
from pcircle.walk.walker import Walker, WalkTask

if TYPE_CHECKING:
    from pcircle.fs.directories import Directories
    from pcircle.fs.lists import Lists
    from pcircle.jobs.action_log import ActionLog
    from pcircle.tools.fsum.manifests import Ledger


_SCAN = DirectoryScan(max_entries=64, max_batch_entries=512, keep_open=True, sort=True)


class SumVisitor(Visitor[SignedPart]):
    """The visitor of one worker thread; on rank 0, `lists` may restrict the walk."""

    nothing: ClassVar[SignedPart] = NOTHING

    def __init__(
        self,
        reader: EntryReader,
        ledger: Ledger | None = None,
        lists: Lists | None = None,
        log: ActionLog | None = None,
    ) -> None:
        self._reader = reader
        self._plan, self._counters, self._signer = reader.plan, reader.counters, reader.signer
        plan = self._plan
        self._ledger = ledger
        self._lists = lists
        self._log = log
        # Small directories can be signed in batches if only their digests are required.
        if ledger is None and log is None and not plan.detailed and not plan.own:
            self.scan: DirectoryScan = _SCAN

    # ---- directories -----------------------------------------------------------

    def enter(
        self, opened: Open[SignedPart], source: Lease, holder: Open[SignedPart] | None
    ) -> Lease | None:
        self._counters.scans_done += 1
        self._counters.sized += 1
        opened.place = DirectoryIdentity(source.identity)
        opened.own = source.opened.status
        return None

    def process_directories(
        self, above: Open[SignedPart], batch: DirectoryBatch, context: ItemContext[SignedPart]
    ) -> list[bytes]:
        """Sign directories whose files can all be read at once; return the remaining names."""
        sizes, entries = self._reader.bare(batch.inside, batch.entry_fds(), context.time_limit())
        ranges = batch.ranges()
        made = self._signer.pack_small_directories(batch.names, ranges, batch.inside, entries)
        undone: list[bytes] = []
        files, total = len(batch.kinds), sum(sizes)
        for name, entry, (begin, end) in zip(batch.names, made, ranges, strict=True):
            if not entry:
                undone.append(name)
                files -= end - begin
                total -= sum(sizes[begin:end])
        count = len(made) - len(undone)
        if count:
            part = SignedPart((b"".join(made),), signed=files + count)
            above.part = self.merge(above.part, part)
        self._counters.bytes_found += total
        self._counters.bytes_done += total
        return undone

    def meant(
        self, opened: Open[SignedPart], blocks: Iterable[Block], source: Lease
    ) -> Iterable[Block]:
        """Exclude manifests of this run, and listed names that are missing."""
        missing = None if opened.only is None else self._ledger
        if not self._plan.own and missing is None:
            return blocks
        return self._leave_out(opened.path, blocks, source.fd, missing)

    def _leave_out(
        self, path: bytes, blocks: Iterable[Block], fd: int, missing: Ledger | None
    ) -> Iterable[Block]:
        for block in blocks:
            for own in self._plan.own:
                if own.directory == path:
                    block.files = [n for n in block.files if not own.names(os.fsencode(n))]
            if missing is not None:
                missing.remove_missing(block, path, fd)
            yield block

    def leave(self, opened: Open[SignedPart], context: Context[object]) -> SignedPart:
        """Sign a directory, and write or compare its section."""
        where = opened.root, opened.path
        try:
            if self._ledger is None:
                part = self._signer.finish_directory(*where, NOTHING, opened.part)
            else:
                meant = self._meant(opened) if opened.entered else ()
                with self._ledger.page(opened.path, opened.own, context.note, meant) as page:
                    part = self._signer.finish_directory(*where, NOTHING, opened.part, page.see)
                    page.close(self._signer.digest_of(part))
        except ValueError as why:
            self._reader.fail(*where, "sign directory", Changed(str(why)), context, sized=True)
            return self._signer.attach_to(NOTHING)
        self._counters.directories += 1
        if self._log is not None:
            self._log.done("sign", *where, "d")
        return part

    def end(self, context: Context[object], opens: Sequence[Open[SignedPart]]) -> None:
        if self._log is not None:
            self._log.tell(context)

    def _meant(self, opened: Open[SignedPart]) -> Iterable[bytes] | None:
        """Return the listed names in a directory in order, or None if all names are selected."""
        only = opened.only
        if only is None:
            return None
        if only.is_range:
            return (group.name for group in require(self._lists).below(only))
        from pcircle.fs.lists import groups  # imported late: few runs use a path list

        return (group.name for group in groups(only.text, 0, len(only.text)))

    def failed(self, opened: Open[SignedPart], error: OSError, context: Context[object]) -> None:
        if opened.place is UNREACHED:  # the directory was not reached
            self._counters.scans_done += 1
            self._counters.sized += 1
        self._signer.clear()
        self._reader.fail(opened.root, opened.path, "read directory", error, context, sized=True)
        opened.own = self._signer.attach_to(NOTHING)

    def lost(self, opened: Open[SignedPart]) -> SignedPart:
        """Return the part of a directory that has failed; it contains no digest."""
        part: SignedPart = opened.own
        return part

    def merge(self, a: SignedPart, b: SignedPart) -> SignedPart:
        if a is NOTHING:
            return b
        return self._signer.merge_results(NOTHING, a, b)

    # ---- names -----------------------------------------------------------------

    def unreached(self, where: Where, name: bytes, error: OSError, context: NoticeSink) -> None:
        self._reader.fail(where.root, join_path(where.path, name), "reach", error, context)

    def begin(self, item: object, context: Context[object]) -> None:
        report_effects(self._reader.effects, self._plan.shown, context)
        self._signer.clear()

    def resume(self, base: Open[SignedPart], context: Context[object]) -> None:
        self._signer.clear()

    def taken(self) -> SignedPart:
        return self._signer.attach_to(NOTHING)

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[SignedPart]
    ) -> None:
        """Sign names; spawn the remaining files if the batch takes too long."""
        fd = fds[0]
        self._reader.effects.place = where.root, where.path
        for name in names.links:
            if self._one(where, name, self._reader.link, fd, context):
                self._counters.links += 1
        for name in names.specials:
            if self._one(where, name, self._reader.node, fd, context):
                self._counters.special += 1
        files = names.files
        enough = context.time_limit()
        if files and self._log is None and not self._plan.detailed and where.path != HOLDER:
            tried, undone = self._reader.small(files, fd, enough)
            self._counters.weight += where.weight * (tried - len(undone))
            files = undone + files[tried:]
        if files:
            self._files(where, files, fd, enough, context)

    def _files(
        self,
        where: Where,
        files: Sequence[bytes],
        fd: int,
        enough: Callable[[], bool],
        context: Context[object],
    ) -> None:
        """Sign files of any size one by one, and spawn items for large files.

        If checksums are recorded, such an item reads the file from beginning to end.
        """
        large: list[Item] = []
        in_order = bool(self._plan.checksum)
        is_item = in_order and not isinstance(where, Open)
        read, add, stop = self._reader.file, self._signer.add_entry_or_root, context.is_stopping
        root, path, weight = where.root, where.path, where.weight
        can_skip = None if self._ledger is None else self._ledger.skip_test(path)
        log = self._log
        for done, name in enumerate(files, 1):
            try:
                if can_skip is not None and can_skip(name, fd):
                    self._counters.sized += 1
                    whole = True
                else:
                    whole = read(name, fd, stop, whole=is_item)
                    if log is not None and whole:
                        log.entry("sign", root, path, name)
            except OSError as error:
                self._reader.fail(root, join_path(path, name), None, error, context)
            else:
                if whole:
                    add(root, path, name)
                    self._counters.files += 1
                else:
                    entry = LargeFileEntry(root, path, name, weight, where.place, where.slot)
                    large += handed_back(where, [name]) if in_order else [entry]
                    self._counters.weight -= weight
            self._counters.weight += weight
            if enough() or stop():
                context.spawn(list(handed_back(where, files[done:])))
                break
        context.spawn(large)

    def _one(
        self,
        where: Where,
        name: bytes,
        read: Callable[[bytes, int], None],
        directory_fd: int,
        context: Context[object],
    ) -> bool:
        self._counters.weight += where.weight
        try:
            read(name, directory_fd)
        except OSError as error:
            self._reader.fail(where.root, join_path(where.path, name), None, error, context)
            return False
        self._counters.sized += 1
        self._signer.add_entry_or_root(where.root, where.path, name)
        if self._log is not None:
            self._log.entry("sign", where.root, where.path, name)
        return True


# ---- task ----------------------------------------------------------------------------------------


class SumTask(WalkTask[Item, SumResult]):
    """The signing task of one worker.

    `first` is the task of the first worker of the rank, or None for that worker itself. On rank 0,
    `lists` may restrict the walk.
    """

    notice_type: ClassVar[object] = Notice

    def __init__(
        self,
        plan: SumPlan,
        rank: int,
        lists: Lists | None = None,
        first: SumTask | None = None,
    ) -> None:
        super().__init__(rank, lists, plan.threads)
        self.counters: Any = SumCounters()
        self._plan = plan
        of_first: Signer | None = None if first is None else first._signer
        self._signer: Signer = Signer(
            plan.algorithm, HOLDER, plan.trailer_bytes, of_first, plan.checksum
        )
        self._ledger: Ledger | None = None
        if plan.detailed:
            from pcircle.tools.fsum.manifests import Ledger  # most runs use no manifest

            books: Ledger | None = None if first is None else first._ledger
            self._ledger = Ledger(plan, rank, self._signer, self.counters, books)
        self._sink = None if self._ledger is None else self._ledger.sink
        reader = EntryReader(plan, self.counters, self._signer)
        self.directories: Directories = plan.reach(is_first=first is None)
        log = plan.action_log(rank)
        self._visitor = SumVisitor(reader, self._ledger, lists, log)
        self._large = LargeFileSigner(reader, self.directories, log)
        self._walker = Walker(
            self._visitor, plan.scope, self.directories, None, self.counters, rank, lists
        )

    def beside(self, number: int) -> SumTask:
        return SumTask(self._plan, self.rank, self.lists, self)

    def seed(self) -> Iterable[Item]:
        return self._roots() if self._sink is None else [Gather(tuple(self._roots()))]

    def _roots(self) -> Iterator[Tree | Batch]:
        only = None if self.lists is None else [part.listed for part in self.lists.parts]
        return seeds(self._plan.roots, self.counters, only)

    def process(self, item: Item, context: Context[Item]) -> Any:
        if self._sink is not None and isinstance(item, SINK_ITEMS):
            return self._sink.process(item, context)
        if isinstance(item, Tree | Batch | Portion):
            walked = self.walked(item, context)
            is_result = isinstance(walked, SignedPart)
            return SumResult({item.slot: walked}) if is_result else walked
        self._signer.clear()
        if isinstance(item, FileChunk):
            return self._large.chunk(item, context)
        large = require_type(LargeFileEntry, item)
        begun = self._large.begin(large, context)
        return begun if isinstance(begun, LargeFile) else SumResult({large.slot: begun})

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
        if self._sink is not None and isinstance(item, SINK_ITEMS):
            return self._sink.join(item, own, merged, context)
        if own is None:
            return merged
        if isinstance(own, list):
            tree = require_type(Tree, item)
            return SumResult({tree.slot: self._walker.join(own, merged.slots, context)})
        if isinstance(own, LargeFile):
            large = require_type(LargeFileEntry, item)
            return SumResult({large.slot: self._large.complete(large, own, merged, context)})
        return self.merge(require_type(SumResult, own), merged)
