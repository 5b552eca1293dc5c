"""The engine: one rank's part of a job and its shutdown, as a pure state machine.

Events go in (a message arrived, an item finished, time passed) and instructions come out (send this
message, start that item). The engine contains no I/O, threads, clock or random generator. So the
same code runs under MPI, in forked processes, and in a simulator with thousands of ranks and
virtual time. The simulator reproduces a failing run from its seed.

A job passes through four phases, which are the same on every rank:

    WORKING    items run, thieves steal, waves detect quiescence
    DRAINING   no more work; after an abort, waves count *all* loose messages
    GATHERING  one round up the tree collects every rank's account; waves may follow
    STOPPED    the exit code that rank 0 derived from the accounts has arrived

Structured work ends when the join of the seeds is complete, unstructured work when the detector
finds that all ranks are quiescent. An abort is broadcast along the tree. A rank that receives it
drops its queue, abandons its open joins and waits only for running items. Rank 0 also sets a
deadline for the final rounds.

`Shutdown` drains messages, delivers the rank's final account and enforces the deadlines. A job that
ends normally has no deadline. Its accounts are collected in one round of the tree, which also sums
the message counters. If the sums do not balance, waves follow until no message is in flight (for
the argument, see `pcircle.circle.termination`). Until then rank 0 withholds its own account,
because an abort is still possible until rank 0 concludes. After an abort the waves precede the
accounts, and both have a deadline: half of `EngineSettings.final_deadline_s` for the waves, and a
quarter of it for the accounts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Generic

from pcircle.circle import instructions as do
from pcircle.circle import messages
from pcircle.circle.instructions import EngineSettings
from pcircle.circle.joins import ROOT, Joins
from pcircle.circle.messages import I, R
from pcircle.circle.notices import NoticeSender, Outbox
from pcircle.circle.queue import Queue
from pcircle.circle.rounds import (
    EpochRounds,
    GatherRound,
    Outgoing,
    ProgressRounds,
    earlier,
    merge_accounts,
)
from pcircle.circle.stealing import WorkSharing
from pcircle.circle.termination import Detector, DrainWaves, FourCounter, TokenRing
from pcircle.circle.topology import Locality, NodeMap, TreePosition
from pcircle.core.errors import Defect, RankLost, StoppedEarly, worst

if TYPE_CHECKING:
    from pcircle.circle.instructions import Activity

WORKING, DRAINING, GATHERING, STOPPED = range(4)
# If fewer items are waiting, none is started in advance, because a started item cannot be stolen,
# and near the end of a job many ranks would wait for it.
MIN_QUEUE_TO_RUN_AHEAD: int = 16


class Engine(Generic[I, R]):
    """The state machine of one rank of a job.

    `merge` combines two results and must be associative and commutative. `measure` returns this
    rank's progress counters. `report` returns the rank's encoded report for the final account.
    `contribution`, which is called afterwards, returns the value that the rank adds to the result.
    Any thread may add values to `outbox` at any time; they are sent to rank 0 in batches. A driver
    calls an event method, then executes the instructions that `take` returns. It calls `tick` no
    later than at `wakeup_s`.
    """

    settings: EngineSettings

    def __init__(
        self,
        rank: int,
        size: int,
        *,
        merge: Callable[[R, R], R],
        rng: Random,
        settings: EngineSettings | None = None,
        nodes: Sequence[int] | NodeMap | None = None,
        measure: Callable[[], messages.ProgressSums] = lambda: messages.ProgressSums(ranks=1),
        report: Callable[[], bytes] = bytes,
        contribution: Callable[[], R | None] = lambda: None,
    ) -> None:
        self.settings = settings = settings or EngineSettings()
        self.workers: int = settings.workers  # may change at any time
        self.rank: int = rank
        self.size: int = size
        places = nodes if isinstance(nodes, NodeMap) else NodeMap(nodes or [0] * size)
        self.tree: TreePosition = TreePosition(rank, size, settings.arity, places)
        self.queue: Queue[I] = Queue(settings.queue_high)
        self.pinned: deque[messages.Parcel[I]] = deque()  # items that must not be stolen
        self.joins: Joins[I, R] = Joins(merge)
        self.phase: int = WORKING
        self.code: int = 0
        self.reasons: tuple[str, ...] = ()
        self.running: dict[int, messages.Parcel[I]] = {}
        self.detector: Detector = (
            FourCounter(self.tree, messages.QUIESCE)
            if settings.termination == "counters"
            else TokenRing(rank, size)
        )
        self.progress: ProgressRounds = ProgressRounds(
            self.tree, settings.progress_period_s, measure
        )
        self.shutdown: Shutdown[R] = Shutdown(
            self.tree, settings.final_deadline_s, self._own_account, merge
        )
        self.epochs: EpochRounds = EpochRounds(self.tree, settings.epoch_period_s)
        self.outbox: Outbox = Outbox()
        self.notices: NoticeSender = NoticeSender(self.outbox, rank, size)
        locality = Locality(rank, places)
        self.sharing: WorkSharing[I, R] = WorkSharing(
            locality, settings, self.queue, self.joins, rng
        )
        self.activity: Activity = self.sharing.activity
        self.lost: set[int] = set()
        self._merge = merge
        self._report = report
        self._contribution = contribution
        self._value: R | None = None  # the result of unstructured work
        self._result: R | None = None  # the result of the root join
        self._seeded = rank != 0
        self._aborted = False
        self._n_open_joins = 0  # when the job was aborted
        self._out: list[do.Instruction[I, R]] = []
        if rank == 0 and settings.structured:
            self.joins.expect(ROOT.number, None, 0)

    # ---- what the driver calls -------------------------------------------------

    def take(self) -> list[do.Instruction[I, R]]:
        """Return the instructions since the last call, to be executed in this order."""
        out, self._out = self._out, []
        return out

    def seed(self, items: Iterable[I], now_s: float) -> None:
        """Set the initial items of the job, if there are any. Called once, on rank 0."""
        if self._aborted:
            return
        if self._seeded:
            raise Defect("a job is seeded once, on rank 0")
        self._seeded = True
        if self.settings.structured:
            self._push(self._children(ROOT, None, items))
            self.joins.processed(ROOT.number, None)
            self._complete_if_done(ROOT.number)
        else:
            self._push(self._children(None, None, items))
        self._advance(now_s)

    def spawned(self, ticket: int, items: Iterable[I], now_s: float) -> None:
        """Add items that a running item has created. After an abort they are dropped."""
        parcel = self.running[ticket]
        ref = messages.JoinRef(self.rank, ticket) if self.settings.structured else None
        if not self._aborted:
            self._push(self._children(ref, parcel, items))
        elif ref is not None:
            # The completion will never run, so `AbandonItem` must undo the item once it has
            # finished.
            self.joins.expect(ticket, parcel, 0)
        self._advance(now_s)

    def posted(self, ticket: int, rank: int, items: Iterable[I], now_s: float) -> None:
        """Send items that a running item has created to the only rank that can process them."""
        if not self._aborted:
            ref = messages.JoinRef(self.rank, ticket) if self.settings.structured else None
            parcels = self._children(ref, self.running[ticket], items)
            if rank == self.rank:
                self.pinned.extend(parcels)
            else:
                self._send(rank, messages.PinnedWork(tuple(parcels)))
        self._advance(now_s)

    def held(self, ticket: int, now_s: float, epoch: int = 0) -> None:
        """Hold a running item open until `resumed` is called, once per hold.

        With `epoch`, the item waits for the commit of that epoch.
        """
        if not self._aborted and self.settings.structured:
            self.joins.expect(ticket, self.running[ticket], 1)
            if epoch:
                self.epochs.await_commit(epoch)
        self._advance(now_s)

    def resumed(
        self,
        ticket: int,
        items: Iterable[I],
        value: R,
        now_s: float,
        epoch: int = 0,
    ) -> None:
        """End one hold of an item: add the items that this creates, and merge a result."""
        if not self._aborted:
            self.epochs.awaited -= bool(epoch)
            parcel = self.joins.peek(ticket).parcel
            self._push(self._children(messages.JoinRef(self.rank, ticket), parcel, items))
            self._take_result(ticket, value)
        self._advance(now_s)

    def finished(self, ticket: int, value: Any, now_s: float) -> None:
        """Record that an item, or its completion, has run.

        `value` is the result or, if the completion will follow, the value that is passed to it.
        """
        parcel = self.running.pop(ticket)
        join = self.joins.processed(ticket, value)
        if self._aborted:
            if join is not None:
                self._abandon_joins()
        elif join is None:
            self._resolve(parcel.parent, value)
        else:
            self._complete_if_done(ticket)
        self._advance(now_s)

    def fetched(self, segment: int, parcels: Iterable[messages.Parcel[I]], now_s: float) -> None:
        """Put a segment that was read back into the queue."""
        if not self._aborted:
            self.queue.fetched(segment, parcels)
            self._spill()
        self._advance(now_s)

    def synced(self, epoch: int, now_s: float) -> None:
        """Record that this rank's work of a sealed epoch is on disk."""
        # Committed work is not repeated after a crash, so rank 0 must first receive its notices.
        self.epochs.synced(epoch, self.outbox.added)
        self._advance(now_s)

    def tick(self, now_s: float) -> None:
        """Perform the actions that are due at this time."""
        self._advance(now_s)

    def abort(self, code: int, reason: str, now_s: float) -> None:
        """Stop the job early on all ranks, for a reason that arose on this rank."""
        self._abort(code, reason, None, now_s)
        self._advance(now_s)

    def rank_lost(self, rank: int, reason: str, now_s: float) -> None:
        """Record that another rank has died and will not answer."""
        self.lost.add(rank)
        if self.phase != STOPPED:
            lost = RankLost.of(rank, reason)
            self._abort(lost.exit_code, str(lost), None, now_s)
        self._advance(now_s)

    def conclude(self, code: int, now_s: float) -> None:
        """On rank 0, stop all ranks with the exit code that was derived from the accounts."""
        for child in self.tree.children:
            self._send(child, messages.TreeBroadcast(messages.STOP, 1, code))
        self._stop(code, agreed=True)

    def receive(self, source: int, message: messages.Message, now_s: float) -> None:
        """Process a message."""
        if self.phase == STOPPED:
            return
        if not isinstance(message, messages.TREE):
            self.shutdown.drain.received()
        if isinstance(message, messages.BASIC):
            self.detector.received()
        if isinstance(message, messages.StealRequest):
            works = self.phase == WORKING and not self._aborted
            self._send_all(self.sharing.answer(source, message, works, self.lost))
        elif isinstance(message, messages.LifelineRequest):
            self.sharing.lifelines.add_waiter(source)
        elif isinstance(message, messages.WorkTransfer):
            self.sharing.got(source, message)
            if not self._aborted:
                self._push(self.sharing.bundles.take(source, message))
        elif isinstance(message, messages.BundleResults):
            self._take_results(message)
        elif isinstance(message, messages.PinnedWork):
            if not self._aborted:
                self.sharing.fed()
                self.pinned.extend(message.parcels)
        elif isinstance(message, messages.StealRefusal):
            self.sharing.refused()
        elif isinstance(message, messages.ItemResult):
            self._take_result(message.join, message.value)
        elif isinstance(message, messages.TreeBroadcast | messages.TreeReduction):
            self._round(source, message, now_s)
        elif isinstance(message, messages.NoticeBatch):
            self._out.append(do.DeliverNotices(source, message.values))
            self._send(source, messages.NoticeReply())  # executed after the delivery
        elif isinstance(message, messages.NoticeReply):
            self.notices.answered(refused=message.refused)
        elif isinstance(message, messages.SafraToken):
            self._send_all(self.detector.handle(source, message))
        else:
            self._abort(message.code, message.reason, source, now_s)
        self._advance(now_s)

    def wakeup_s(self) -> float | None:
        """Return the time at which `tick` must be called if nothing else happens, or None."""
        phase = self.phase
        due_s = self.shutdown.give_up_s
        if phase != STOPPED:
            due_s = earlier(due_s, self.epochs.wakeup_s())
            due_s = earlier(due_s, self.notices.wakeup_s())
        if phase == WORKING:
            due_s = earlier(due_s, self.progress.wakeup_s())
            due_s = earlier(due_s, self.sharing.bundles.wakeup_s())
            if self._lacks_work:
                due_s = earlier(due_s, self.sharing.thief.ask_at_s)
            if self.passive:
                due_s = earlier(due_s, self.detector.wakeup_s())
        elif phase == DRAINING:
            if self._is_settled:
                due_s = earlier(due_s, self.shutdown.drain.wakeup_s())
            if self.rank == 0:
                due_s = earlier(due_s, self.shutdown.drain_until_s)
        elif phase == GATHERING:
            due_s = earlier(due_s, self.shutdown.wakeup_s())
        return due_s

    def has_idle_workers(self) -> bool:
        """Return whether a worker here or elsewhere is waiting for work and none is queued here.

        The answer is a hint: any thread may call this method, without a lock.
        """
        # Called for each directory, so the condition that is usually false comes first.
        if not self.sharing.is_waited_for and len(self.running) >= self.workers:
            return False
        return not (len(self.queue) or self.pinned)

    @property
    def passive(self) -> bool:
        """Return whether only a basic message could make this rank send a basic message."""
        return self._idle and not self.epochs.awaited and not self.sharing.bundles.is_owing

    @property
    def _is_settled(self) -> bool:
        """Return whether everything that this rank started has ended, including requests."""
        return self.passive and self.notices.settled and self.sharing.thief.asked is None

    @property
    def _lacks_work(self) -> bool:
        """Return whether a worker of this rank is idle and there is no item for it."""
        idle = len(self.running) < self.workers
        return idle and not (len(self.queue) or self.pinned or self._aborted)

    @property
    def _idle(self) -> bool:
        waiting = len(self.queue) or self.pinned
        return self._seeded and not self.running and not waiting

    # ---- work ------------------------------------------------------------------

    def _children(
        self,
        ref: messages.JoinRef | None,
        parcel: messages.Parcel[I] | None,
        items: Iterable[I],
    ) -> list[messages.Parcel[I]]:
        """Wrap an item's children in parcels, and make its join expect them."""
        parcels = [messages.Parcel(item, ref) for item in items]
        self.activity.spawned += len(parcels)
        if ref is not None and parcels:
            self.joins.expect(ref.number, parcel, len(parcels))
        return parcels

    def _push(self, parcels: Iterable[messages.Parcel[I]]) -> None:
        self.sharing.fed()
        self.queue.push(parcels)
        self._spill()

    def _spill(self) -> None:
        for number, spilled in self.queue.spills:
            self.activity.spilled += len(spilled)
            self._out.append(do.SpillSegment(number, spilled))
        self.queue.spills.clear()

    def _resolve(self, parent: messages.JoinRef | None, value: R) -> None:
        """Deliver a final result to the join that is waiting for it."""
        if parent is None:
            self._value = value if self._value is None else self._merge(self._value, value)
        elif parent.rank == self.rank:
            self._take_result(parent.number, value)
        else:
            self._send(parent.rank, messages.ItemResult(parent.number, value))

    def _take_result(self, number: int, value: R, count: int = 1) -> None:
        if self._aborted:
            return
        self.joins.arrived(number, value, count)
        self._complete_if_done(number)

    def _take_results(self, returns: messages.BundleResults[R]) -> None:
        if not self._aborted:
            for join, count, value in self.sharing.bundles.returned(returns):
                self._take_result(join, value, count)

    def _complete_if_done(self, number: int) -> None:
        join = self.joins.peek(number)
        if not join.complete:
            return
        self.joins.close(number)
        if join.parcel is None:
            if number == ROOT.number:
                self._result = join.merged
                self._begin_draining()
            else:
                self.sharing.bundles.complete(number, join.merged)
            return
        self.running[number] = join.parcel
        self._out.append(do.CompleteItem(number, join.parcel.item, join.own, join.merged))

    def _dispatch(self) -> None:
        """Start items. Start more items than workers only while enough remain for thieves."""
        settings, pinned = self.settings, self.pinned
        while len(self.running) < self.workers + settings.ahead:
            thieves = self.size > 1 and len(self.queue) < MIN_QUEUE_TO_RUN_AHEAD and not pinned
            if thieves and len(self.running) >= self.workers:
                break
            parcel = pinned.popleft() if pinned else self.queue.pop()
            if parcel is None:
                break
            ticket = self.joins.number()
            self.running[ticket] = parcel
            self.activity.items += 1
            self._out.append(do.StartItem(ticket, parcel.item))

    # ---- rounds and phases -----------------------------------------------------

    def show_progress(self, now_s: float) -> None:
        """On rank 0, start a progress round now; it ends with a `ShowProgress` instruction."""
        if self.phase == WORKING:
            self._send_all(self.progress.ask(now_s))
            self._advance(now_s)

    def _round(
        self,
        source: int,
        message: messages.TreeBroadcast | messages.TreeReduction[R],
        now_s: float,
    ) -> None:
        kind = message.kind
        if kind == messages.PROGRESS:
            if self.phase == WORKING:
                self._send_all(self.progress.handle(source, message, now_s))
        elif kind in (messages.EPOCH, messages.COMMIT, messages.URGE):
            self._send_all(self.epochs.handle(source, message))
        elif kind == messages.QUIESCE:
            if self.phase == WORKING:
                self._send_all(self.detector.handle(source, message))
        elif kind == messages.DRAIN:
            self._begin_draining()
            self._send_all(self.shutdown.drain.handle(source, message))
        elif kind == messages.GATHER and isinstance(message, messages.TreeBroadcast):
            self._begin_gathering(now_s)
        elif kind == messages.GATHER and isinstance(message, messages.TreeReduction):
            self.shutdown.gather.handle(source, message)
        elif isinstance(message, messages.TreeBroadcast):
            for child in self.tree.children:
                self._send(child, messages.TreeBroadcast(messages.STOP, 1, message.code))
            self._stop(message.code, agreed=True)

    def _advance(self, now_s: float) -> None:
        if self.outbox:
            self._send_notices(now_s)
        if self.phase == WORKING:
            if len(self.queue) or self.pinned:
                self._dispatch()
            if self._lacks_work:
                self._send_all(self.sharing.seek(now_s, self.lost))
            elif self.sharing.is_serving and len(self.running) >= self.workers:
                self._send_all(self.sharing.serve())
            segment = self.queue.fetch()
            if segment is not None:
                self._out.append(do.FetchSegment(segment))
            self._send_all(self.sharing.bundles.results(now_s))
            self._send_all(self.detector.advance(self.passive, now_s))
            if self.detector.terminated:
                self._end_quiescent(now_s)
            self._send_all(self.progress.advance(now_s))
            self._out += self.progress.news()
        if self.phase != STOPPED:
            self._send_all(self.epochs.advance(self._idle, self.notices.heard, now_s))
            self._out += self.epochs.orders()
        if self.phase == DRAINING:
            self._drain(now_s)
        if self.phase == GATHERING:
            self._gather(now_s)
        if self.phase != STOPPED:
            overdue = self.shutdown.give_up_s is not None and now_s >= self.shutdown.give_up_s
            orphan = bool(self.lost) and not self.lost.isdisjoint(self.tree.ancestors)
            if overdue or (orphan and not self.running):
                self._stop(worst((self.code, StoppedEarly.exit_code)), agreed=False)

    def _drain(self, now_s: float) -> None:
        """After an abort, drain the messages in flight. Then, on rank 0, gather the accounts."""
        ends_well = self.rank == 0 and not self._aborted
        if not ends_well:
            self._send_all(self.shutdown.drain.advance(self._is_settled, now_s))
        drained = self.shutdown.drain.terminated and self.epochs.are_over(self._aborted, now_s)
        over = ends_well or drained or self.lost or self.shutdown.gives_up(now_s)
        if self.rank == 0 and over:
            self._begin_gathering(now_s)

    def _gather(self, now_s: float) -> None:
        """Give the account; on rank 0, conclude once all accounts and messages have arrived."""
        shutdown, gather = self.shutdown, self.shutdown.gather
        idle = not self.running and self.notices.settled and not self._owes_epoch(now_s)
        idle = idle and (self._is_settled or self._aborted)
        # A rank that has given its account starts nothing, whatever it is waiting for.
        self._send_all(shutdown.drain_after(gather.closed or self._is_settled, self.lost, now_s))
        if self.rank == 0:
            idle = idle and shutdown.is_drained(self.lost)
        self._send_all(gather.advance(self.lost, idle, now_s))
        if gather.total is not None:
            total, gather.total = gather.total, None
            self._out.append(do.Conclude(total, self._result))

    def _end_quiescent(self, now_s: float) -> None:
        """End the job because all ranks are passive; only unstructured work may end like this."""
        if not self.settings.structured:
            self._begin_draining()
            return
        examples = [join.parcel and join.parcel.item for join in islice(self.joins, 4)]
        reason = f"all ranks are idle, but {len(self.joins)} joins of rank 0 are open: {examples!r}"
        self._abort(Defect.exit_code, reason, None, now_s)

    def _begin_draining(self) -> None:
        if self.phase == WORKING:
            self.phase = DRAINING

    def _begin_gathering(self, now_s: float) -> None:
        if self.phase in (WORKING, DRAINING):
            self.phase = GATHERING
            self.shutdown.began_normally = not self._aborted
            self.shutdown.drain.give_up()
            self.epochs.finish()
            self._send_all(self.shutdown.gather.open())
            if self._aborted:
                self.shutdown.gather.hurry(now_s)

    def _owes_epoch(self, now_s: float) -> bool:
        """Return whether rank 0 must await an epoch for which an abort came after the drain."""
        late = self._aborted and self.shutdown.began_normally and not self.lost
        return self.rank == 0 and late and not self.epochs.are_over(True, now_s)

    def _stop(self, code: int, *, agreed: bool) -> None:
        self.phase = STOPPED
        self.shutdown.give_up_s = None
        self._out.append(do.StopRank(code, agreed))

    def _abort(self, code: int, reason: str, source: int | None, now_s: float) -> None:
        if self.phase == STOPPED:
            return
        if self.phase == GATHERING:
            self.shutdown.gather.hurry(now_s)
        self.shutdown.hurry(now_s)
        if self.phase == GATHERING and self.shutdown.gather.closed:
            return  # this rank's account is in flight, and nothing may follow it
        if code != self.code or reason not in self.reasons:
            self.code = worst((self.code, code))
            self.reasons = (*self.reasons, reason)
        if self._aborted:
            return
        self._aborted = True
        for neighbour in self.tree.neighbours:
            if neighbour != source and neighbour not in self.lost:
                self._send(neighbour, messages.Abort(code, reason))
        self.pinned.clear()
        dropped = self.queue.clear()
        if dropped:
            self._out.append(do.DiscardSegments(tuple(dropped)))
        self.epochs.forget()
        self.sharing.bundles.clear()
        self._n_open_joins = len(self.joins)
        self._abandon_joins()
        self._seeded = True
        self._begin_draining()

    def _abandon_joins(self) -> None:
        # An item that is still running keeps its join until it has finished.
        for join in self.joins.abandon():
            if join.parcel is not None:
                self._out.append(do.AbandonItem(join.parcel.item, join.own))

    # ---- accounts and sending --------------------------------------------------

    def _own_account(self) -> messages.FinalAccount[R]:
        own = messages.FinalAccount(
            reports=(self._report(),),
            value=self._value,
            code=self.code,
            reasons=self.reasons,
            open_joins=self._n_open_joins,
        )
        return merge_accounts(own, messages.FinalAccount(value=self._contribution()), self._merge)

    def _send_notices(self, now_s: float) -> None:
        """Send notices that are due."""
        for values in self.notices.packs(now_s, hurry=self.phase > WORKING):
            if self.rank == 0:
                self._out.append(do.DeliverNotices(0, values))
            elif not self.shutdown.gather.closed:  # later notices are dropped
                self._send(0, messages.NoticeBatch(values))

    def _send(self, dest: int, message: messages.Message) -> None:
        if not isinstance(message, messages.TREE):
            self.shutdown.drain.sent()
        if isinstance(message, messages.BASIC):
            self.detector.sent()
        self.activity.messages += 1
        self._out.append(do.Send(dest, message))

    def _send_all(self, outgoing: Iterable[tuple[int, messages.Message]]) -> None:
        for dest, message in outgoing:
            self._send(dest, message)


