"""The walk of one rank, on one worker thread, and the base of tasks that walk.

A directory is read once. A few names are processed at once; more of them become batches that other
ranks can steal. The thread then continues with the subdirectories, depth first, for some
milliseconds; what is left at all levels becomes items. So items, joins, messages and thread
hand-overs are paid once per time slice, not for each directory: in real trees directories have few
files. If other ranks wait for work, some of it is handed out sooner, shallow levels first.

A directory is complete in place if it was read whole, nothing of it was handed out, and the job is
not stopping, which may leave half of it undone; other directories are completed in the item's join,
deepest first, after everything that was handed out.

A directory is opened from the directory in which it was found, on both sides, and repeatedly used
ones are leased (`pcircle.fs.directories`): never a descriptor for each level.

`WalkTask`, the base of tasks that walk, has the directories of a part and the items of the walk.

`Emptiness` detects directories that contain only directories, before they are entered. Most
directories have a file among their first names, so for most this is one more listing.
Subdirectories of an empty one are not listed again, because it is excluded as a whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pcircle.core.errors import require
from pcircle.fs.directories import Directories, Lease, affordable_threads, join_path, open_below
from pcircle.fs.path_list_slice import PathListSlice
from pcircle.fs.scan import Block, DirectoryBatch, blocks, encoded
from pcircle.runtime import Context, PartedTask
from pcircle.walk.attributes import ANY, Attributes
from pcircle.walk.globs import Rule, choosing, follow
from pcircle.walk.items import Batch, Portion, Tree, WalkItem, unpack
from pcircle.walk.open_directory import SHARES, ItemContext, Open, child_of, left_of
from pcircle.walk.visitor import Names, Visitor, WalkCounters

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists


P = TypeVar("P")

_FEW_NAMES = 64  # processed by the item that has read them, even if idle ranks wait
_ITEM_S = 0.01
_FIRST_ITEM_S = 0.001  # of a root: the other ranks have no work yet
_MORE_S = 0.04  # if no rank waits, which is checked for each directory
_LEVELS_PER_ENTERED = 8  # entering a directory takes about as long as passing this number of levels
_GIVEN_AT_ONCE = 64  # directories, to a waiting rank
_BETWEEN_GIFTS_S = 0.001
_MIN_NAMES = 32  # of directories that are divided although no rank waits
_MAX_SHARES = 128
_FADES = 0.7  # weight of a measured duration, after each further directory
_SEVERAL = 64  # directories that are processed at once, within the time below
_SEVERAL_S = 0.002
_PATIENCE = 256  # directories before the next attempt, after attempts that failed
_BATCH_BYTES = 32 << 10
_DENIED = PermissionError(13, os.strerror(13))


class Scope(msgspec.Struct, frozen=True):
    """The selected part of the roots, and how it is walked."""

    rules: Sequence[Rule] = ()
    one_file_system: bool = False
    follow: bool = False
    wanted: Attributes = ANY
    now_ns: int = 0


class _ParentLeases(Generic[P]):
    """The parent of the directories that are being entered, with its leases.

    `reached_s` is the time spent so far on reaching such directories from their roots.
    """

    def __init__(self, sources: Directories, targets: Directories | None) -> None:
        self._sources = sources
        self._targets = targets
        self.opened: Open[P] | None = None
        self.reached_s = 0.0

    def hold(self, opened: Open[P]) -> tuple[Lease, Lease | None]:
        """Return its leases, by identity. OSError; Changed if it is another directory."""
        if self.opened is opened and opened.leases is not None:
            return opened.leases
        self.release()
        began_s = time.monotonic()
        try:
            opened.leases = self._lease(opened)
        finally:
            self.reached_s += time.monotonic() - began_s
        self.opened = opened
        return opened.leases

    def _lease(self, opened: Open[P]) -> tuple[Lease, Lease | None]:
        place = opened.place  # unknown for entries of a list
        known = None if place is None else place.source
        source = self._sources.lease(opened.root, opened.path, known)
        target: Lease | None = None
        if self._targets is not None:
            try:
                known = None if place is None else place.target
                target = self._targets.lease(opened.root, opened.path, known)
            except OSError:
                source.end()
                raise
        return source, target

    def take(self, opened: Open[P], leases: tuple[Lease, Lease | None]) -> None:
        """Continue with a directory that has these leases, and will be needed by its path."""
        self.release()
        source, target = leases
        self._sources.keep(source, opened.root, opened.path)
        if self._targets is not None and target is not None:
            self._targets.keep(target, opened.root, opened.path)
        self.opened = opened

    def release(self) -> None:
        """End the leases."""
        if self.opened is not None:
            release(self.opened)
            self.opened = None


def release(opened: Open[P]) -> None:
    """End a directory's leases."""
    if opened.leases is not None:
        (source, target), opened.leases = opened.leases, None
        source.end()
        if target is not None:
            target.end()


