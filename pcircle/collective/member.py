"""One rank's side of collective operations: messages in, messages out, and calls of its store.

The protocol, for an operation that all members do or none (two phases, with presumed undoing):

1. The requester asks the coordinator: the owner of the key ("collective"), or itself ("client
   driven"). The owner takes requests with one key one after the other, so two requesters see an
   order.
2. The coordinator has all members prepare, handed down by recursive halving and gathered on the
   way back; the owner first, if it coordinates, so that what it refuses costs nobody a thing. (A
   coordinator that is not the owner asks each member, and the owner last: so it was done before
   there were collective operations.)
3. If all are ready it records the decision. From that moment the operation is done: who finds no
   record, and has lost the coordinator, may record that nothing is (`pcircle.collective.store`).
4. The decision goes down the same tree, round those who are lost; they are named. When all have
   answered the key is free. The record goes when the requester has its answer as well; where
   somebody was lost it stays, since that one may still have to learn of it.

What makes it safe, whatever is lost and whenever:

- Nobody shows what it has prepared before it knows of a record to commit. Nobody undoes it before
  it knows that there is none and can't be one any more.
- Who prepares after the decision was to undo (the message was late: it came by another way) would
  keep that for ever. So each remembers what was undone, as long as the coordinator has not said
  that this operation is over (`settled`), and refuses.
- Who has something prepared refuses another operation with its key. So where two coordinators
  are at one name, by two ways, all members see their operations in one order.
- A coordinator that hears nothing for `patience_s` decides against it. A member that wakes later
  is told like all others; until then the key is kept.

It has no clock, no network and no threads: `received`, `lost` and `tick` are its events, `answers`
what the requester gets. Source of the idea: Carns et al. 2008 and 2009, who have one phase, and
undo what was done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf

import msgspec

from pcircle.collective.coordinator import Coordinator
from pcircle.collective.gathering import LOST, Gathering
from pcircle.collective.halving import shares
from pcircle.collective.messages import (
    Answer,
    Ask,
    Decide,
    Done,
    Heard,
    Message,
    Op,
    Prepare,
    Request,
    Said,
    Votes,
)
from pcircle.collective.store import Records, Refused, Store

_MAX_PATIENCE = 3  # of a requester, in those of the coordinator: it may have to wait for its turn


class Member:
    """One rank. `send` puts a message on its way, and never waits.

    Operations are named by numbers from `first` on, which no earlier job has used.
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
        # The coordinator, until when we wait, and whether it is a question.
        self._asked: dict[Op, tuple[int, float, bool]] = {}
        self._prepared: dict[Op, int] = {}  # by whom we are to be told
        self._busy: dict[bytes, Op] = {}  # keys of what was neither shown nor undone yet
        self._votes: dict[Op, tuple[int, Gathering]] = {}  # and whom to tell
        self._finished: dict[tuple[Op, int], tuple[bool, int, int, Gathering]] = {}
        self._undone: dict[int, set[int]] = {}  # of each coordinator
        self._settled: dict[int, int] = {}
        self._doubtful = False  # something of an earlier job could not be finished
        self._look_s = inf  # when to look at the records again
        self._coordinator = Coordinator(rank, self, records, patience_s, send, self._answered)

    # ---- events ----------------------------------------------------------------

    def request(self, request: Request, now_s: float, *, collective: bool = True) -> Op:
        """Ask for an operation, coordinated by the owner of its key, or else by this rank.

        What became of it will be among the `answers`, whatever happens.
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
            self._send(whose, Ask(op, request))
        return op

    def received(self, source: int, message: Message, now_s: float) -> None:
        """A message has come."""
        self._advance(now_s)
        if isinstance(message, Ask):
            self._coordinator.begin(message.op, message.request)
        elif isinstance(message, Prepare):
            self._prepare(source, message)
        elif isinstance(message, Votes):
            self._voted(source, message)
        elif isinstance(message, Decide):
            self._decided(source, message)
        elif isinstance(message, Done):
            self._done(source, message)
        elif isinstance(message, Answer):
            self._take(message)
            self._send(source, Heard(message.op))
        else:
            self._coordinator.heard(message.op)

    def lost(self, rank: int, now_s: float) -> None:
        """A rank is dead: all that it sent has come."""
        self._advance(now_s)
        self._gone.add(rank)
        self._coordinator.lost(rank)
        for op, (_, gathering) in list(self._votes.items()):
            gathering.give_up(rank)
            self._tell_votes(op)
        for key, (_, _, _, gathering) in list(self._finished.items()):
            self._hand_on(key, gathering.go_round(rank, shares))
            self._tell_done(key)
        for op, coordinator in list(self._prepared.items()):
            if coordinator == rank:
                self._settle(op)
        for op, (coordinator, *_) in list(self._asked.items()):
            if coordinator == rank:
                self._resolve(op)

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        self._advance(now_s)
        self._coordinator.tick()
        for op, (_, until_s, _) in list(self._asked.items()):
            if until_s <= now_s:
                self._resolve(op)
        if self._look_s <= now_s:
            self._look_s = inf
            for op, coordinator in list(self._prepared.items()):
                if coordinator in self._gone:
                    self._settle(op)

    def next_s(self) -> float:
        """When `tick` has something to do; infinite if not before something comes."""
        asked_s = min((until_s for _, until_s, _ in self._asked.values()), default=inf)
        return min(self._coordinator.next_s(), asked_s, self._look_s)

    def recover(self) -> list[Op]:
        """Before anything else: finish what an earlier job has left. What could not be.

        Then nothing new is prepared: it might overtake what is in doubt.
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
                    self._records.forget(op)  # who finds none will undo it as well
        self._doubtful = bool(left)
        return left

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, as far as this rank knows, but what is in doubt."""
        waits = self._asked or self._votes or self._finished
        told = all(coordinator in self._gone for coordinator in self._prepared.values())
        return not waits and told and self._coordinator.is_idle

    def _advance(self, now_s: float) -> None:
        self._now_s = self._coordinator.now_s = now_s

    # ---- asking ----------------------------------------------------------------

    def _answered(self, answer: Answer) -> None:
        """What this rank has coordinated came to this."""
        requester = answer.op[0]
        if requester == self._rank:
            self._take(answer)
        elif requester not in self._gone:
            self._send(requester, answer)

    def _take(self, answer: Answer) -> None:
        if self._asked.pop(answer.op, None) is not None:
            self.answers.append(answer)

    def _resolve(self, op: Op) -> None:
        """The coordinator is lost, or silent: nothing is done, unless it has decided otherwise."""
        coordinator = self._asked[op][0]
        why = LOST if coordinator in self._gone else "no answer in time"
        asks = self._asked[op][2]
        decided = False if asks else self._records.settle(op, False)
        self._take(Answer(op, decided, (Said(coordinator, refusal=why),)))

    # ---- being a member --------------------------------------------------------

    def prepare(self, op: Op, coordinator: int, request: Request) -> Said:
        """Get this rank's part ready, or answer what is asked."""
        try:
            if request.asks:
                return Said(self._rank, self._store.look(request.what))
            if self._doubtful:
                return Said(self._rank, refusal="an earlier operation is in doubt here")
            if request.key in self._busy:
                return Said(self._rank, refusal="another operation on it is under way")
            value = self._store.prepare(op, coordinator, request.what)
        except Refused as error:
            return Said(self._rank, refusal=str(error) or "refused")
        except OSError as error:
            return Said(self._rank, refusal=error.strerror or str(error))
        self._busy[request.key] = op
        if coordinator != self._rank:
            self._prepared[op] = coordinator
        return Said(self._rank, value)

    def finish(self, op: Op, commit: bool) -> list[Said]:
        """Show what was made ready, or undo it."""
        try:
            if commit:
                self._store.commit(op)
            else:
                self._store.undo(op)
        except OSError as error:
            return [Said(self._rank, refusal=error.strerror or str(error))]
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
        gathering = Gathering(shares(message.rest), ())
        self._votes[op] = source, gathering
        for rank, rest in list(gathering.waiting.items()):
            if rank in self._gone:
                gathering.give_up(rank)
            else:
                self._send(rank, msgspec.structs.replace(message, rest=rest))
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
        gathering = Gathering(shares(message.rest), ())
        self._finished[key] = message.commit, coordinator, message.serial, gathering
        self._hand_on(key, list(gathering.waiting.items()))
        self._prepared.pop(op, None)
        self._votes.pop(op, None)
        if not message.commit and message.serial >= self._settled.get(coordinator, 0):
            self._undone.setdefault(coordinator, set()).add(message.serial)
        gathering.said += self.finish(op, message.commit)
        self._tell_done(key)

    def _hand_on(self, key: tuple[Op, int], some: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        """Tell ranks what was decided, round those who are lost."""
        commit, coordinator, serial, gathering = self._finished[key]
        left = deque(some)
        while left:
            rank, rest = left.popleft()
            if rank in self._gone:
                left.extend(gathering.go_round(rank, shares))
            else:
                self._send(rank, Decide(key[0], coordinator, serial, commit, rest))

    def _done(self, source: int, message: Done) -> None:
        heard = False
        for key, (_, _, _, gathering) in list(self._finished.items()):
            # Two, where the decision has come again, by another way: the list is the same.
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
            self._send(key[1], Done(key[0], tuple(gathering.said)))

    def _settle(self, op: Op) -> None:
        """Nobody will tell what was decided: find out, or decide that nothing comes of it."""
        decided = self._records.settle(op, False)
        if decided is None:
            self._look_s = min(self._look_s, self._now_s + self._patience_s)
            return
        del self._prepared[op]
        self.finish(op, decided)
