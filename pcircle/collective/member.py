"""One rank's side of collective operations, as a state machine without network or clock.

The protocol performs an operation on all members or on none (two-phase commit, presumed abort):

1. The requester sends the operation to its coordinator: the owner of the key ("collective"), or
   itself ("client driven"). The owner processes requests with the same key one at a time, so that
   all requesters see the same order.
2. The coordinator sends all members a request to prepare. The request is passed down by recursive
   halving, and votes are collected on the way back. If the owner coordinates, it prepares first, so
   that a refusal by the owner costs no messages. (Any other coordinator contacts each member
   directly, and the owner last. This is how changes were made before collective operations
   existed.)
3. If all are ready, the coordinator records the decision. From then on the operation is committed.
   A rank that has lost the coordinator, and finds no record, may record an undo
   (`pcircle.collective.operation`).
4. The decision is passed down the same tree, bypassing lost ranks, which are reported. When all
   members have answered, the key becomes free. The record is removed once the requester has
   received its answer. If a rank was lost, the record stays, because that rank may still need it.

The following rules keep the protocol safe, no matter which ranks are lost, or when:

- No rank makes a prepared change visible before it knows of a commit record. No rank undoes a
  prepared change before it knows that no commit record exists or ever will.
- A rank that prepared after an undo was decided (its message came late, by another path) would keep
  the prepared change forever. Therefore each rank remembers undone operations until the coordinator
  reports that they have ended (`settled`), and refuses to prepare them.
- A rank with a prepared change refuses other operations with the same key. So if two coordinators
  change one key, all members perform their operations in the same order.
- A coordinator that receives nothing for `patience_s` decides to undo. A member that wakes up later
  receives the decision like all other members; until then the key stays in use.

A member has no clock, network or threads: `received`, `lost` and `tick` are its events, and
`answers` collects the results of its requests. The idea is that of Carns et al. (2008, 2009), whose
protocol has a single phase and reverts failed changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from errno import EAGAIN
from math import inf

import msgspec

from pcircle.collective.coordinator import LOST, Coordinator, ResponseCollector, shares
from pcircle.collective.operation import (
    Answer,
    Decide,
    DecisionReport,
    Heard,
    Message,
    Op,
    OperationRequest,
    Prepare,
    Records,
    Refused,
    Request,
    Said,
    Store,
    Votes,
)

_MAX_PATIENCE = 3  # times the coordinator's patience, because requests may queue


class Member:
    """The protocol of one rank. `send` sends a message and never blocks.

    Operations are numbered from `first` + 1; no earlier job may have used these numbers.
    """

    def __init__(
        self,
        rank: int,
        store: Store,
        records: Records,
        send: Callable[[int, Message], None],
        *,
        patience_s: float = 30.0,
        first: int = 0,
    ) -> None:
        self.answers: list[Answer] = []
        self._rank = rank
        self._store = store
        self._records = records
        self._send = send
        self._patience_s = patience_s
        self._number = first
        self._now_s = 0.0
        self._gone: set[int] = set()
        # The coordinator, the time until which to wait, and whether the request is a query.
        self._asked: dict[Op, tuple[int, float, bool]] = {}
        self._prepared: dict[Op, int] = {}  # the coordinator that will decide
        self._busy: dict[bytes, Op] = {}  # keys of changes that are neither committed nor undone
        self._votes: dict[Op, tuple[int, ResponseCollector]] = {}  # and the rank to answer
        self._finished: dict[tuple[Op, int], tuple[bool, int, int, ResponseCollector]] = {}
        self._undone: dict[int, set[int]] = {}  # by coordinator
        self._settled: dict[int, int] = {}
        self._doubtful = False  # an operation of an earlier job could not be completed
        self._recheck_s = inf  # when to check the records again
        self._coordinator = Coordinator(rank, self, records, patience_s, send, self._answered)

    # ---- events ----------------------------------------------------------------

    def request(self, request: Request, now_s: float, *, collective: bool = True) -> Op:
        """Request an operation, coordinated by its key's owner if `collective`, else by this rank.

        Its outcome is appended to `answers` even if ranks are lost.
        """
        self._advance(now_s)
        self._number += 1
        op = (self._rank, self._number)
        whose = request.owner if collective else self._rank
        self._asked[op] = whose, now_s + _MAX_PATIENCE * self._patience_s, request.asks
        if whose in self._gone:
            self._take(Answer(op, False, (Said(whose, refusal=LOST),)))
        elif whose == self._rank:
            self._coordinator.begin(op, request)
        else:
            self._send(whose, OperationRequest(op, request))
        return op

    def received(self, source: int, message: Message, now_s: float) -> None:
        """Process a message."""
        self._advance(now_s)
        if isinstance(message, OperationRequest):
            self._coordinator.begin(message.op, message.request)
        elif isinstance(message, Prepare):
            self._prepare(source, message)
        elif isinstance(message, Votes):
            self._voted(source, message)
        elif isinstance(message, Decide):
            self._decided(source, message)
        elif isinstance(message, DecisionReport):
            self._done(source, message)
        elif isinstance(message, Answer):
            self._take(message)
            self._send(source, Heard(message.op))
        else:
            self._coordinator.heard(message.op)

    def lost(self, rank: int, now_s: float) -> None:
        """Handle the loss of a rank, after all its messages have been processed."""
        self._advance(now_s)
        self._gone.add(rank)
        self._coordinator.lost(rank)
        for op, (_, gathering) in list(self._votes.items()):
            gathering.give_up(rank)
            self._tell_votes(op)
        for key, (_, _, _, gathering) in list(self._finished.items()):
            self._send_decision(key, gathering.bypass(rank, shares))
            self._tell_done(key)
        for op, coordinator in list(self._prepared.items()):
            if coordinator == rank:
                self._settle(op)
        for op, (coordinator, *_) in list(self._asked.items()):
            if coordinator == rank:
                self._resolve(op)

    def tick(self, now_s: float) -> None:
        """Handle the timeouts that have expired."""
        self._advance(now_s)
        self._coordinator.tick()
        for op, (_, until_s, _) in list(self._asked.items()):
            if until_s <= now_s:
                self._resolve(op)
        if self._recheck_s <= now_s:
            self._recheck_s = inf
            for op, coordinator in list(self._prepared.items()):
                if coordinator in self._gone:
                    self._settle(op)

    def next_s(self) -> float:
        """Return when `tick` is due, or infinity if only a message can cause work."""
        asked_s = min((until_s for _, until_s, _ in self._asked.values()), default=inf)
        return min(self._coordinator.next_s(), asked_s, self._recheck_s)

    def recover(self) -> list[Op]:
        """Complete the operations of an earlier job; return those that remain in doubt.

        Must be called before all other methods. While any operation remains in doubt, this rank
        prepares nothing new, because a new operation could overtake it.
        """
        left = []
        for op in list(self._store.in_doubt()):
            decided = self._records.settle(op, False)
            if decided is None:
                left.append(op)
            else:
                failed = self.finish(op, decided)
                if failed:
                    left.append(op)
                elif not decided:
                    self._records.forget(op)  # a member that finds no record also undoes it
        self._doubtful = bool(left)
        return left

    @property
    def is_idle(self) -> bool:
        """True if this rank knows of no operation in progress, except those in doubt."""
        waits = self._asked or self._votes or self._finished
        only_in_doubt = all(coordinator in self._gone for coordinator in self._prepared.values())
        return not waits and only_in_doubt and self._coordinator.is_idle

    def _advance(self, now_s: float) -> None:
        self._now_s = self._coordinator.now_s = now_s

    # ---- requests --------------------------------------------------------------

    def _answered(self, answer: Answer) -> None:
        """Deliver the answer of an operation that this rank has coordinated."""
        requester = answer.op[0]
        if requester == self._rank:
            self._take(answer)
        elif requester not in self._gone:
            self._send(requester, answer)

    def _take(self, answer: Answer) -> None:
        if self._asked.pop(answer.op, None) is not None:
            self.answers.append(answer)

    def _resolve(self, op: Op) -> None:
        """Settle a request whose coordinator is lost or silent: undo it unless it was committed."""
        coordinator = self._asked[op][0]
        why = LOST if coordinator in self._gone else "no answer in time"
        asks = self._asked[op][2]
        decided = False if asks else self._records.settle(op, False)
        self._take(Answer(op, decided, (Said(coordinator, refusal=why),)))

    # ---- being a member --------------------------------------------------------

    def prepare(self, op: Op, coordinator: int, request: Request) -> Said:
        """Prepare this rank's part, or answer a query."""
        try:
            if request.asks:
                return Said(self._rank, self._store.look(request.what))
            if self._doubtful:
                return Said(self._rank, refusal="an earlier operation is in doubt here")
            if request.key in self._busy:
                refusal = "another operation on it is under way"
                return Said(self._rank, refusal=refusal, errno=EAGAIN)
            value = self._store.prepare(op, coordinator, request.what)
        except Refused as error:
            return Said(self._rank, refusal=str(error) or "refused")
        except OSError as error:
            return _failed(self._rank, error)
        self._busy[request.key] = op
        if coordinator != self._rank:
            self._prepared[op] = coordinator
        return Said(self._rank, value)

    def finish(self, op: Op, commit: bool) -> list[Said]:
        """Commit or undo this rank's part; return the failures."""
        try:
            if commit:
                self._store.commit(op)
            else:
                self._store.undo(op)
        except OSError as error:
            return [_failed(self._rank, error)]
        for key in [key for key, whose in self._busy.items() if whose == op]:
            del self._busy[key]
        return []

    def _prepare(self, source: int, message: Prepare) -> None:
        coordinator, op = message.coordinator, message.op
        settled = self._settled.get(coordinator, 0)
        if message.settled > settled:
            settled = self._settled[coordinator] = message.settled
            late = self._undone.get(coordinator, set())
            self._undone[coordinator] = {serial for serial in late if serial >= settled}
        gathering = ResponseCollector(shares(message.forward_to), ())
        self._votes[op] = source, gathering
        for rank, subtree in list(gathering.waiting.items()):
            if rank in self._gone:
                gathering.give_up(rank)
            else:
                self._send(rank, msgspec.structs.replace(message, forward_to=subtree))
        over = message.serial < settled or message.serial in self._undone.get(coordinator, ())
        if over or coordinator in self._gone:
            gathering.said.append(Said(self._rank, refusal="it was given up before"))
        else:
            gathering.said.append(self.prepare(op, coordinator, message.request))
        self._tell_votes(op)

    def _voted(self, source: int, message: Votes) -> None:
        op = message.op
        if op in self._votes:
            self._votes[op][1].hear(source, message.said)
            self._tell_votes(op)
        else:
            self._coordinator.voted(source, op, message.said)

    def _tell_votes(self, op: Op) -> None:
        source, gathering = self._votes[op]
        if gathering.is_complete:
            del self._votes[op]
            self._send(source, Votes(op, tuple(gathering.said)))

    def _decided(self, source: int, message: Decide) -> None:
        op, coordinator = message.op, message.coordinator
        key = op, source
        gathering = ResponseCollector(shares(message.forward_to), ())
        self._finished[key] = message.commit, coordinator, message.serial, gathering
        self._send_decision(key, list(gathering.waiting.items()))
        self._prepared.pop(op, None)
        self._votes.pop(op, None)
        if not message.commit and message.serial >= self._settled.get(coordinator, 0):
            self._undone.setdefault(coordinator, set()).add(message.serial)
        gathering.said += self.finish(op, message.commit)
        self._tell_done(key)

    def _send_decision(
        self, key: tuple[Op, int], targets: Sequence[tuple[int, tuple[int, ...]]]
    ) -> None:
        """Send the decision to ranks, bypassing lost ranks."""
        commit, coordinator, serial, gathering = self._finished[key]
        left = deque(targets)
        while left:
            rank, subtree = left.popleft()
            if rank in self._gone:
                left.extend(gathering.bypass(rank, shares))
            else:
                self._send(rank, Decide(key[0], coordinator, serial, commit, subtree))

    def _done(self, source: int, message: DecisionReport) -> None:
        heard = False
        for key, (_, _, _, gathering) in list(self._finished.items()):
            # Two entries match if the decision arrived again by another path: their ranks are the
            # same.
            if key[0] == message.op and source in gathering.waiting:
                heard = True
                gathering.hear(source, message.said)
                self._tell_done(key)
        if not heard:
            self._coordinator.done(source, message.op, message.said)

    def _tell_done(self, key: tuple[Op, int]) -> None:
        gathering = self._finished[key][3]
        if gathering.is_complete:
            del self._finished[key]
            self._send(key[1], DecisionReport(key[0], tuple(gathering.said)))

    def _settle(self, op: Op) -> None:
        """Settle an operation that lost its coordinator: read the decision, or decide to undo."""
        decided = self._records.settle(op, False)
        if decided is None:
            self._recheck_s = min(self._recheck_s, self._now_s + self._patience_s)
            return
        del self._prepared[op]
        self.finish(op, decided)


def _failed(rank: int, error: OSError) -> Said:
    return Said(rank, refusal=error.strerror or str(error), errno=error.errno or 0)
