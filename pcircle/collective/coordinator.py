"""The coordinator of operations: it collects votes, decides, and distributes the decision.

Messages are passed down a tree of ranks, and `ResponseCollector` collects the responses.

`shares` divides a list of ranks by recursive halving, so that a message reaches all of them in a
logarithmic number of steps. A rank sends to the rank in the middle of its list, and passes on
everything after the middle as that rank's list. The sender continues with the part before the
middle. So the largest part leaves first, a rank sends to at most ``floor(log2 n) + 1`` ranks, and
no path is longer than that (Carns, Settlemyer and Ligon, on collective metadata operations, 2008
and 2009).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Protocol, TypeAlias

from pcircle.collective.operation import (
    Answer,
    Decide,
    Message,
    Op,
    Prepare,
    Records,
    Request,
    Said,
)

VOTING, DECIDING, SPREADING = range(3)


class LocalMember(Protocol):
    """The coordinating rank in its role as a member of the operation."""

    def prepare(self, op: Op, coordinator: int, request: Request) -> Said:
        """Prepare the operation, or refuse it."""
        ...

    def finish(self, op: Op, commit: bool) -> list[Said]:
        """Commit or undo the operation; return the failures."""
        ...


class PendingOperation:
    """An operation between its request and its end."""

    __slots__ = (
        "answered",
        "commit",
        "deadline_s",
        "gathering",
        "heard",
        "op",
        "phase",
        "request",
        "serial",
        "spread",
    )

    def __init__(self, op: Op, request: Request, serial: int) -> None:
        self.op: Op = op
        self.request: Request = request
        self.serial: int = serial
        self.phase: int = VOTING
        self.commit: bool = False
        self.answered: bool = False
        self.heard: bool = False
        self.spread: bool = False  # whether `Prepare` was sent to other ranks
        self.deadline_s: float = inf
        self.gathering: ResponseCollector = ResponseCollector((), ())


class Coordinator:
    """The operations that one rank coordinates; `patience_s` limits the wait for other ranks.

    `answer` is called with the outcome of each operation.
    """

    def __init__(
        self,
        rank: int,
        own: LocalMember,
        records: Records,
        patience_s: float,
        send: Callable[[int, Message], None],
        answer: Callable[[Answer], None],
    ) -> None:
        self._rank = rank
        self._own = own
        self._records = records
        self._patience_s = patience_s
        self._send = send
        self._answer = answer
        self._serial = 0
        self._gone: set[int] = set()
        self._work: dict[Op, PendingOperation] = {}  # in progress
        self._unheard: set[Op] = set()  # ended, but the requester has not confirmed the answer
        self._queues: dict[bytes, deque[tuple[Op, Request]]] = {}  # by key in use
        self.now_s: float = 0.0

    @property
    def is_idle(self) -> bool:
        """True if nothing is in progress except operations in doubt and their queues."""
        return not self._unheard and all(w.phase == DECIDING for w in self._work.values())

    def begin(self, op: Op, request: Request) -> None:
        """Start an operation, or queue it if its key is in use."""
        if request.owner != self._rank:
            self._start(op, request)  # only the owner of a key queues operations
            return
        queue = self._queues.get(request.key)
        if queue is not None:
            queue.append((op, request))
            return
        self._queues[request.key] = deque()
        self._start(op, request)

    def next_s(self) -> float:
        """Return the time at which `tick` is due."""
        return min((work.deadline_s for work in self._work.values()), default=inf)

    def tick(self) -> None:
        """Continue without the ranks that have not answered in time."""
        for work in [w for w in self._work.values() if w.deadline_s <= self.now_s]:
            work.deadline_s = inf
            if work.phase == DECIDING:
                self._decide(work)
            elif work.phase == VOTING:
                work.gathering.said += work.gathering.late()
                work.gathering.waiting.clear()
                self._voted(work)
            elif not work.answered:
                self._tell(work, work.commit, [*work.gathering.said, *work.gathering.late()])

    def voted(self, source: int, op: Op, said: Sequence[Said]) -> None:
        """Process the votes of a member and its subtree."""
        work = self._work.get(op)
        if work is not None and work.phase == VOTING:
            work.gathering.hear(source, said)
            self._voted(work)

    def done(self, source: int, op: Op, said: Sequence[Said]) -> None:
        """Record that a member and its subtree have followed the decision."""
        work = self._work.get(op)
        if work is not None and work.phase == SPREADING:
            work.gathering.hear(source, said)
            self._finish_if_complete(work)

    def heard(self, op: Op) -> None:
        """Record that the requester has its answer and no longer needs the record."""
        if op in self._unheard:
            self._unheard.remove(op)
            self._records.forget(op)
        elif op in self._work:
            self._work[op].heard = True

    def lost(self, rank: int) -> None:
        """Handle the loss of a rank; no more messages from it will arrive."""
        self._gone.add(rank)
        for op in [op for op in self._unheard if op[0] == rank]:
            self.heard(op)
        for work in list(self._work.values()):
            if work.phase == VOTING:
                work.gathering.give_up(rank)
                self._voted(work)
            elif work.phase == SPREADING:
                self._spread(work, work.gathering.bypass(rank, self._shares(work.request)))
                self._finish_if_complete(work)

    # ---- getting ready ---------------------------------------------------------

    def _shares(self, request: Request) -> Shares:
        return shares if request.owner == self._rank else without_subtrees

    def _others(self, request: Request) -> list[int]:
        return [rank for rank in request.members if rank != self._rank]

    def _start(self, op: Op, request: Request) -> None:
        self._serial += 1
        work = self._work[op] = PendingOperation(op, request, self._serial)
        work.deadline_s = self.now_s + self._patience_s
        ranks = self._others(request)
        said: list[Said] = []
        if request.owner != self._rank and request.owner in ranks:
            ranks.remove(request.owner)  # it is asked last
        if self._rank in request.members:
            said.append(self._own.prepare(op, self._rank, request))
        if not any(response.refusal for response in said):
            self._ask(work, ranks)
        work.gathering.said += said
        self._voted(work)

    def _ask(self, work: PendingOperation, ranks: Sequence[int]) -> None:
        """Request ranks to prepare; ranks that are known to be lost count as refusals."""
        request = work.request
        work.spread = True
        gathering = ResponseCollector(self._shares(request)(ranks), work.gathering.said)
        work.gathering = gathering
        settled = min(operation.serial for operation in self._work.values())
        for rank, subtree in list(gathering.waiting.items()):
            if rank in self._gone:
                gathering.give_up(rank)
            else:
                about = (work.op, self._rank, work.serial, settled, request)
                self._send(rank, Prepare(*about, subtree))

    def _voted(self, work: PendingOperation) -> None:
        gathering, request = work.gathering, work.request
        if not gathering.is_complete:
            return
        ready = not any(response.refusal for response in gathering.said)
        heard = {response.rank for response in gathering.said}
        if ready and request.owner in request.members and request.owner not in heard:
            self._ask(work, [request.owner])
            if work.gathering.is_complete:
                self._voted(work)
            return
        work.commit = ready
        self._decide(work)

    # ---- deciding --------------------------------------------------------------

    def _decide(self, work: PendingOperation) -> None:
        if work.request.asks:
            self._tell(work, work.commit, work.gathering.said)
            self._end(work)
            return
        work.phase = DECIDING
        decided: bool | None = False
        if work.commit:
            decided = self._records.settle(work.op, True)
            if decided is None:
                if not work.answered:
                    self._tell(work, None, work.gathering.said)
                work.deadline_s = self.now_s + self._patience_s
                return
        if work.commit and not decided:
            refusal = "the requester, or a rank that lost its coordinator, has given it up"
            work.gathering.said.append(Said(self._rank, refusal=refusal))
        work.commit = bool(decided)
        self._carry_out(work)

    def _carry_out(self, work: PendingOperation) -> None:
        work.phase = SPREADING
        work.deadline_s = self.now_s + self._patience_s
        votes = work.gathering.said
        if not work.commit:
            votes = [response for response in votes if response.refusal]
        elif not work.request.waits:
            self._tell(work, True, votes)
        own: list[Said] = []
        if self._rank in work.request.members:
            own = self._own.finish(work.op, work.commit)
        ranks = self._others(work.request) if work.spread else []
        work.gathering = ResponseCollector(self._shares(work.request)(ranks), own)
        self._spread(work, list(work.gathering.waiting.items()))
        if not work.commit:
            # The answer contains the refusals, but no failures to undo.
            if not work.answered:
                self._tell(work, False, votes)
        else:
            work.gathering.said += [] if work.answered else votes
        self._finish_if_complete(work)

    def _spread(
        self, work: PendingOperation, targets: Sequence[tuple[int, tuple[int, ...]]]
    ) -> None:
        """Send the decision to ranks, bypassing lost ranks."""
        left = deque(targets)
        while left:
            rank, subtree = left.popleft()
            if rank in self._gone:
                left.extend(work.gathering.bypass(rank, self._shares(work.request)))
            else:
                self._send(rank, Decide(work.op, self._rank, work.serial, work.commit, subtree))

    def _finish_if_complete(self, work: PendingOperation) -> None:
        if not work.gathering.is_complete:
            return
        if not work.answered:
            self._tell(work, work.commit, work.gathering.said)
        if not any(response.refusal for response in work.gathering.said):
            self._unheard.add(work.op)
            if work.heard or work.op[0] == self._rank or work.op[0] in self._gone:
                self.heard(work.op)
        self._end(work)

    def _tell(self, work: PendingOperation, decided: bool | None, said: Sequence[Said]) -> None:
        work.answered = True
        self._answer(Answer(work.op, decided, tuple(said)))

    def _end(self, work: PendingOperation) -> None:
        del self._work[work.op]
        key = work.request.key
        queue = self._queues.get(key) if work.request.owner == self._rank else None
        if queue is None:
            return
        if not queue:
            del self._queues[key]
            return
        self._start(*queue.popleft())


Shares: TypeAlias = Callable[[Sequence[int]], Iterator[tuple[int, tuple[int, ...]]]]

LOST = "the rank is lost"
_UNREACHED = "rank {rank}, which was to reach it, is lost"


class ResponseCollector:
    """The ranks that one rank waits for, each with the subtree that it must reach.

    `said` contains the responses received so far.
    """

    def __init__(self, shares: Iterable[tuple[int, tuple[int, ...]]], said: Iterable[Said]) -> None:
        self.waiting: dict[int, tuple[int, ...]] = dict(shares)
        self.said: list[Said] = list(said)

    @property
    def is_complete(self) -> bool:
        """True if no response is outstanding."""
        return not self.waiting

    def hear(self, rank: int, said: Iterable[Said]) -> None:
        """Record the responses of a rank and its subtree."""
        if self.waiting.pop(rank, None) is not None:
            self.said += said

    def give_up(self, rank: int) -> None:
        """Record a lost rank, and the subtree that it had to reach, as refusals."""
        subtree = self.waiting.pop(rank, None)
        if subtree is not None:
            self.said.append(Said(rank, refusal=LOST))
            self.said += [
                Said(unreached, refusal=_UNREACHED.format(rank=rank)) for unreached in subtree
            ]

    def bypass(self, rank: int, shares: Shares) -> list[tuple[int, tuple[int, ...]]]:
        """Replace a lost rank with its subtree; return the ranks to send to and their subtrees."""
        subtree = self.waiting.pop(rank, None)
        if subtree is None:
            return []
        self.said.append(Said(rank, refusal=LOST))
        more = list(shares(subtree))
        self.waiting.update(more)
        return more

    def late(self) -> list[Said]:
        """Return a refusal for each rank that has not answered."""
        found = []
        for rank, subtree in self.waiting.items():
            found += [Said(member, refusal="no answer in time") for member in (rank, *subtree)]
        return found


def shares(ranks: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the ranks to send to, each with the ranks that it must reach."""
    left = tuple(ranks)
    while left:
        middle = len(left) // 2
        yield left[middle], left[middle + 1 :]
        left = left[:middle]


def without_subtrees(ranks: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield all ranks with empty subtrees, so that one rank sends to each of them itself."""
    return ((rank, ()) for rank in ranks)