# ---- shutdown ------------------------------------------------------------------------------------


class Shutdown(Generic[R]):
    """One rank's part of the shutdown. `account` and `merge` are those of `GatherRound`."""

    def __init__(
        self,
        tree: TreePosition,
        deadline_s: float,
        account: Callable[[], messages.FinalAccount[R]],
        merge: Callable[[R, R], R],
    ) -> None:
        self.drain: DrainWaves = DrainWaves(tree, messages.DRAIN)
        self.gather: GatherRound[R] = GatherRound(
            tree, deadline_s / 4, account, merge, lambda: self.drain.counted
        )
        self.began_normally = False  # no abort was known when gathering began
        self.give_up_s: float | None = None
        self._is_root = tree.parent is None
        self._deadline_s = deadline_s

    def hurry(self, now_s: float) -> None:
        """Set a deadline, counted from now, for everything that might not end."""
        if self.give_up_s is None:
            # Other ranks wait longer, so that the decision of rank 0 has time to reach them.
            self.give_up_s = now_s + self._deadline_s * (1 if self._is_root else 2)

    @property
    def drain_until_s(self) -> float | None:
        """The time at which rank 0 gathers the accounts, even if messages are in flight."""
        return None if self.give_up_s is None else self.give_up_s - self._deadline_s / 2

    def gives_up(self, now_s: float) -> bool:
        """Return whether rank 0 stops waiting for messages in flight after an abort."""
        return self.drain_until_s is not None and now_s >= self.drain_until_s

    def drain_after(self, is_settled: bool, lost: Collection[int], now_s: float) -> Outgoing:
        """Advance the waves that follow this rank's account, or, on rank 0, precede it."""
        if self._is_root:
            if not self.gather.has_all or self.is_drained(lost):
                return []
        elif not self.gather.closed:
            return []
        return self.drain.advance(is_settled, now_s)

    def is_drained(self, lost: Collection[int]) -> bool:
        """Return whether no message is in flight; called on rank 0 when all ranks have answered."""
        if not self.began_normally or lost or self.drain.terminated:
            return True
        counted = self.gather.counted
        # An open wave must be completed, so that its answers do not remain in flight either.
        return not self.drain.waves and counted.sent == counted.received

    def wakeup_s(self) -> float | None:
        """Return the time of the next action while accounts are being gathered, or None."""
        due_s = self.gather.wakeup_s()
        if self._is_root and self.gather.has_all:
            due_s = earlier(due_s, self.drain.wakeup_s())
        return due_s
