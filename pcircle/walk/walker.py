"""The walk on one worker thread of a rank, and the base class of tasks that walk.

If a directory contains few names, they are processed as soon as it is read; otherwise they become
batches that other ranks can steal. The thread then walks the subdirectories, depth first, for a
time slice of some milliseconds, after which the remaining subdirectories of all levels become
items. Items, joins, messages and hand-overs between threads thus cost time once per time slice and
not once per directory. This matters because most directories in real trees contain few files. If
other ranks are waiting for work, part of it is handed out before the time slice ends, beginning
with the shallowest level.

A directory is completed in place if it was read to the end, no work in it was handed out, and the
job is not stopping. (A job that is stopping may leave entries unprocessed.) All other directories
are completed in the item's join, deepest first, after the work that was handed out.

On both sides, a directory is opened relative to its parent. Directories that are used repeatedly
are leased (`pcircle.fs.directories`), so the walk does not need one descriptor per level.

`WalkTask` is the base class of tasks that walk. It holds the directories that one part of a task
has open, and processes the items of the walk.

`EmptinessTest` detects directories that contain nothing but directories, before the walk enters
them. Most directories contain a file among their first names, so the test usually costs one
additional listing. The walk excludes an empty directory, so its subdirectories are not listed a
second time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from pcircle.core.errors import require
from pcircle.fs.directories import (
    CLOSED,
    NO_LEASE,
    Directories,
    Lease,
    affordable_threads,
    join_path,
    open_below,
)
from pcircle.fs.scan import Block, DirectoryBatch, PathListSlice, blocks, encoded
from pcircle.runtime import Context, PartedTask
from pcircle.walk.attributes import ANY, AttributeFilter
from pcircle.walk.globs import Rule, choosing, follow
from pcircle.walk.items import Batch, Portion, Tree, WalkItem, source_of, target_of, unpack
from pcircle.walk.open_directory import NO_PARENT, SHARES, ItemContext, Open, child_of, left_of
from pcircle.walk.visitor import Names, Visitor, WalkCounters, batches

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists


P = TypeVar("P")

_FEW_NAMES = 64  # up to this many are processed by the item that read them, even if ranks are idle
_ITEM_S = 0.01
_FIRST_ITEM_S = 0.001  # shorter for a root, because the other ranks have no work yet
_EXTRA_S = 0.04  # additional time while no rank is waiting
_LEVELS_PER_ENTERED = 8  # entering a directory costs about as much as traversing this many levels
_GIVEN_AT_ONCE = 64  # maximum number of directories handed out at once to waiting ranks
_BETWEEN_GIFTS_S = 0.001
_MIN_NAMES = 32  # minimum number of names in an item while no rank is waiting
_MAX_SHARES = 128
_DECAY = 0.7  # factor by which a measured duration decays with each further directory
_SMALL_BATCH = 64  # maximum number of directories in a batch that should take `_SMALL_BATCH_S`
_SMALL_BATCH_S = 0.002
_MAX_RETRY_AFTER = 256  # maximum number of directories entered singly after failed batches
_DENIED = PermissionError(13, os.strerror(13))


class Scope(msgspec.Struct, frozen=True):
    """The selected part of the roots, and the treatment of links and mount points."""

    rules: Sequence[Rule] = ()
    one_file_system: bool = False
    follow: bool = False
    attribute_filter: AttributeFilter = ANY
    now_ns: int = 0


class _ParentLeases(Generic[P]):
    """The directory whose subdirectories are being entered, and its leases.

    `reached_s` is the total time spent on reaching such directories by their paths.
    """

    def __init__(self, sources: Directories, targets: Directories | None) -> None:
        self._sources = sources
        self._targets = targets
        self.opened: Open[P] | None = None
        self.reached_s = 0.0

    def hold(self, opened: Open[P]) -> tuple[Lease, Lease]:
        """Return the leases of a directory, after checking its identity.

        Raises OSError, and Changed if another directory has taken its path.
        """
        if self.opened is opened and opened.leases is not CLOSED:
            return opened.leases
        self.release()
        began_s = time.monotonic()
        try:
            opened.leases = self._lease(opened)
        finally:
            self.reached_s += time.monotonic() - began_s
        self.opened = opened
        return opened.leases

    def _lease(self, opened: Open[P]) -> tuple[Lease, Lease]:
        where, place = (opened.root, opened.path), opened.place
        source, target = self._sources.lease(*where, source_of(place)), NO_LEASE
        if self._targets is not None:
            try:
                target = self._targets.lease(*where, target_of(place))
            except OSError:
                source.end()
                raise
        return source, target

    def take(self, opened: Open[P], leases: tuple[Lease, Lease]) -> None:
        """Hold a directory with these leases, and cache it for items that need it by its path."""
        self.release()
        source, target = leases
        self._sources.keep(source, opened.root, opened.path)
        if self._targets is not None and target is not NO_LEASE:
            self._targets.keep(target, opened.root, opened.path)
        self.opened = opened

    def release(self) -> None:
        """End the leases of the directory."""
        if self.opened is not None:
            release(self.opened)
            self.opened = None


def release(opened: Open[P]) -> None:
    """End the leases of a directory, if it has any."""
    if opened.leases is not CLOSED:
        (source, target), opened.leases = opened.leases, CLOSED
        source.end()
        if target is not NO_LEASE:
            target.end()


class Walker(Generic[P]):
    """The walk on one thread. `targets` are the directories of the other side, if there is one.

    `lists` restrict the roots to listed paths. Only rank 0 holds them.
    """

    def __init__(
        self,
        visitor: Visitor[P],
        scope: Scope,
        sources: Directories,
        targets: Directories | None,
        tally: WalkCounters,
        rank: int,
        lists: Lists | None = None,
    ) -> None:
        self._visitor = visitor
        self._scope = scope
        self._sources = sources
        self._targets = targets
        self._tally = tally
        self._rank = rank
        self._lists = lists
        self._choose = choosing(
            scope.rules, scope.attribute_filter, scope.now_ns, follow=scope.follow, tally=tally
        )
        self._takes_all = not scope.rules and not scope.follow and scope.attribute_filter == ANY
        # Batches are possible only if no entry can be excluded. Lists are checked per directory.
        self._scans_small = (
            visitor.scan is not None and self._takes_all and not scope.one_file_system
        )
        self._held: _ParentLeases[P] = _ParentLeases(sources, targets)
        self._each_s = inf  # decaying maximum duration of a directory; unknown at first
        # The next batch is tried after `_retry_after` directories.
        self._retry_after = self._entered_singly = 0
        self._begun: set[bytes] = set()  # directories of a batch that the visitor left to the walk

    # ---- one item --------------------------------------------------------------

    def send_reports(self, context: Context[Any]) -> None:
        """Send the visitor's pending reports of completed work."""
        self._visitor.send_reports(context)

    def tree(self, item: Tree, line: Context[WalkItem]) -> list[Open[P]] | P:
        """Walk for a time slice; return incomplete directories, or the result if there are none."""
        context: ItemContext[P] = ItemContext(line, self._complete)
        visitor, opens = self._visitor, context.opens
        visitor.begin(item, context)
        now_s = time.monotonic()
        until_s = now_s + (_ITEM_S if item.names else _FIRST_ITEM_S)
        at_ease_until_s = until_s + (_EXTRA_S if item.names else 0.0)
        base: Open[P] = Open(item.root, item.path, 0, NO_PARENT, visitor.nothing)
        opens.append(base)
        base.place, base.weight, base.ancestors = item.place, item.weight, item.ancestors
        stack = [base]
        if item.names:
            base.pending = unpack(item.names)
            if item.only is not None:
                base.below = {item.names: item.only}
        else:
            self._enter_root(item, base, stack, context)
        try:
            self._descend(stack, until_s, at_ease_until_s, context)
        except BaseException:  # the job ends
            visitor.stopped(opens)
            raise
        finally:
            self._held.release()
        self._give_all(stack, context, at_ease=bool(item.names) and not context.has_idle_workers())
        while len(stack) > 1:
            self._settle(stack.pop(), stack[-1], context)
        visitor.end(context, opens)
        if context.is_stopping():
            visitor.stopped(opens)
        context.flush()
        line.spawned += context.spawned
        return opens if context.spawned else base.part

    def join(self, opens: list[Open[P]], slots: dict[int, P], context: Context[Any]) -> P:
        """Complete the remaining directories, deepest first, after all spawned items have ended."""
        visitor = self._visitor
        visitor.resume(opens[0], context)
        for slot, part in slots.items():
            self._add(opens[slot], part)
        while len(opens) > 1:
            opened = opens.pop()
            part = visitor.lost(opened) if opened.failed else visitor.leave(opened, context)
            self._add(opened.above, part)
        visitor.end(context, ())
        return opens[0].part

    def batch(self, item: Batch, line: Context[WalkItem]) -> P:
        """Process the names of a batch."""
        context: ItemContext[P] = ItemContext(line)
        visitor = self._visitor
        visitor.begin(item, context)
        names = Names(*map(unpack, (item.files, item.links, item.specials)))
        source = target = NO_LEASE
        try:
            try:
                source = self._sources.lease(item.root, item.path, source_of(item.place))
                if self._targets is not None:
                    target = self._targets.lease(item.root, item.path, target_of(item.place))
                visitor.names(item, names, (source.fd, target.fd), context)
            finally:
                source.end()
                target.end()
        except OSError as error:
            for name in names.all():
                self._tally.weight += item.weight
                visitor.unreached(item, name, error, context)
        part = visitor.taken()
        visitor.end(context, ())
        context.flush()
        line.spawned += context.spawned
        return part

    # ---- directories -----------------------------------------------------------

    def _descend(
        self, stack: list[Open[P]], until_s: float, at_ease_until_s: float, context: ItemContext[P]
    ) -> None:
        """Walk depth first until the deadline, but enter at least one directory.

        The minimum grows with the depth, because the next item, and the join of this one, must
        reach the level by its path.
        """
        entered, fed_s, nothing = len(stack) - 1, 0.0, self._visitor.nothing
        while True:
            top = stack[-1]
            if not top.pending:
                if len(stack) == 1:
                    return
                stack.pop()
                self._settle(top, stack[-1], context)
                continue
            now_s = time.monotonic()
            if context.is_stopping():
                return
            is_waited_for = context.has_idle_workers()
            enough = now_s > until_s and entered > top.path.count(b"/") // _LEVELS_PER_ENTERED
            if enough and (is_waited_for or now_s > at_ease_until_s):
                return
            if is_waited_for and entered and now_s > fed_s + _BETWEEN_GIFTS_S:
                self._feed_waiting_ranks(stack, context)
                fed_s = now_s
                continue
            if self._scans_small and not top.tried and self._each_s <= _ITEM_S and not top.below:
                if self._entered_singly >= self._retry_after:
                    entered += self._process_small(top, now_s, context)
                    continue
                self._entered_singly += 1
            name = top.pending.pop()
            top.tried = max(0, top.tried - 1)
            if self._each_s > _ITEM_S:
                # The next directory may hang, and no other work should wait for it.
                self._give_all(stack, context, at_ease=not is_waited_for)
                context.flush()
            reached_s = self._held.reached_s
            self._visit(child_of(top, name, len(context.opens), nothing), name, stack, context)
            reached_s = self._held.reached_s - reached_s
            took_s = time.monotonic() - now_s - reached_s
            self._each_s = max(took_s, min(self._each_s, _ITEM_S) * _DECAY)
            entered += 1

    def _give_all(
        self, stack: Sequence[Open[P]], context: ItemContext[P], *, at_ease: bool
    ) -> None:
        """Hand out pending directories, in smaller items if they are slow and ranks are waiting.

        `at_ease` means that no rank is waiting. A small number of directories is then not divided.
        """
        slow = self._each_s > _ITEM_S
        min_names = 1 if slow or not at_ease else _MIN_NAMES
        shares = _MAX_SHARES if slow and not at_ease else SHARES
        for opened in stack:
            context.spawn(left_of(opened, min_names=min_names, shares=shares))

    def _feed_waiting_ranks(self, stack: Sequence[Open[P]], context: ItemContext[P]) -> None:
        """Hand out directories of the shallowest level to waiting ranks, but keep the last one."""
        for opened in stack:
            if len(opened.pending) > (opened is stack[-1]):
                max_names = min(_GIVEN_AT_ONCE, -(-len(opened.pending) // 2))
                context.spawn(left_of(opened, max_names))
                context.flush()
                return

    def _enter_root(
        self, item: Tree, base: Open[P], stack: list[Open[P]], context: ItemContext[P]
    ) -> None:
        opened: Open[P] = Open(item.root, b"", 1, base, self._visitor.nothing)
        opened.only = item.only
        self._visit(opened, None, stack, context)

    def _process_small(self, above: Open[P], began_s: float, context: ItemContext[P]) -> int:
        """Process a batch of small directories, and return how many were tried.

        The walk enters the unsuitable directories next.
        """
        count = min(len(above.pending), _SMALL_BATCH, max(1, int(_SMALL_BATCH_S / self._each_s)))
        names = above.pending[-count:]
        try:
            source = self._held.hold(above)[0]
        except OSError:
            above.tried = count
            return 0
        del above.pending[-count:]
        names, remaining = self._process_batches(above, names, source, began_s, context)
        above.pending += names + remaining
        above.tried = len(remaining)
        done = count - len(names)
        self._entered_singly = 0
        self._retry_after = (
            0 if len(remaining) < done else min(2 * self._retry_after + done, _MAX_RETRY_AFTER)
        )
        self._each_s = max((time.monotonic() - began_s) / done, self._each_s * _DECAY)
        return done

    def _process_batches(
        self,
        above: Open[P],
        names: list[bytes],
        source: Lease,
        began_s: float,
        context: ItemContext[P],
    ) -> tuple[list[bytes], list[bytes]]:
        """Process small subdirectories of a directory, for a limited time.

        Return the untried names, and the names of directories that the walk must enter.
        """
        visitor = self._visitor
        names, remaining = visitor.select_directories(above, names, context)
        while names:
            scan = visitor.scan_of(above)
            if scan is None:
                return [], names + remaining
            with scan.read(source, names) as batch:
                names = batch.later
                remaining += batch.unread
                if batch.names:
                    remaining += self._process_batch(above, batch, context)
            if context.is_time_up(time.monotonic() - began_s):
                break
        return names, remaining

    def _process_batch(
        self, above: Open[P], batch: DirectoryBatch, context: ItemContext[P]
    ) -> list[bytes]:
        """Process and count small directories; return the names of the remaining ones."""
        undone = self._visitor.process_directories(above, batch, context)
        counts: Sequence[int] = batch.counts
        if undone or self._begun:
            self._begun.update(undone)
            found = zip(batch.names, counts, strict=True)
            counts = [count for name, count in found if name not in self._begun]
            self._begun.clear()
        files = sum(counts)
        self._tally.done_at_once(len(counts), files, above.weight)
        self._tally.files += files
        return undone

    def _complete(self, opened: Open[P], context: ItemContext[P]) -> None:
        """Complete a directory that a visitor has opened and processed, unless it must wait."""
        self._begun.add(os.path.basename(opened.path))
        self._add(opened, self._visitor.taken())
        self._settle(opened, opened.above, context)
        release(opened)

    def _visit(
        self, opened: Open[P], name: bytes | None, stack: list[Open[P]], context: ItemContext[P]
    ) -> None:
        """Open, read and process a root, or a subdirectory of the top of the stack."""
        above = stack[-1]
        weight, spawned = above.weight, context.spawned
        known = self._visitor.known(opened, context)
        if known is not None:
            self._tally.weight += weight
            self._add(above, known)
            return
        context.opens.append(opened)
        left = weight
        try:
            source, target = self._open(opened, name, above)
            left = self._read(opened, weight, source, target, context)
        except OSError as error:
            opened.failed = True
            self._tally.weight += 0.0 if opened.pending or context.spawned > spawned else left
            self._visitor.failed(opened, error, context)
        except BaseException:  # the job ends
            release(opened)
            raise
        part = self._visitor.taken()
        if part is not self._visitor.nothing:
            self._add(opened, part)
        if opened.pending and opened.leases is not CLOSED:
            self._held.take(opened, opened.leases)
            stack.append(opened)
            return
        self._settle(opened, above, context)
        release(opened)

    def _open(self, opened: Open[P], name: bytes | None, above: Open[P]) -> tuple[Lease, Lease]:
        """Open a root, or a directory within its parent, and enter it. Raises OSError."""
        if name is None:
            source = self._sources.lease(opened.root, b"")
        else:
            holder = self._held.hold(above)[0]
            source = self._sources.lease_below(holder, name)
            if self._scope.one_file_system:
                opened.entered = device(source) == device(holder)
        opened.leases = source, NO_LEASE
        if source.searched:
            raise PermissionError(*_DENIED.args)
        target = self._visitor.enter(opened, source, None if name is None else above)
        if target is not None:
            opened.leases = source, target
        return opened.leases

    def _read(
        self,
        opened: Open[P],
        weight: float,
        source: Lease,
        target: Lease,
        context: ItemContext[P],
    ) -> float:
        """Read an open directory, and return its unprocessed weight. Raises OSError."""
        tally, visitor = self._tally, self._visitor
        if not opened.entered:
            tally.weight += weight
            return 0.0
        only = opened.only
        if only is None:
            if self._takes_all:
                below = visitor.read_directory(opened, weight, source, context)
                if below is not None:
                    tally.scans_due += len(below)
                    opened.pending = below
                    return 0.0
            found = visitor.listed(opened, source)
            if not self._takes_all:
                found = self._select(opened, found, source)
        elif only.is_range:
            self._divide(opened, only, weight, source, context)
            return 0.0
        else:
            found = iter([self._pick_listed(opened.path, only.text, source.fd)])
        fds = source.fd, target.fd
        for block in visitor.meant(opened, found, source):
            # The share of a name is unknown until the end of the directory has been read.
            share = weight if block.last else weight / 2
            weight -= share
            count = len(block)
            if not count:
                tally.weight += share
                continue
            tally.found += count
            opened.weight = share / count
            self._sort(opened, block, count, fds, context)
            if not block.last and context.is_stopping():
                opened.waits = True
                break
        return weight

    def _sort(
        self,
        opened: Open[P],
        block: Block,
        count: int,
        fds: tuple[int, int],
        context: ItemContext[P],
    ) -> None:
        """Process the names of a block or hand them out, and note its directories as pending."""
        if block.directories:
            count -= len(block.directories)
            self._tally.scans_due += len(block.directories)
            opened.pending += encoded(block.directories)
            for text, listed in block.below.items():
                if listed is not None:
                    opened.below[os.fsencode(text)] = listed
        if count:
            names = Names(
                encoded(block.files),
                encoded(block.links) if block.links else [],
                encoded(block.specials) if block.specials else [],
            )
            max_names = self._visitor.batch_names
            is_few = count <= _FEW_NAMES or (count <= max_names and not context.has_idle_workers())
            if self._visitor.in_place or (block.last and is_few):
                self._visitor.names(opened, names, fds, context)
            else:
                context.spawn(list(batches(opened, names, max_names)))
        if not block.last:
            context.spawn(left_of(opened))
            context.flush()

    def _select(self, opened: Open[P], found: Iterator[Block], source: Lease) -> Iterator[Block]:
        """Yield the blocks of a directory without the entries that the scope excludes."""
        for block in found:
            if self._scope.follow:
                follow(block, source.fd)
            count = len(block)
            self._choose(block, opened.path, source.fd)
            opened.left_out += count - len(block)
            yield block

    def _pick_listed(self, path: bytes, text: bytes, fd: int) -> Block:
        from pcircle.fs.lists import SelectedBlock  # imported late because few runs have a list

        block: Block = SelectedBlock(fd, text, follow=self._scope.follow)
        self._choose(block, path, fd)
        return block

    def _settle(self, opened: Open[P], above: Open[P], context: ItemContext[P]) -> None:
        """Complete a processed directory, or keep it for the join."""
        if opened.waits or context.is_stopping():
            opened.waits = above.waits = True
            context.spawned += 1
            self._visitor.stays(opened)
            return
        context.opens.pop()
        visitor = self._visitor
        part = visitor.lost(opened) if opened.failed else visitor.leave(opened, context)
        if part is not visitor.nothing:
            self._add(above, part)

    def _add(self, opened: Open[P], part: P) -> None:
        if part is not self._visitor.nothing:
            opened.part = self._visitor.merge(opened.part, part)

    # ---- lists -----------------------------------------------------------------

    def _divide(
        self,
        opened: Open[P],
        only: PathListSlice,
        weight: float,
        source: Lease,
        context: ItemContext[P],
    ) -> None:
        """Hand out the listed subdirectories and names of a directory that has many."""
        place, slot = opened.place, opened.slot
        for share, part in require(self._lists).shares(only, weight):
            if context.stopping:
                opened.waits = True
                return
            if isinstance(part, bytes):
                text = self._visitor.divided(opened, part)
                where = (opened.root, opened.path)
                context.spawn([Portion(*where, text, share, place, slot, opened.ancestors)])
                context.flush()
                continue
            block = Block()
            block.add_directory(part.name)
            block.last = True
            self._choose(block, opened.path, source.fd)
            (block,) = self._visitor.meant(opened, [block], source)
            if not block:
                self._tally.weight += share
                continue
            self._tally.found += 1
            self._tally.scans_due += 1
            where = (opened.root, opened.path)
            listed, line = part.listed(), opened.ancestors
            context.wait(slot)
            context.post(self._rank, [Tree(*where, share, part.name, place, slot, listed, line)])

    def portion(self, item: Portion, line: Context[WalkItem]) -> P:
        """Process the listed names of one directory."""
        from pcircle.fs.lists import groups

        context: ItemContext[P] = ItemContext(line)
        visitor, tally = self._visitor, self._tally
        visitor.begin(item, context)
        opened: Open[P] = Open(item.root, item.path, item.slot, NO_PARENT, visitor.nothing)
        opened.place, opened.ancestors = item.place, item.ancestors
        opened.only = PathListSlice(item.text)
        held: _ParentLeases[P] = _ParentLeases(self._sources, self._targets)
        try:
            source, target = held.hold(opened)
            block = self._pick_listed(item.path, item.text, source.fd)
            (block,) = visitor.meant(opened, [block], source)
            tally.found += len(block)
            opened.weight = item.weight / max(1, len(block))
            tally.weight += 0.0 if block else item.weight
            self._sort(opened, block, len(block), (source.fd, target.fd), context)
        except OSError as error:
            tally.weight += item.weight
            for group in groups(item.text, 0, len(item.text)):
                tally.found += 1
                visitor.unreached(opened, group.name, error, context)
        finally:
            held.release()
        context.spawn(left_of(opened))
        self._add(opened, visitor.taken())
        visitor.end(context, ())
        context.flush()
        line.spawned += context.spawned
        return opened.part


def device(lease: Lease) -> int:
    """Return the device number of a directory's file system, which is valid on this node only."""
    return lease.opened.status.st_dev


I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")  # result


class WalkTask(PartedTask[I, R]):
    """The part of a walk that belongs to one rank or worker thread.

    Only rank 0 holds `lists`. A subclass creates `counters`, `directories` and the walker.
    """

    counters: Any
    directories: Directories
    keeps_lists: bool = False
    sides: ClassVar[int] = 1
    """The number of trees that are walked together."""
    _walker: Walker[Any]

    def __init__(self, rank: int, lists: Lists | None, threads: int | None) -> None:
        super().__init__()
        self.rank = rank
        self.lists = lists
        self.max_threads: int = affordable_threads(sides=self.sides)
        self.threads: int | None = None if threads is None else min(threads, self.max_threads)

    @property
    def counted(self) -> Any:
        return self.counters

    def keep_for_restart(self) -> None:
        self.keeps_lists = True

    def close(self) -> None:
        """Release the directories, and the lists unless a restart needs them."""
        for part in self.parts:
            part.directories.close()
        if self.lists is not None and not self.keeps_lists:
            self.lists.close()

    def send_reports(self, context: Context[Any]) -> None:
        self._walker.send_reports(context)

    def walker_of(self, item: WalkItem | Portion) -> Walker[Any]:
        """Return the walker that processes an item. A subclass may have several."""
        return self._walker

    def walked(self, item: WalkItem | Portion, context: Context[WalkItem]) -> Any:
        """Process an item; return its result, or the incomplete directories for its join.

        Return None if the item was passed to rank 0 because only rank 0 holds the lists.
        """
        walker = self.walker_of(item)
        if isinstance(item, Batch):
            return walker.batch(item, context)
        if isinstance(item, Portion):
            return walker.portion(item, context)
        if item.only is not None and item.only.is_range and self.lists is None:
            context.post(0, [item])
            return None
        return walker.tree(item, context)


class EmptinessTest:
    """Detects directories in which a scope selects nothing but directories."""

    def __init__(self, scope: Scope) -> None:
        self._choose = choosing(
            scope.rules, scope.attribute_filter, scope.now_ns, follow=scope.follow
        )
        self._stays = scope.one_file_system
        self._filled = b""  # the last directory found not to be empty, like all of its parents

    def without_empty(self, block: Block, path: bytes, directory_fd: int) -> None:
        """Remove empty directories from a block of the open directory with this path."""
        if block.directories:
            names = zip(block.directories, encoded(block.directories), strict=True)
            block.directories = [
                text for text, name in names if not self.is_empty(path, name, directory_fd)
            ]

    def is_empty(self, path: bytes, name: bytes, directory_fd: int) -> bool:
        """Return whether a subdirectory is empty; False if unknown."""
        waiting = [name]
        if (self._filled + b"/").startswith(join_path(path, name) + b"/"):
            return False
        device = os.fstat(directory_fd).st_dev
        while waiting:
            below = waiting.pop()
            try:
                fd = open_below(directory_fd, below)
            except OSError:
                return False
            try:
                if self._stays and os.fstat(fd).st_dev != device:
                    continue
                for block in blocks(fd):
                    self._choose(block, join_path(path, below), fd)
                    if block.files or block.links or block.specials:
                        self._filled = join_path(path, below)
                        return False
                    waiting += [join_path(below, child) for child in encoded(block.directories)]
            except OSError:
                return False
            finally:
                os.close(fd)
        return True
