"""Play ranks: execute the engine's instructions in virtual time, and record events for the judge.

Where the real runtime has worker threads, files and segments on disk, a player has timers: an item
spawns a part of its children in its middle and the remaining ones at its end, a completion takes a
while, a spilled segment takes a while to come back. Everything else is the engine itself.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from random import Random
from typing import Any, ClassVar

import msgspec

from pcircle.circle import Engine, FinalAccount, Message, Parcel, ProgressSums
from pcircle.circle.engine import STOPPED
from pcircle.circle.instructions import (
    AbandonItem,
    CommitEpoch,
    CompleteItem,
    Conclude,
    DeliverNotices,
    DiscardSegments,
    FetchSegment,
    Instruction,
    SealEpoch,
    Send,
    ShowProgress,
    SpillSegment,
    StartItem,
    StopRank,
)
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
from pcircle.core.errors import StoppedEarly, worst
from pcircle.transport._sim import SimTransport
from pcircle.transport.contract import Delivery, LostRank
from tests.sim.cases import AbortAt, Case
from tests.sim.disks import Disks
from tests.sim.work import NOTHING, Item, Result, expected, merge, own_result

# Messages with the types of this work's items and results.
WIRE = (
    StealRequest
    | StealRefusal
    | LifelineRequest
    | WorkTransfer[Item, Result]
    | BundleResults[Result]
    | PinnedWork[Item]
    | ItemResult[Result]
    | NoticeBatch[int]
    | NoticeReply
    | SafraToken
    | TreeBroadcast
    | TreeReduction[Result]
    | Abort
)
# An item with this many steps without progress spins: a real rank would use a whole processor.
SPIN_LIMIT = 10


class Outcome(msgspec.Struct, frozen=True):
    """How a rank stopped."""

    code: int
    agreed: bool
    at_s: float


class Record:
    """The events of a job, for the judge; a real job has no observer that sees all of it."""

    def __init__(self, size: int, disks: Disks) -> None:
        self.disks = disks
        self.epochs: dict[Item, int] = {}  # of the results
        self.processed = bytearray(size)  # number of times per directory
        self.begun: dict[Any, int] = {}  # opened joins: how often they ended
        self.notices: list[tuple[int, int]] = []  # source and value
        self.noted: list[tuple[int, int]] = []
        self.shows: list[tuple[float, ProgressSums]] = []
        self.account: FinalAccount[Any] | None = None
        self.result: Result | None = None
        self.concluded_s: float | None = None
        self.abort_codes: list[int] = []  # sent to ranks that had not given their accounts
        self.aborted_s: float | None = None
        self.cut_short: list[Any] = []  # items that ran when their rank stopped
        # In jobs that walk: directories that were created or failed, files that were read again.
        self.made: set[int] = set()
        self.failed = 0
        self.verified: set[int] = set()
        self.reached: Counter[str] = Counter()


class Player:
    """One rank: an engine, and timers in place of the file work."""

    merge: ClassVar[Any] = staticmethod(merge)
    nothing: ClassVar[Any] = NOTHING

    def __init__(
        self, rank: int, case: Case, record: Record, engine_type: type[Engine[Any, Any]]
    ) -> None:
        self.case = case
        self.record = record
        self.duration_s = case.forest.duration_s  # a test may replace it
        self.items = 0
        self.numbers = 0
        self.epoch = 1
        self._awaiting: list[tuple[int, StartItem[Any], list[Any]]] = []
        self.trace: Callable[[str], None] | None = None
        self.engine: Engine[Any, Any] = engine_type(
            rank,
            case.ranks,
            merge=self.merge,
            rng=Random(f"{case.family} {case.seed} {rank}"),
            settings=case.settings,
            nodes=case.nodes,
            measure=lambda: ProgressSums((self.items, self.numbers), float(self.items), 1),
            report=lambda: b"%d" % self.items,
        )
        self.store: dict[int, tuple[Parcel[Item], ...]] = {}
        self.working = 0
        self._waiting: deque[StartItem[Any]] = deque()
        self._held: list[tuple[StartItem[Item], list[Item]]] = []
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._steps = 0
        self._aborts = [abort for abort in case.aborts if abort.rank == rank]
        self._now_s = 0.0
        self._stop: StopRank | None = None
        self._taken: list[Instruction[Item, Result]] = []  # and not yet executed
        self._has_given = False  # its account, after which an abort is too late
        self._idle_steps = 0
        self._noted: dict[int, int] = {}  # notices submitted by the end of each epoch's sync
        self._unheard = False  # a pack of notices is in transit

    # ---- the loop --------------------------------------------------------------------------------

    def play(self, t: SimTransport) -> Generator[float | None, list[Delivery | LostRank], Outcome]:
        """Run the program of this rank."""
        engine = self.engine
        self._now_s = t.now_s
        if engine.rank == 0:
            self._after(self.case.seed_at_s, self._seed)
        for abort in self._aborts:
            if not abort.step:
                self._at(abort.at_s, self._abort, abort)
        arrivals: list[Delivery | LostRank] = []
        while True:
            self._now_s = t.now_s
            self._events(arrivals)
            acted = bool(arrivals)
            while instructions := self._taken + engine.take():
                acted = True
                self._taken = []
                for instruction in instructions:
                    self._carry_out(t, instruction)
            if self._stop is not None:
                return self._stopped(t, self._stop)
            self._idle_steps = 0 if acted else self._idle_steps + 1
            assert self._idle_steps < SPIN_LIMIT, f"rank {engine.rank} spins"
            arrivals = yield self._timeout_s()

    def _events(self, arrivals: list[Delivery | LostRank]) -> None:
        now_s = self._now_s
        engine = self.engine
        self._steps += 1
        for abort in self._aborts:
            if abort.step == self._steps:
                self._abort(abort)
        for arrival in arrivals:
            if self.trace is not None:
                self.trace(f"{now_s:.6f} {engine.rank:>4} < {arrival}")
            if isinstance(arrival, LostRank):
                engine.rank_lost(arrival.rank, arrival.reason, now_s)
            else:
                message: Any = arrival.payload
                self._unheard = self._unheard and not isinstance(message, NoticeReply)
                engine.receive(arrival.source, message, now_s)
        timers = self._timers
        if not arrivals and not (timers and timers[0][0] <= now_s):
            engine.tick(now_s)
        while timers and timers[0][0] <= now_s:
            _, _, action, arguments = heappop(timers)
            self._idle_steps = 0
            action(*arguments)

    def _timeout_s(self) -> float | None:
        wakeup_s = self.engine.wakeup_s()
        if self._timers and (wakeup_s is None or self._timers[0][0] < wakeup_s):
            wakeup_s = self._timers[0][0]
        return None if wakeup_s is None else max(0.0, wakeup_s - self._now_s)

    def _at(self, time_s: float, action: Callable[..., None], *arguments: Any) -> None:
        self._serial += 1
        heappush(self._timers, (time_s, self._serial, action, arguments))

    def _after(self, wait_s: float, action: Callable[..., None], *arguments: Any) -> None:
        self._at(self._now_s + wait_s, action, *arguments)

    def _seed(self) -> None:
        self.engine.seed(self.case.forest.roots(), self._now_s)

    def _abort(self, abort: AbortAt) -> None:
        reason = f"rank {abort.rank} was told to abort with {abort.code}"
        if self.record.aborted_s is None:
            self.record.aborted_s = self._now_s
        # The messages of the rank show whether an abort counts, regardless of the engine's view.
        self._taken += self.engine.take()
        if not (self._has_given or any(map(_gives_account, self._taken))):
            self.record.abort_codes.append(abort.code)
        self.engine.abort(abort.code, reason, self._now_s)

    # ---- instructions --------------------------------------------------------------------------

    def _carry_out(self, t: SimTransport, instruction: Instruction[Item, Result]) -> None:
        if self.trace is not None:
            self.trace(f"{self._now_s:.6f} {self.engine.rank:>4} > {instruction}")
        assert self._stop is None, f"an instruction after Stop: {instruction}"
        self._has_given = self._has_given or _gives_account(instruction)
        if isinstance(instruction, Send):
            message: Message = instruction.message
            if isinstance(message, NoticeBatch):
                assert not self._unheard, "a second pack of notices is sent before rank 0 has heard"
                self._unheard = True
            t.send(instruction.dest, message)
        elif isinstance(instruction, StartItem):
            self._waiting.append(instruction)
            self._begin_items()
        elif isinstance(instruction, CompleteItem):
            self._complete(instruction)
        elif isinstance(instruction, SpillSegment | FetchSegment | DiscardSegments):
            self._segments(instruction)
        elif isinstance(instruction, AbandonItem):
            self._join_ended(instruction.item, instruction.own)
        elif isinstance(instruction, DeliverNotices):
            self.record.notices += [(instruction.source, value) for value in instruction.values]
        elif isinstance(instruction, ShowProgress):
            self.record.shows.append((self._now_s, instruction.sums))
        elif isinstance(instruction, SealEpoch | CommitEpoch):
            self._epochs(instruction)
        elif isinstance(instruction, Conclude):
            self._conclude(instruction)
        else:
            self._stop = instruction

    # ---- epochs ----------------------------------------------------------------------------------

    def _epochs(self, instruction: SealEpoch | CommitEpoch) -> None:
        disks, epoch = self.record.disks, instruction.epoch
        if isinstance(instruction, CommitEpoch):
            disks.mark(epoch)
            self._check_notices(epoch)
            self._tell_of(epoch)
            due = [awaiting for awaiting in self._awaiting if awaiting[0] <= epoch]
            self._awaiting = [awaiting for awaiting in self._awaiting if awaiting[0] > epoch]
            for awaited, start, children in due:
                self.engine.resumed(start.ticket, children, self.nothing, self._now_s, awaited)
            return
        if not self.case.late_seals:
            self.epoch = epoch + 1
        seen = disks.syncs[self._node].begun
        self._sync(epoch, seen - 1 if self.case.stale_syncs else seen)

    def _check_notices(self, epoch: int) -> None:
        """Check that rank 0 has the notices of committed work, which is not repeated."""
        rank, aborts = self.engine.rank, self.case.aborts or self.case.conditions.kills
        received = sum(source == rank for source, _ in self.record.notices)
        wanted = 0 if aborts else self._noted.get(epoch, 0)
        assert received >= wanted, f"epoch {epoch} is committed before rank 0 has received {rank}'s"

    def _tell_of(self, epoch: int) -> None:
        """Report a failure like that of a journal write; possible until the account is given."""
        if self.case.notice_every and not self.engine.shutdown.gather.closed:
            self.record.noted.append((self.engine.rank, -epoch))
            self.engine.outbox.add(-epoch, self.case.notice_bytes)

    def _sync(self, epoch: int, seen: int) -> None:
        """Sync for one rank of a node at a time; skip it if another rank has synced the work."""
        disks, node = self.record.disks, self._node
        syncs = disks.syncs[node]
        if syncs.covers(seen):
            disks.spared += 1
            self._synced(epoch)
        elif node in disks.busy:
            self._after(max(1e-4, self.case.sync_s / 4), self._sync, epoch, seen)
        else:
            disks.busy.add(node)
            self._after(self.case.sync_s / 4, self._begin_sync, epoch)  # ranks may join meanwhile

    def _begin_sync(self, epoch: int) -> None:
        disks, node = self.record.disks, self._node
        disks.syncs[node] = disks.syncs[node].started()
        self._after(self.case.sync_s, self._end_sync, epoch, disks.begin_sync(node))

    def _end_sync(self, epoch: int, found: set[int]) -> None:
        disks, node = self.record.disks, self._node
        disks.syncs[node] = disks.syncs[node].finished()
        disks.busy.remove(node)
        disks.end_sync(node, found)
        self._synced(epoch)

    def _synced(self, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch + 1)
        if self.case.notice_every:
            self._noted[epoch] = sum(rank == self.engine.rank for rank, _ in self.record.noted)
        self.engine.synced(epoch, self._now_s)

    @property
    def _node(self) -> int:
        return self.case.nodes[self.engine.rank]

    def _record(self, item: Item, epoch: int) -> None:
        """Record a known result: the whole item, or without joins only its own number."""
        self.record.epochs[item] = epoch
        whole = self.case.settings.structured
        self.record.disks.record(epoch, range(*item) if whole else item[:1])

    def _epoch_of(self, item: Item) -> int:
        """Return the epoch of an item that ends now: the latest among it and its children."""
        below = [self.record.epochs[child] for child in self.case.forest.children(item)]
        if self.case.forgetful_joins:
            below = []
        return max([self.epoch, self.record.epochs.get(item, 0), *below])

    def _begin_items(self) -> None:
        while self._waiting and self.working < self.case.settings.workers:
            start = self._waiting.popleft()
            self.working += 1
            forest = self.case.forest
            children = forest.children(start.item)
            if self._kept_back(start.item) is not None:
                children.pop()
            early = children[: round(len(children) * forest.early)]
            duration_s = self.duration_s(start.item)
            if self._is_held(start) and not self._is_awaiting(start):
                self.engine.held(start.ticket, self._now_s)
            if early:
                self._after(duration_s / 2, self._spawn, start, early)
            self._after(duration_s, self._finish, start, children[len(early) :], bool(children))

    def _kept_back(self, item: Item) -> Item | None:
        """Return the child that the completion of an item spawns, if it has children."""
        return self.case.forest.kept_back(item) if self.case.settings.structured else None

    def _is_held(self, start: StartItem[Item]) -> bool:
        return self.case.settings.structured and self.case.forest.is_held(start.item)

    def _is_awaiting(self, start: StartItem[Item]) -> bool:
        """Return whether an item is held for a commit."""
        return self.case.settings.epoch_period_s is not None and self._is_held(start)

    def _spawn(self, start: StartItem[Item], children: list[Item]) -> None:
        forest, engine = self.case.forest, self.engine
        free = [child for child in children if not forest.is_posted(child)]
        for child in children:
            if forest.is_posted(child):
                engine.posted(start.ticket, child[0] % self.case.ranks, [child], self._now_s)
        if free:
            engine.spawned(start.ticket, free, self._now_s)

    def _resume(self, start: StartItem[Item], children: list[Item]) -> None:
        self.engine.resumed(start.ticket, children, NOTHING, self._now_s)

    def _resume_held(self) -> None:
        held, self._held = self._held, []
        for start, children in held:
            self._resume(start, children)

    def _finish(self, start: StartItem[Item], remaining: list[Item], spawned: bool) -> None:
        self.working -= 1
        number = start.item[0]
        self.items += 1
        self.numbers += number
        self.record.processed[number] += 1
        engine = self.engine
        self.record.disks.write(self._node, number)
        self.record.epochs[start.item] = self.epoch
        self._resume_held()
        held = self._is_held(start)
        if self._is_awaiting(start):
            engine.held(start.ticket, self._now_s, self.epoch)
            self._awaiting.append((self.epoch, start, remaining))
        elif held and len(engine.running) > 1:
            self._held.append((start, remaining))  # for the next item that ends here
        elif held:
            self._resume(start, remaining)
        elif remaining:
            self._spawn(start, remaining)
        if (spawned or held) and any(number == start.ticket for number, _ in engine.joins.items()):
            self.record.begun[start.item] = 0
        elif spawned or held:  # after an abort, which has dropped its children
            self.record.disks.record(self.epoch, (number,))
        else:
            self._record(start.item, self.epoch)
        every = self.case.notice_every
        if every and number % every == 0:
            self.record.noted.append((engine.rank, number))
            engine.outbox.add(number, self.case.notice_bytes)
        engine.finished(start.ticket, own_result(start.item), self._now_s)
        self._begin_items()

    def _complete(self, complete: CompleteItem[Item]) -> None:
        item, last_child = complete.item, self._kept_back(complete.item)
        first = last_child is not None and complete.own == own_result(item)
        begin, end = item[0] + 1, item[1]
        if last_child is not None:
            begin, end = (begin, last_child[0]) if first else last_child
        below = expected(begin, end)
        assert complete.merged == below, f"{item} merged {complete.merged}, not {below}"
        own = complete.own
        self._join_ended(item, own)
        assert isinstance(own, tuple)
        value = merge(own, complete.merged)
        last = self._again if first else self._completed
        if self.case.fetch_s:
            wait_s = self.case.forest.completion_s(item)
            self._after(wait_s, last, complete.ticket, value)
        else:
            last(complete.ticket, value)

    def _completed(self, ticket: int, value: Result) -> None:
        item = self.engine.running[ticket].item
        self._record(item, self._epoch_of(item))
        self._resume_held()
        self.engine.finished(ticket, value, self._now_s)

    def _again(self, ticket: int, value: Result) -> None:
        """Spawn the last child in an item's completion, which will be called again."""
        item = self.engine.running[ticket].item
        last_child = self._kept_back(item)
        assert last_child is not None
        self.engine.spawned(ticket, [last_child], self._now_s)
        self._resume_held()
        if any(number == ticket for number, _ in self.engine.joins.items()):
            self.record.begun[item] = 0
        self.engine.finished(ticket, value, self._now_s)

    def _join_ended(self, item: Item, own: object) -> None:
        last_child, whole = self._kept_back(item), own_result(item)
        if last_child is not None and own != whole:
            whole = merge(whole, expected(item[0] + 1, last_child[0]))
        assert own == whole, f"{item} came back with another's own result, {own}"
        self.record.begun[item] += 1

    def _segments(self, instruction: SpillSegment[Item] | FetchSegment | DiscardSegments) -> None:
        if isinstance(instruction, SpillSegment):
            assert instruction.segment not in self.store, "a segment is spilled twice"
            self.store[instruction.segment] = instruction.parcels
        elif isinstance(instruction, DiscardSegments):
            for segment in instruction.segments:
                del self.store[segment]
        else:
            parcels = self.store.pop(instruction.segment)
            if self.case.fetch_s:
                self._after(self.case.fetch_s, self._fetched, instruction.segment, parcels)
            else:
                self._fetched(instruction.segment, parcels)

    def _fetched(self, segment: int, parcels: tuple[Parcel[Item], ...]) -> None:
        self.engine.fetched(segment, parcels, self._now_s)

    def _conclude(self, conclude: Conclude[Result]) -> None:
        account = conclude.account
        self.record.account = account
        self.record.result = conclude.result
        self.record.concluded_s = self._now_s
        code = worst((account.code, StoppedEarly.exit_code if account.silent else 0))
        self.engine.conclude(code, self._now_s)

    def close(self) -> None:
        """End the job."""

    def _stopped(self, t: SimTransport, stop: StopRank) -> Outcome:
        self.record.cut_short += [parcel.item for parcel in self.engine.running.values()]
        assert self.engine.phase == STOPPED
        account = self.record.account
        # Unreachable ranks receive nothing either: only the transport can end such a job.
        alone = not stop.agreed and not self.engine.lost
        if self.engine.rank == 0 and account is not None:
            alone = alone or bool(set(account.silent) - self.engine.lost)
        if alone:
            t.abort(stop.code)
        t.close()
        return Outcome(stop.code, stop.agreed, self._now_s)


def _gives_account(instruction: Instruction[Item, Result]) -> bool:
    """Return whether an instruction sends a rank's final account."""
    if isinstance(instruction, Send):
        return (
            isinstance(instruction.message, TreeReduction)
            and instruction.message.account is not None
        )
    return isinstance(instruction, Conclude)
