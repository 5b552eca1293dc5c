"""Items that walk: the real `pcircle.walk.walker.Walker` at work in the simulator.

Its tree is a `Grove`, and its visitor models that of a copy (`pcircle.ops.copy.tree.visitor`),
without files: a directory is created when it is entered, its names are processed one by one or
handed back, some files are read again by other items when they are on disk, a complete directory is
recorded as one, and other names separately; all under the latest epoch of what the item has
touched. The visitor is only a model. The walk itself, its items, slots, opens and joins are the
real code.

Virtual time passes between any two of these steps, and with it messages, epochs and aborts. As the
walk is no generator, each item has a thread of its own, which runs while the simulation waits for
it, and waits while the simulation runs: see `pcircle.testing.fibers`.

Lists (`Portion`, posts), names of inodes that have several, and large files are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import msgspec

from pcircle.circle import Engine
from pcircle.circle.instructions import CompleteItem, Conclude, StartItem
from pcircle.circle.messages import (
    Abort,
    BundleResults,
    ItemResult,
    LifelineRequest,
    NoticeBatch,
    NoticeReply,
    PinnedWork,
    SafraToken,
    StealRefusal,
    StealRequest,
    TreeBroadcast,
    TreeReduction,
    WorkTransfer,
)
from pcircle.runtime import Context
from pcircle.testing.fibers import Stepwise
from pcircle.walk.items import Batch, DirectoryIdentity, Tree, handed_back
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Visitor, Where
from pcircle.walk.walker import Scope, Walker
from tests.sim.cases import Case
from tests.sim.driver import Player, Record
from tests.sim.grove import Clock, Directories, Grove
from tests.sim.work import NOTHING, Result, merge, own_result

WalkerType = type[Walker[Any]]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """The result of a part of the tree; it excludes `failed` directories."""

    result: Result = NOTHING
    epoch: int = 0
    failed: int = 0


class Group(msgspec.Struct, frozen=True, array_like=True):
    """Files of one directory that must be read again."""

    slot: int
    above: int
    numbers: tuple[int, ...]
    epoch: int  # of the directory


class Check(msgspec.Struct, frozen=True, array_like=True, tag="v"):
    """Read files again, which are now on disk."""

    groups: tuple[Group, ...]


Item = Tree | Batch | Check
Slots = dict[int, Part]

WIRE = (
    StealRequest
    | StealRefusal
    | LifelineRequest
    | WorkTransfer[Item, Slots]
    | BundleResults[Slots]
    | PinnedWork[Item]
    | ItemResult[Slots]
    | NoticeBatch[int]
    | NoticeReply
    | SafraToken
    | TreeBroadcast
    | TreeReduction[Slots]
    | Abort
)

EMPTY = Part()
SCOPE = Scope()


def merge_parts(a: Part, b: Part) -> Part:
    """Merge two parts of a directory."""
    return Part(merge(a.result, b.result), max(a.epoch, b.epoch), a.failed + b.failed)


def merge_slots(a: Slots, b: Slots) -> Slots:
    """Merge the results of two sets of directories, which may overlap."""
    slots = dict(a)
    for slot, part in b.items():
        slots[slot] = merge_parts(slots.get(slot, EMPTY), part)
    return slots


class Hand:
    """The walker of one item at a time, and the visitor that it calls."""

    def __init__(self, player: WalkPlayer, walker_type: WalkerType) -> None:
        self.directories = Directories(player.grove)
        self.visitor = CopyModel(player)
        directories = cast("Any", self.directories)
        self.walker: Walker[Part] = walker_type(
            self.visitor, SCOPE, directories, None, player.tally, player.engine.rank
        )


class Tally:
    """The counters of `pcircle.walk.visitor.WalkCounters`."""

    def __init__(self) -> None:
        self.found = self.scans_due = self.offline = self.files = 0
        self.weight = 0.0

    def done_at_once(self, directories: int, files: int, weight: float) -> None:
        self.found += files
        self.weight += weight * directories


class CopyModel(Visitor[Part]):
    """A model of each step of fcp, which checks that the walk requests steps at the right time."""

    nothing: ClassVar[Part] = EMPTY

    def __init__(self, player: WalkPlayer) -> None:
        self._player = player
        self._grove = player.grove
        type(self).batch_names = player.grove.walk.few_names  # shared by all concurrent items
        self.pause: Callable[[float], None] = lambda wait_s: None
        self.joining = False
        self._floor = 0
        self._taken = EMPTY
        self._done: dict[int, list[int]] = {}  # by directory
        self._whole: list[int] = []  # complete directories
        self._copied: list[Group] = []

    # ---- items -----------------------------------------------------------------

    def begin(self, item: Any, context: Context[Any]) -> None:
        self._floor = item.place.epoch if isinstance(item, Tree | Batch) else 0
        self._taken, self._done, self._whole, self._copied = EMPTY, {}, [], []

    def resume(self, base: Open[Part], context: Context[Any]) -> None:
        self.begin(None, context)
        self._floor = base.own

    def end(self, context: Context[Any], opens: Sequence[Open[Part]]) -> None:
        """Hold, and record all work under one epoch."""
        player = self._player
        if self._copied:
            player.await_commit(context, Check(tuple(self._copied)))
            self.pause(0.0)
        epoch = player.epoch if player.case.forgetful_joins else max(player.epoch, self._floor)
        for number in self._whole:
            player.record_done(epoch, range(*self._grove.range[number]), number)
        for number, done in self._done.items():
            player.record_done(epoch, done, number)
        self._floor = epoch
        if opens:
            opens[0].own = self._floor

    def since(self, part: Part) -> Part:
        """Return the result of an item that has just ended, under the epoch in which it counts."""
        if self._player.case.forgetful_joins:
            return msgspec.structs.replace(part, epoch=self._floor)
        return msgspec.structs.replace(part, epoch=max(part.epoch, self._floor))

    def reached(self, epoch: int) -> None:
        """Set the minimum epoch of the item's work."""
        self._floor = max(self._floor, epoch)

    def taken(self) -> Part:
        taken, self._taken = self._taken, EMPTY
        return taken

    def merge(self, a: Part, b: Part) -> Part:
        return merge_parts(a, b)

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[Part], source: Any, holder: Open[Part] | None) -> None:
        """Create the directory, and read the epoch afterwards."""
        player, number = self._player, source.fd
        self._passes(number)
        if self._grove.fails(number):
            raise OSError(5, "so the seed says")
        above = self._grove.above[number]
        player.make(number, above)
        self._passes(number)
        epoch = player.epoch
        if holder is not None:
            assert holder.place is not None
            assert holder.place.source == (1, above)
            epoch = max(epoch, holder.place.epoch)
        opened.place = DirectoryIdentity((1, number), epoch=epoch)
        self.reached(epoch)

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[Part]
    ) -> None:
        """Process the names, or only half of them when the job stops."""
        place, grove, player = where.place, self._grove, self._player
        assert place is not None
        assert place.source == (1, fds[0])
        again: list[int] = []
        for at, name in enumerate(names.files, 1):
            number = int(name)
            assert grove.above[number] == fds[0], f"{number} is not in {fds[0]}"
            self._passes(number)
            stops = context.stopping
            if stops or (grove.is_slow(number) and at > 1):
                leaves_off = stops and grove.leaves_off(number)
                player.record.reached["left off" if leaves_off else "handed back"] += 1
                if not leaves_off:
                    context.spawn(list(handed_back(where, names.files[at - 1 :])))
                break
            player.process(number)
            player.tally.weight += where.weight
            self._taken = merge_parts(self._taken, Part(own_result((number, number))))
            if grove.is_verified(number) and player.verifies:
                again.append(number)
            else:
                self._done.setdefault(fds[0], []).append(number)
        if again:
            self._copied.append(Group(where.slot, fds[0], tuple(again), place.epoch))
            context.wait(where.slot)

    def leave(self, opened: Open[Part], context: Context[Any]) -> Part:
        """Check that all entries below are done and were counted here."""
        number, grove, player = self._number(opened), self._grove, self._player
        assert self.may_complete(), f"{number} is completed in place by a job that stops"
        player.record.reached["in a join" if self.joining else "in place"] += 1
        result, failed = grove.total(number)
        counted = merge(own_result((number, number)), opened.part.result)
        assert (counted, opened.part.failed) == (result, failed), (
            f"{number} is completed with {counted} and {opened.part.failed} failures, "
            f"not with {result} and {failed}"
        )
        player.check_below(number)
        self._passes(number)
        player.process(number)
        part = merge_parts(opened.part, Part(own_result((number, number))))
        assert opened.place is not None
        self.reached(max(part.epoch, opened.place.epoch))
        if not failed:
            if all(map(grove.is_file, grove.below[number])):
                self._done.pop(number, None)  # one record covers the directory
            self._whole.append(number)
        return part

    def may_complete(self) -> bool:
        """Return whether a directory may be completed now."""
        return self.joining or not self._player.is_stopping()

    def failed(self, opened: Open[Part], error: OSError, context: Context[Any]) -> None:
        assert self._grove.fails(self._number(opened)), f"{opened.path!r} fails: {error}"
        self._taken = merge_parts(self._taken, Part(failed=1))

    def lost(self, opened: Open[Part]) -> Part:
        part = merge_parts(opened.part, self.taken())
        assert part.result == NOTHING
        assert part.failed == 1
        return part

    def unreached(self, where: Where, name: bytes, error: OSError, context: Context[Any]) -> None:
        raise AssertionError(f"{name!r} in {where.path!r}: {error}")

    def check(self, item: Check, context: Context[Any]) -> Slots:
        """Read files again."""
        player, slots = self._player, {}
        for group in item.groups:
            self.reached(group.epoch)
            for number in group.numbers:
                self._passes(number)
                if context.stopping:
                    return {}
                player.read_again(number)
            self._done.setdefault(group.above, []).extend(group.numbers)
            slots[group.slot] = EMPTY
        return slots

    def _number(self, opened: Open[Part]) -> int:
        return self._grove.number(opened.root, opened.path)

    def _passes(self, number: int) -> None:
        self.pause(self._player.case.forest.duration_s((number, number)))


