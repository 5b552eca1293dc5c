"""The circle engine: one rank's part of a job, as a pure state machine.

Events go in (a message arrived, an item finished, time passed), instructions
come out (send this, start that). There is no I/O, no thread, no clock and no
random generator of its own, so the same engine runs under MPI, under forked
processes and in a simulator with thousands of ranks and virtual time, where a
failing run is a seed that replays it.

A job's life has four phases, the same on every rank:

    WORKING    items run, thieves steal, waves look for quiescence
    DRAINING   no more work; after an abort waves over *all* loose messages
    GATHERING  one round up the tree collects every rank's account; waves may follow
    STOPPED    the exit code that rank 0 made of them came down

Structured work ends when the join of the seeds completes; unstructured work
when the detector says that all is quiet. An abort floods the tree; whoever
hears of it drops its queue, abandons its open joins and only waits for what
is running, and rank 0 gives the final rounds a deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from random import Random
from typing import Any, Generic

from pcircle.circle import instructions as do
from pcircle.circle.ending import Ending
from pcircle.circle.epochs import EpochRounds
from pcircle.circle.joins import ROOT, Joins
from pcircle.circle.messages import (
    BASIC,
    COMMIT,
    DRAIN,
    EPOCH,
    GATHER,
    PROGRESS,
    QUIESCE,
    STOP,
    TREE,
    URGE,
    Abort,
    Account,
    Ask,
    Down,
    Heard,
    I,
    JoinRef,
    Message,
    Notice,
    Parcel,
    Post,
    R,
    Refuse,
    Results,
    Returns,
    Sums,
    Token,
    Up,
    Wait,
    Work,
)
from pcircle.circle.notices import Flow, Outbox
from pcircle.circle.queue import Queue
from pcircle.circle.rounds import ProgressRounds, earlier, merge_accounts
from pcircle.circle.settings import Settings
from pcircle.circle.stealing import Sharing
from pcircle.circle.termination import Detector, FourCounter, TokenRing
from pcircle.circle.topology import Nodes, Places, Tree
from pcircle.errors import Defect, RankLost, StoppedEarly, worst

WORKING, DRAINING, GATHERING, STOPPED = range(4)
# With fewer items waiting nothing is handed out early: what is, can't be stolen any more, and near
# the end a job of many ranks waits for it.
_AHEAD_FROM = 16


class Engine(Generic[I, R]):
    """One rank of a job.

    `merge` combines two results and must be associative and commutative.
    `measure` gives this rank's progress counters, `report` its encoded report
    for the final account, then `kept` what it adds to the result, when asked.
    What is put into `outbox` at any time, rank 0 is told in packs. Call an event
    method, then carry out what `take` returns; call `tick` no later than `wakeup_s`.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        *,
        merge: Callable[[R, R], R],
        rng: Random,
        settings: Settings | None = None,
        nodes: Sequence[int] | Places | None = None,
        measure: Callable[[], Sums] = lambda: Sums(ranks=1),
        report: Callable[[], bytes] = bytes,
        kept: Callable[[], R | None] = lambda: None,
    ) -> None:
        self.settings = settings = settings or Settings()
        self.workers = settings.workers  # may change at any time
        self.rank, self.size = rank, size
        places = nodes if isinstance(nodes, Places) else Places(nodes or [0] * size)
        self.tree = Tree(rank, size, settings.arity, places)
        self.queue: Queue[I] = Queue(settings.queue_high)
        self.pinned: deque[Parcel[I]] = deque()  # items that nobody may steal
        self.joins: Joins[I, R] = Joins(merge)
        self.phase = WORKING
        self.code = 0
        self.reasons: tuple[str, ...] = ()
        self.running: dict[int, Parcel[I]] = {}
        self.detector: Detector = (
            FourCounter(self.tree, QUIESCE)
            if settings.termination == "counters"
            else TokenRing(rank, size)
        )
        self.progress = ProgressRounds(self.tree, settings.progress_period_s, measure)
        self.ending = Ending(self.tree, settings.final_deadline_s, self._own_account, merge)
        self.epochs = EpochRounds(self.tree, settings.epoch_period_s)
        self.outbox = Outbox()
        self.telling = Flow(self.outbox, rank, size)
        here = Nodes(rank, places)
        self.sharing: Sharing[I, R] = Sharing(here, settings, self.queue, self.joins, rng)
        self.activity = self.sharing.activity
        self.lost: set[int] = set()
        self._merge = merge
        self._report = report
        self._kept = kept
        self._value: R | None = None  # of unstructured work
        self._result: R | None = None  # of the root join
        self._seeded = rank != 0
        self._aborted = False
        self._left_open = 0  # joins, at the moment of an abort
        self._out: list[do.Instruction] = []
        if rank == 0 and settings.structured:
            self.joins.expect(ROOT.number, None, 0)

    # ---- what the driver calls -------------------------------------------------

    def take(self) -> list[do.Instruction]:
        """The instructions since the last call, to be carried out in this order."""
        out, self._out = self._out, []
        return out

    def seed(self, items: Iterable[I], now_s: float) -> None:
        """On rank 0, once: the items that the job begins with, possibly none."""
        if self._aborted:
            return
        if self._seeded:
            raise Defect("a job is seeded once, on rank 0")
        self._seeded = True
        if self.settings.structured:
            self._push(self._children(ROOT, None, items))
            self.joins.processed(ROOT.number, None)
            self._perhaps_complete(ROOT.number)
        else:
            self._push(self._children(None, None, items))
        self._advance(now_s)

    def spawned(self, ticket: int, items: Iterable[I], now_s: float) -> None:
        """A running item has made more items. After an abort they are dropped."""
        parcel = self.running[ticket]
        ref = JoinRef(self.rank, ticket) if self.settings.structured else None
        if not self._aborted:
            self._push(self._children(ref, parcel, items))
        elif ref is not None:
            # Its completion will never come: what it began must be undone when it has run.
            self.joins.expect(ticket, parcel, 0)
        self._advance(now_s)

    def posted(self, ticket: int, rank: int, items: Iterable[I], now_s: float) -> None:
        """A running item has made items that only a certain rank can process."""
        if not self._aborted:
            ref = JoinRef(self.rank, ticket) if self.settings.structured else None
            parcels = self._children(ref, self.running[ticket], items)
            if rank == self.rank:
                self.pinned.extend(parcels)
            else:
                self._send(rank, Post(tuple(parcels)))
        self._advance(now_s)

    def held(self, ticket: int, now_s: float, epoch: int = 0) -> None:
        """A running item is to be `resumed`, once for each hold; with `epoch`, at its commit."""
        if not self._aborted and self.settings.structured:
            self.joins.expect(ticket, self.running[ticket], 1)
            if epoch:
                self.epochs.await_commit(epoch)
        self._advance(now_s)

    def resumed(
        self, ticket: int, items: Iterable[I], value: R, now_s: float, epoch: int = 0
    ) -> None:
        """What an item was held for has come: it makes more items, and one hold ends."""
        if not self._aborted:
            self.epochs.awaited -= bool(epoch)
            parcel = self.joins.peek(ticket).parcel
            self._push(self._children(JoinRef(self.rank, ticket), parcel, items))
            self._result_came(ticket, value)
        self._advance(now_s)

    def finished(self, ticket: int, value: Any, now_s: float) -> None:
        """An item, or its completion, has run: its result, or what a (further) completion gets."""
        parcel = self.running.pop(ticket)
        join = self.joins.processed(ticket, value)
        if self._aborted:
            if join is not None:
                self._abandon_joins()
        elif join is None:
            self._resolve(parcel.parent, value)
        else:
            self._perhaps_complete(ticket)
        self._advance(now_s)

    def fetched(self, segment: int, parcels: Iterable[Parcel[I]], now_s: float) -> None:
        """A spilled segment was read back."""
        if not self._aborted:
            self.queue.fetched(segment, parcels)
            self._spill()
        self._advance(now_s)

    def synced(self, epoch: int, now_s: float) -> None:
        """What was done here in an epoch that was sealed is on disk."""
        # Committed work is not done again, so rank 0 must know all notices of it before.
        self.epochs.synced(epoch, self.outbox.added)
        self._advance(now_s)

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        self._advance(now_s)

    def abort(self, code: int, reason: str, now_s: float) -> None:
        """Stop early, all ranks: this rank has a reason of its own."""
        self._abort(code, reason, None, now_s)
        self._advance(now_s)

    def rank_lost(self, rank: int, reason: str, now_s: float) -> None:
        """Another rank is gone and will not answer any more."""
        self.lost.add(rank)
        if self.phase != STOPPED:
            lost = RankLost.of(rank, reason)
            self._abort(lost.exit_code, str(lost), None, now_s)
        self._advance(now_s)

    def conclude(self, code: int, now_s: float) -> None:
        """On rank 0: the job's exit code, made of the accounts. All ranks stop with it."""
        for child in self.tree.children:
            self._send(child, Down(STOP, 1, code))
        self._stop(code, agreed=True)

    def receive(self, source: int, message: Message, now_s: float) -> None:
        """A message has come."""
        if self.phase == STOPPED:
            return
        if not isinstance(message, TREE):
            self.ending.drain.received()
        if isinstance(message, BASIC):
            self.detector.received()
        if isinstance(message, Ask):
            works = self.phase == WORKING and not self._aborted
            self._send_all(self.sharing.answer(source, message, works, self.lost))
        elif isinstance(message, Wait):
            self.sharing.lifelines.told(source)
        elif isinstance(message, Work):
            self.sharing.got(source, message)
            if not self._aborted:
                self._push(self.sharing.bundles.take(source, message))
        elif isinstance(message, Returns):
            self._bundle_came(message)
        elif isinstance(message, Post):
            if not self._aborted:
                self.sharing.fed()
                self.pinned.extend(message.parcels)
        elif isinstance(message, Refuse):
            self.sharing.refused()
        elif isinstance(message, Results):
            self._result_came(message.join, message.value)
        elif isinstance(message, Down | Up):
            self._round(source, message, now_s)
        elif isinstance(message, Notice):
            self._out.append(do.Notify(source, message.values))
            self._send(source, Heard())  # after it: orders are carried out in turn
        elif isinstance(message, Heard):
            self.telling.answered(refused=message.refused)
        elif isinstance(message, Token):
            self._send_all(self.detector.handle(source, message))
        else:
            self._abort(message.code, message.reason, source, now_s)
        self._advance(now_s)

    def wakeup_s(self) -> float | None:
        """The time at which `tick` must be called although nothing happened, if any."""
        phase = self.phase
        due_s = self.ending.give_up_s
        if phase != STOPPED:
            due_s = earlier(due_s, self.epochs.wakeup_s())
            due_s = earlier(due_s, self.telling.wakeup_s())
        if phase == WORKING:
            due_s = earlier(due_s, self.progress.wakeup_s())
            due_s = earlier(due_s, self.sharing.bundles.wakeup_s())
            if self._is_dry:
                due_s = earlier(due_s, self.sharing.thief.ask_at_s)
            if self.passive:
                due_s = earlier(due_s, self.detector.wakeup_s())
        elif phase == DRAINING:
            if self._is_settled:
                due_s = earlier(due_s, self.ending.drain.wakeup_s())
            if self.rank == 0:
                due_s = earlier(due_s, self.ending.drain_until_s)
        elif phase == GATHERING:
            due_s = earlier(due_s, self.ending.wakeup_s())
        return due_s

    def is_hungry(self) -> bool:
        """Another rank, or a worker of this one, waits for work. A hint, for any thread."""
        # Asked for each directory: what is mostly false comes first.
        if not self.sharing.is_waited_for and len(self.running) >= self.workers:
            return False
        return not (len(self.queue) or self.pinned)

    @property
    def passive(self) -> bool:
        """Nothing to do or awaited: only a basic message could make this rank send one."""
        return self._idle and not self.epochs.awaited and not self.sharing.bundles.is_owing

    @property
    def _is_settled(self) -> bool:
        """Whether nothing is awaited of other ranks: what this one began has come to its end."""
        return self.passive and self.telling.settled and self.sharing.thief.asked is None

    @property
    def _is_dry(self) -> bool:
        """Whether a worker here has nothing to do, and could have."""
        idle = len(self.running) < self.workers
        return idle and not (len(self.queue) or self.pinned or self._aborted)

    @property
    def _idle(self) -> bool:
        waiting = len(self.queue) or self.pinned
        return self._seeded and not self.running and not waiting

    # ---- work ------------------------------------------------------------------

    def _children(
        self, ref: JoinRef | None, parcel: Parcel[I] | None, items: Iterable[I]
    ) -> list[Parcel[I]]:
        """Parcels of the items that an item has made, which its join, if it has one, expects."""
        parcels = [Parcel(item, ref) for item in items]
        self.activity.spawned += len(parcels)
        if ref is not None and parcels:
            self.joins.expect(ref.number, parcel, len(parcels))
        return parcels

    def _push(self, parcels: Iterable[Parcel[I]]) -> None:
        self.sharing.fed()
        self.queue.push(parcels)
        self._spill()

    def _spill(self) -> None:
        for number, spilled in self.queue.spills:
            self.activity.spilled += len(spilled)
            self._out.append(do.Spill(number, spilled))
        self.queue.spills.clear()

    def _resolve(self, parent: JoinRef | None, value: R) -> None:
        """A result is final: hand it to whom it belongs."""
        if parent is None:
            self._value = value if self._value is None else self._merge(self._value, value)
        elif parent.rank == self.rank:
            self._result_came(parent.number, value)
        else:
            self._send(parent.rank, Results(parent.number, value))

    def _result_came(self, number: int, value: R, count: int = 1) -> None:
        if self._aborted:
            return
        self.joins.arrived(number, value, count)
        self._perhaps_complete(number)

    def _bundle_came(self, returns: Returns[R]) -> None:
        if not self._aborted:
            for join, count, value in self.sharing.bundles.returned(returns):
                self._result_came(join, value, count)

    def _perhaps_complete(self, number: int) -> None:
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
        self._out.append(do.Complete(number, join.parcel.item, join.own, join.merged))

    def _dispatch(self) -> None:
        """Hand items to the workers; run ahead only where thieves still find enough."""
        settings, pinned = self.settings, self.pinned
        while len(self.running) < self.workers + settings.ahead:
            thieves = self.size > 1 and len(self.queue) < _AHEAD_FROM and not pinned
            if thieves and len(self.running) >= self.workers:
                break
            parcel = pinned.popleft() if pinned else self.queue.pop()
            if parcel is None:
                break
            ticket = self.joins.number()
            self.running[ticket] = parcel
            self.activity.items += 1
            self._out.append(do.Start(ticket, parcel.item))

    # ---- rounds and phases -----------------------------------------------------

    def show_progress(self, now_s: float) -> None:
        """On rank 0: hold a progress round now, of which `Show` comes."""
        if self.phase == WORKING:
            self._send_all(self.progress.ask(now_s))
            self._advance(now_s)

    def _round(self, source: int, message: Down | Up[Any], now_s: float) -> None:
        kind = message.kind
        if kind == PROGRESS:
            if self.phase == WORKING:
                self._send_all(self.progress.handle(source, message, now_s))
        elif kind in (EPOCH, COMMIT, URGE):
            self._send_all(self.epochs.handle(source, message))
        elif kind == QUIESCE:
            if self.phase == WORKING:
                self._send_all(self.detector.handle(source, message))
        elif kind == DRAIN:
            self._begin_draining()
            self._send_all(self.ending.drain.handle(source, message))
        elif kind == GATHER and isinstance(message, Down):
            self._begin_gathering(now_s)
        elif kind == GATHER and isinstance(message, Up):
            self.ending.gather.handle(source, message)
        elif isinstance(message, Down):
            for child in self.tree.children:
                self._send(child, Down(STOP, 1, message.code))
            self._stop(message.code, agreed=True)

    def _advance(self, now_s: float) -> None:
        if self.outbox:
            self._tell(now_s)
        if self.phase == WORKING:
            if len(self.queue) or self.pinned:
                self._dispatch()
            if self._is_dry:
                self._send_all(self.sharing.seek(now_s, self.lost))
            elif self.sharing.is_serving and len(self.running) >= self.workers:
                self._send_all(self.sharing.serve())
            segment = self.queue.fetch()
            if segment is not None:
                self._out.append(do.Fetch(segment))
            self._send_all(self.sharing.bundles.results(now_s))
            self._send_all(self.detector.advance(self.passive, now_s))
            if self.detector.terminated:
                self._all_quiet(now_s)
            self._send_all(self.progress.advance(now_s))
            self._out += self.progress.news()
        if self.phase != STOPPED:
            self._send_all(self.epochs.advance(self._idle, self.telling.heard, now_s))
            self._out += self.epochs.orders()
        if self.phase == DRAINING:
            self._drain(now_s)
        if self.phase == GATHERING:
            self._gather(now_s)
        if self.phase != STOPPED:
            overdue = self.ending.give_up_s is not None and now_s >= self.ending.give_up_s
            orphan = bool(self.lost) and not self.lost.isdisjoint(self.tree.ancestors)
            if overdue or (orphan and not self.running):
                self._stop(worst((self.code, StoppedEarly.exit_code)), agreed=False)

    def _drain(self, now_s: float) -> None:
        """No more work: drain what an abort may have left, and have the accounts gathered."""
        ends_well = self.rank == 0 and not self._aborted
        if not ends_well:
            self._send_all(self.ending.drain.advance(self._is_settled, now_s))
        drained = self.ending.drain.terminated and self.epochs.are_over(self._aborted, now_s)
        over = ends_well or drained or self.lost or self.ending.gives_up(now_s)
        if self.rank == 0 and over:
            self._begin_gathering(now_s)

    def _gather(self, now_s: float) -> None:
        """Give the account; on rank 0, conclude when all have, and no message is left."""
        ending, gather = self.ending, self.ending.gather
        idle = not self.running and self.telling.settled and not self._owes_epoch(now_s)
        idle = idle and (self._is_settled or self._aborted)
        # Who has told all begins nothing, whatever it waits for.
        self._send_all(ending.drain_after(gather.closed or self._is_settled, self.lost, now_s))
        if self.rank == 0:
            idle = idle and ending.is_drained(self.lost)
        self._send_all(gather.advance(self.lost, idle, now_s))
        if gather.total is not None:
            total, gather.total = gather.total, None
            self._out.append(do.Conclude(total, self._result))

    def _all_quiet(self, now_s: float) -> None:
        """Quiescence. Only unstructured work may end like this."""
        if not self.settings.structured:
            self._begin_draining()
            return
        some = [join.parcel and join.parcel.item for join in islice(self.joins, 4)]
        reason = f"all ranks are idle, but {len(self.joins)} joins of rank 0 are open: {some!r}"
        self._abort(Defect.exit_code, reason, None, now_s)

    def _begin_draining(self) -> None:
        if self.phase == WORKING:
            self.phase = DRAINING

    def _begin_gathering(self, now_s: float) -> None:
        if self.phase in (WORKING, DRAINING):
            self.phase = GATHERING
            self.ending.began_well = not self._aborted
            self.ending.drain.give_up()
            self.epochs.rest()
            self._send_all(self.ending.gather.open())
            if self._aborted:
                self.ending.gather.hurry(now_s)

    def _owes_epoch(self, now_s: float) -> bool:
        """At rank 0: whether an abort has come too late for the drain to wait for its epoch."""
        late = self._aborted and self.ending.began_well and not self.lost
        return self.rank == 0 and late and not self.epochs.are_over(True, now_s)

    def _stop(self, code: int, *, agreed: bool) -> None:
        self.phase = STOPPED
        self.ending.give_up_s = None
        self._out.append(do.Stop(code, agreed))

    def _abort(self, code: int, reason: str, source: int | None, now_s: float) -> None:
        if self.phase == STOPPED:
            return
        if self.phase == GATHERING:
            self.ending.gather.hurry(now_s)
        self.ending.hurry(now_s)
        if self.phase == GATHERING and self.ending.gather.closed:
            return  # this rank's account is on its way, and nothing may follow it
        if code != self.code or reason not in self.reasons:
            self.code = worst((self.code, code))
            self.reasons = (*self.reasons, reason)
        if self._aborted:
            return
        self._aborted = True
        for neighbour in self.tree.neighbours:
            if neighbour != source and neighbour not in self.lost:
                self._send(neighbour, Abort(code, reason))
        self.pinned.clear()
        dropped = self.queue.clear()
        if dropped:
            self._out.append(do.Discard(tuple(dropped)))
        self.epochs.forget()
        self.sharing.bundles.clear()
        self._left_open = len(self.joins)
        self._abandon_joins()
        self._seeded = True
        self._begin_draining()

    def _abandon_joins(self) -> None:
        # An item that still runs keeps its join until it has finished.
        for join in self.joins.abandon():
            if join.parcel is not None:
                self._out.append(do.Abandon(join.parcel.item, join.own))

    # ---- accounts and sending --------------------------------------------------

    def _own_account(self) -> Account[R]:
        own = Account(
            reports=(self._report(),),
            value=self._value,
            code=self.code,
            reasons=self.reasons,
            open_joins=self._left_open,
        )
        return merge_accounts(own, Account(value=self._kept()), self._merge)

    def _tell(self, now_s: float) -> None:
        """Have notices leave, if it is time to."""
        for values in self.telling.packs(now_s, hurry=self.phase > WORKING):
            if self.rank == 0:
                self._out.append(do.Notify(0, values))
            elif not self.ending.gather.closed:  # later nobody would wait for them
                self._send(0, Notice(values))

    def _send(self, dest: int, message: Message) -> None:
        if not isinstance(message, TREE):
            self.ending.drain.sent()
        if isinstance(message, BASIC):
            self.detector.sent()
        self.activity.messages += 1
        self._out.append(do.Send(dest, message))

    def _send_all(self, outgoing: Iterable[tuple[int, Message]]) -> None:
        for dest, message in outgoing:
            self._send(dest, message)