class Walker(Generic[P]):
    """The walk on one thread. `targets` are the directories of the other side, if there is one.

    `lists` restrict the roots; rank 0 has them.
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
            scope.rules, scope.wanted, scope.now_ns, follow=scope.follow, tally=tally
        )
        self._takes_all = not scope.rules and not scope.follow and scope.wanted == ANY
        # Where nothing is chosen; lists choose for each directory.
        self._scans_small = (
            visitor.scan is not None and self._takes_all and not scope.one_file_system
        )
        self._held: _ParentLeases[P] = _ParentLeases(sources, targets)
        self._each_s = inf  # the duration of a directory at worst, not yet known
        self._useless = self._skipped = 0  # failed batches, directories since
        self._begun: set[bytes] = set()  # directories of a batch that the walk has completed

    # ---- one item --------------------------------------------------------------

    def tree(self, item: Tree, line: Context[WalkItem]) -> list[Open[P]] | P:
        """Walk for a time slice; return the incomplete directories, or the result."""
        context: ItemContext[P] = ItemContext(line, self._complete)
        visitor, opens = self._visitor, context.opens
        visitor.begin(item, context)
        now_s = time.monotonic()
        until_s = now_s + (_ITEM_S if item.names else _FIRST_ITEM_S)
        at_ease_until_s = until_s + (_MORE_S if item.names else 0.0)
        base: Open[P] = Open(item.root, item.path, 0, None, visitor.nothing)
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
        """Complete the remaining directories, deepest first, after all spawned items."""
        visitor = self._visitor
        visitor.resume(opens[0], context)
        for slot, part in slots.items():
            self._add(opens[slot], part)
        while len(opens) > 1:
            opened = opens.pop()
            part = visitor.lost(opened) if opened.failed else visitor.leave(opened, context)
            self._add(require(opened.above), part)
        visitor.end(context, ())
        return opens[0].part

    def batch(self, item: Batch, line: Context[WalkItem]) -> P:
        """Process names that were handed out."""
        context: ItemContext[P] = ItemContext(line)
        visitor = self._visitor
        visitor.begin(item, context)
        names = Names(*map(unpack, (item.files, item.links, item.specials)))
        source = target = None
        try:
            try:
                place = item.place
                known = None if place is None else place.source
                source = self._sources.lease(item.root, item.path, known)
                if self._targets is not None:
                    known = None if place is None else place.target
                    target = self._targets.lease(item.root, item.path, known)
                fds = source.fd, -1 if target is None else target.fd
                visitor.names(item, names, fds, context)
            finally:
                for lease in (source, target):
                    if lease is not None:
                        lease.end()
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

        Deeper levels take longer, because the next item, and this one's join, must reach them by
        their path.
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
            hungry = context.has_idle_workers()
            enough = now_s > until_s and entered > top.path.count(b"/") // _LEVELS_PER_ENTERED
            if enough and (hungry or now_s > at_ease_until_s):
                return
            if hungry and entered and now_s > fed_s + _BETWEEN_GIFTS_S:
                self._feed(stack, context)
                fed_s = now_s
                continue
            if self._scans_small and not top.tried and self._each_s <= _ITEM_S and not top.below:
                if self._skipped >= self._useless:
                    entered += self._several(top, now_s, context)
                    continue
                self._skipped += 1
            name = top.pending.pop()
            top.tried = max(0, top.tried - 1)
            if self._each_s > _ITEM_S:
                # A directory may hang: no other work should wait for it.
                self._give_all(stack, context, at_ease=not hungry)
                context.flush()
            reached_s = self._held.reached_s
            self._look(child_of(top, name, len(context.opens), nothing), name, stack, context)
            reached_s = self._held.reached_s - reached_s
            took_s = time.monotonic() - now_s - reached_s
            self._each_s = max(took_s, min(self._each_s, _ITEM_S) * _FADES)
            entered += 1

    def _give_all(
        self, stack: Sequence[Open[P]], context: ItemContext[P], *, at_ease: bool
    ) -> None:
        """Hand out what is left: one by one if each may take long and other ranks wait.

        `at_ease` means that none waits: few directories are then not divided.
        """
        slow = self._each_s > _ITEM_S
        min_names = 1 if slow or not at_ease else _MIN_NAMES
        shares = _MAX_SHARES if slow and not at_ease else SHARES
        for opened in stack:
            context.spawn(left_of(opened, min_names=min_names, shares=shares))

    def _feed(self, stack: Sequence[Open[P]], context: ItemContext[P]) -> None:
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
        self._look(opened, None, stack, context)

    def _several(self, above: Open[P], began_s: float, context: ItemContext[P]) -> int:
        """Process small directories together; the others are entered next."""
        count = min(len(above.pending), _SEVERAL, max(1, int(_SEVERAL_S / self._each_s)))
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
        self._skipped = 0
        self._useless = 0 if len(remaining) < done else min(2 * self._useless + done, _PATIENCE)
        self._each_s = max((time.monotonic() - began_s) / done, self._each_s * _FADES)
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
        """Process small directories that were listed, and count them. Return those not done."""
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
        """Continue with a directory that a visitor has opened and processed."""
        self._begun.add(os.path.basename(opened.path))
        self._add(opened, self._visitor.taken())
        self._settle(opened, require(opened.above), context)
        release(opened)

    def _look(
        self, opened: Open[P], name: bytes | None, stack: list[Open[P]], context: ItemContext[P]
    ) -> None:
        """Open, read and process a subdirectory of the last directory, or a root."""
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
        if opened.pending and opened.leases is not None:
            self._held.take(opened, opened.leases)
            stack.append(opened)
            return
        self._settle(opened, above, context)
        release(opened)

    def _open(
        self, opened: Open[P], name: bytes | None, above: Open[P]
    ) -> tuple[Lease, Lease | None]:
        """Open a directory in its parent, or a root, and enter it. OSError."""
        if name is None:
            source = self._sources.lease(opened.root, b"")
        else:
            holder = self._held.hold(above)[0]
            source = self._sources.lease_below(holder, name)
            if self._scope.one_file_system:
                opened.entered = device(source) == device(holder)
        opened.leases = source, None
        if source.searched:
            raise PermissionError(*_DENIED.args)
        target = self._visitor.enter(opened, source, None if name is None else above)
        if target is not None:
            opened.leases = source, target
        return source, target

    def _read(
        self,
        opened: Open[P],
        weight: float,
        source: Lease,
        target: Lease | None,
        context: ItemContext[P],
    ) -> float:
        """Read an open directory; return the weight that is not processed yet. OSError."""
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
                found = self._chosen(opened, found, source)
        elif only.is_range:
            self._divide(opened, only, weight, source, context)
            return 0.0
        else:
            found = iter([self._picked(opened.path, only.text, source.fd)])
        fds = source.fd, -1 if target is None else target.fd
        for block in visitor.meant(opened, found, source):
            # Before the end of a directory is read, the share of a name is unknown.
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
        """Process the names of a block, or hand them out; keep its directories."""
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

    def _chosen(self, opened: Open[P], found: Iterator[Block], source: Lease) -> Iterator[Block]:
        """Yield the blocks of a directory within the scope."""
        for block in found:
            if self._scope.follow:
                follow(block, source.fd)
            count = len(block)
            self._choose(block, opened.path, source.fd)
            opened.left_out += count - len(block)
            yield block

    def _picked(self, path: bytes, text: bytes, fd: int) -> Block:
        from pcircle.fs.lists import Picked  # few runs have a list

        block: Block = Picked(fd, text, follow=self._scope.follow)
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
        """Hand out the listed subdirectories and names of a directory with many."""
        place, slot = require(opened.place), opened.slot
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
        opened: Open[P] = Open(item.root, item.path, item.slot, None, visitor.nothing)
        opened.place, opened.ancestors = item.place, item.ancestors
        opened.only = PathListSlice(item.text)
        held: _ParentLeases[P] = _ParentLeases(self._sources, self._targets)
        try:
            source, target = held.hold(opened)
            block = self._picked(item.path, item.text, source.fd)
            (block,) = visitor.meant(opened, [block], source)
            tally.found += len(block)
            opened.weight = item.weight / max(1, len(block))
            tally.weight += 0.0 if block else item.weight
            self._sort(
                opened, block, len(block), (source.fd, -1 if target is None else target.fd), context
            )
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


def batches(where: Any, names: Names, max_names: int) -> Iterator[Batch]:
    """Yield names of an `Open` or `Batch` directory in batches of bounded number and size.

    A rank may hold a few hundred batches.
    """
    place = require(where.place)
    for kind in ("files", "links", "specials"):
        names_of_kind = getattr(names, kind)
        max_names = max(
            1,
            min(
                max_names, _BATCH_BYTES * len(names_of_kind) // max(1, sum(map(len, names_of_kind)))
            ),
        )
        for at in range(0, len(names_of_kind), max_names):
            packed = {
                "files": b"",
                "links": b"",
                kind: b"\0".join(names_of_kind[at : at + max_names]),
            }
            yield Batch(
                where.root,
                where.path,
                weight=where.weight,
                place=place,
                slot=where.slot,
                ancestors=where.ancestors,
                **packed,
            )


I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")  # result


class WalkTask(PartedTask[I, R]):
    """The part of one rank, or of one worker thread, in a walk. `lists` are on rank 0.

    A subclass creates `counters`, `directories` and the walker.
    """

    counters: Any
    directories: Directories
    keeps_lists = False
    _walker: Walker[Any]

    def __init__(self, rank: int, lists: Lists | None, threads: int | None) -> None:
        super().__init__()
        self.rank = rank
        self.lists = lists
        self.max_threads = affordable_threads()
        self.threads = None if threads is None else min(threads, self.max_threads)

    @property
    def counted(self) -> Any:
        return self.counters

    def keep_for_restart(self) -> None:
        self.keeps_lists = True

    def close(self) -> None:
        """Release the directories and the lists."""
        for part in self.parts:
            part.directories.close()
        if self.lists is not None and not self.keeps_lists:
            self.lists.close()

    def walker_of(self, item: WalkItem | Portion) -> Walker[Any]:
        """Return the walk of an item, one of several."""
        return self._walker

    def walked(self, item: WalkItem | Portion, context: Context[WalkItem]) -> Any:
        """Return the result of an item of the walk, or the list of what is kept for its join.

        None if rank 0, which has the lists, processes it.
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


class Emptiness:
    """Detects directories that are empty within a scope."""

    def __init__(self, scope: Scope) -> None:
        self._choose = choosing(scope.rules, scope.wanted, scope.now_ns, follow=scope.follow)
        self._stays = scope.one_file_system
        self._filled = b""  # the last one below which something was found: so those above it

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