class WalkPlayer(Player):
    """One rank whose items walk."""

    merge: ClassVar[Any] = staticmethod(merge_slots)
    nothing: ClassVar[Any] = {}

    def __init__(
        self,
        rank: int,
        case: Case,
        record: Record,
        engine_type: type[Engine[Any, Any]],
        walker_type: WalkerType,
        grove: Grove,
        clock: Clock,
    ) -> None:
        super().__init__(rank, case, record, engine_type)
        assert case.walk is not None
        self.grove = grove
        self.tally = Tally()
        self._walk = case.walk
        self._clock = clock
        self._walker_type = walker_type
        self._free: list[Hand] = []
        self._steps_of: set[Stepwise] = set()
        self._noticed_s: float | None = None
        self.verifies = case.settings.epoch_period_s is not None

    # ---- requests of an item: see `pcircle.runtime.worker_channel` ------------------------

    def spawn(self, ticket: int, items: Sequence[Any]) -> None:
        """Add children of an item."""
        self.engine.spawned(ticket, items, self._now_s)

    def post(self, ticket: int, rank: int, items: Sequence[Any]) -> None:
        """Add children of an item for a certain rank."""
        self.engine.posted(ticket, rank, items, self._now_s)

    def hold(self, ticket: int, epoch: int) -> None:
        """Keep an item incomplete until it is resumed."""
        self.engine.held(ticket, self._now_s, epoch)

    def resume(self, ticket: int, items: Sequence[Any], value: Any, epoch: int) -> None:
        """Add children of a held item and resume it."""
        self.engine.resumed(ticket, items, value, self._now_s, epoch)

    def note(self, notices: Sequence[Any]) -> None:
        """Ignore notices, because events are recorded where they happen."""

    def note_synced(self, notices: Sequence[Any]) -> bool:
        self.note(notices)
        return True

    def is_stopping(self) -> bool:
        """Return whether the job stops, from the view of the rank's workers."""
        if not self.engine.reasons:
            return False
        if self._noticed_s is None:
            self._noticed_s = self._now_s
        return self._now_s >= self._noticed_s + self._walk.deaf_s

    def has_idle_workers(self) -> bool:
        """Return whether a worker waits for work."""
        return self.engine.has_idle_workers()

    # ---- events -----------------------------------------------------------------

    def make(self, number: int, above: int | None) -> None:
        """Create a directory in an existing one."""
        made = self.record.made
        assert number not in made, f"{number} is made twice"
        assert above is None or above in made, f"{number} is made in {above}, which is not there"
        made.add(number)
        self.record.disks.write(self._node, _made(number))

    def process(self, number: int) -> None:
        """Process a file or a directory."""
        self.items += 1
        self.numbers += number
        self.record.processed[number] += 1
        assert self.record.processed[number] == 1, f"{number} is done twice"
        self.record.disks.write(self._node, number)
        every = self.case.notice_every
        if every and number % every == 0:
            self.record.noted.append((self.engine.rank, number))
            self.engine.outbox.add(number, self.case.notice_bytes)

    def check_below(self, number: int) -> None:
        """Check that all entries below a directory are done, including verification."""
        record, grove = self.record, self.grove
        for below in range(*grove.range[number]):
            if below == number or below not in grove.numbers:
                continue
            assert record.processed[below], f"{number} is completed before {below}"
            if self.verifies and grove.is_verified(below):
                assert below in record.verified, f"{number} is completed, {below} is not verified"

    def await_commit(self, context: Context[Any], check: Check) -> None:
        """Hold an item until its work is on disk and can be read again."""
        self._awaiting.append((self.epoch, StartItem(context.ticket, None), [check]))
        context.hold(self.epoch)

    def read_again(self, number: int) -> None:
        """Read a file again, once, from the disk."""
        record = self.record
        assert record.disks.is_stable(number), f"{number} is read again, but is not on disk"
        assert number not in record.verified, f"{number} is read again twice"
        record.verified.add(number)

    def record_done(self, epoch: int, numbers: Sequence[int], directory: int) -> None:
        """Record in the journal that these are done, in an existing directory."""
        record, grove = self.record, self.grove
        undone = [number for number in numbers if not record.processed[number]]
        assert not undone, f"{directory} is recorded, but {undone[:5]} are not done"
        made = [
            _made(made_number)
            for made_number in {*numbers, *grove.way(directory)}
            if not grove.is_file(made_number)
        ]
        record.disks.record(epoch, [*numbers, *made])

    # ---- items -----------------------------------------------------------------

    def _seed(self) -> None:
        count = len(self.grove.roots)
        self.engine.seed([Tree(root, b"", 1.0 / count) for root in range(count)], self._now_s)

    def _begin_items(self) -> None:
        while self._waiting and self.working < self.case.settings.workers:
            start = self._waiting.popleft()
            self.working += 1
            context: Context[Any] = Context(start.ticket, self)
            if self.is_stopping():
                self._item_ended(start, None)
            else:
                self._work(start, partial(self._process, start.item, context))

    def _work(
        self, start: StartItem[Any], work: Callable[[Hand], Any], *, joining: bool = False
    ) -> None:
        hand = self._free.pop() if self._free else Hand(self, self._walker_type)

        def ended(value: Any) -> None:
            self._steps_of.discard(steps)
            assert not hand.directories.leased, f"{start.item} leaves leases"
            self._free.append(hand)
            self._item_ended(start, value, joining=joining)

        steps = Stepwise(lambda: work(hand), ended)
        hand.visitor.pause, hand.visitor.joining = steps.pause, joining
        self._steps_of.add(steps)
        self._go(steps)

    def _go(self, steps: Stepwise) -> None:
        # The walker's items take 10 ms by its own clock, which must not begin with 0.
        item_s = self._walk.item_s
        self._clock.now_s = 1000.0 + (self._now_s * 0.01 / item_s if item_s else 0.0)
        wait_s = steps.step()
        if wait_s is not None:
            self._after(wait_s, self._go, steps)

    def _process(self, item: Item, context: Context[Any], hand: Hand) -> Any:
        visitor = hand.visitor
        if isinstance(item, Tree):
            walked = hand.walker.tree(item, context)
            return walked if isinstance(walked, list) else {item.slot: visitor.since(walked)}
        if isinstance(item, Batch):
            return {item.slot: visitor.since(hand.walker.batch(item, context))}
        visitor.begin(item, context)
        slots = visitor.check(item, context)
        visitor.end(context, ())
        return {slot: visitor.since(part) for slot, part in slots.items()}

    def _join(
        self, hand: Hand, item: Item, own: Any, merged: Slots, context: Context[Any]
    ) -> Slots:
        visitor = hand.visitor
        if isinstance(item, Tree):
            return {item.slot: visitor.since(hand.walker.join(own, merged, context))}
        visitor.begin(item, context)
        done = merge_slots(own, merged)
        visitor.reached(max(part.epoch for part in done.values()))
        visitor.end(context, ())
        return {slot: visitor.since(part) for slot, part in done.items()}

    def _item_ended(self, start: StartItem[Any], value: Any, *, joining: bool = False) -> None:
        if not joining:
            self.working -= 1
            self.record.reached["open when it stops"] += isinstance(value, list) and bool(
                self.engine.reasons
            )
            if any(number == start.ticket for number, _ in self.engine.joins.items()):
                self.record.begun[start.item] = 0
        self.engine.finished(start.ticket, value, self._now_s)
        if not joining:
            self._begin_items()

    def _complete(self, complete: CompleteItem[Any]) -> None:
        item, own, merged = complete.item, complete.own, complete.merged
        self._join_ended(item, own)
        context: Context[Any] = Context(complete.ticket, self)

        def join(hand: Hand) -> Any:
            return self._join(hand, item, own, merged, context)

        self._work(StartItem(complete.ticket, item), join, joining=True)

    def _join_ended(self, item: Any, own: Any) -> None:
        self.record.begun[item] += 1

    def _conclude(self, conclude: Conclude[Any]) -> None:
        super()._conclude(conclude)
        slots = conclude.result
        if slots is not None:
            assert list(slots) == [0], f"the job's result has the slots {list(slots)}"
            self.record.result = slots[0].result
            self.record.failed = slots[0].failed

    def close(self) -> None:
        """End the items that are still running."""
        for steps in self._steps_of:
            steps.close()


def _made(number: int) -> int:
    """Return the number that represents the creation of a directory, not its completion."""
    return -1 - number
