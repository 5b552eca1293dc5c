"""Termination detection: two algorithms, each with the argument for its correctness.

The model. A rank is *passive* when its queue is empty (including the spilled part) and none of its
items and completions is running or waiting. A passive rank becomes active only by receiving a
*basic* message (work or a result), and only active ranks send basic messages. Messages may take any
time and keep their order only per pair of ranks. The computation has *terminated* when every rank
is passive and no basic message is in flight. That state is stable. The question is how to observe
it from inside, where no two ranks share a "now".

Four counters. The algorithm of Mattern ("Algorithms for distributed termination detection", 1987,
section 4) runs here as waves on the tree of ranks. Every rank counts the basic messages that it
ordered (sent) and consumed (received). A wave collects the counters of all ranks. A rank answers
when it is passive and all its children have answered, with its counters at that moment. Suppose
that the root opened a second wave after it had closed the first, and that the sums are S1 = R1 = S2
= R2.

  Let t be the moment when the first wave was closed. Every rank's first report was
  made before t and its second after t, and counters never decrease. So
  R1 <= R(t) <= S(t) <= S2: at least the messages in the first reports were received
  by t, no message is received that was not sent, and at most the messages in the
  second reports were sent by t. R1 = S2 implies R(t) = S(t), so no basic message was
  in flight at t. Because S1 = S2, R1 = R2 and counters never decrease, no rank's
  counters changed between its two reports. Each rank was passive at its first report
  and received no basic message after it, so it was still passive at its second
  report, and thus at t. Hence the computation had terminated at t.

Each premise is necessary, and for each the tests contain a mutant without it:

* the counters: all ranks may report that they are passive while work is in flight to a rank that
  reported before it arrives;
* fresh reports: with a stale report in the second wave, a message may slip between the two
  (received after the stale report and sent on before t);
* waves that do not overlap: otherwise no moment t lies between all first reports and all second
  reports;
* passive means that nothing is *running*: a running item may spawn items without a message that
  would reveal it.

A wave costs 2(P-1) messages and O(log P) time. A wave is not a poll: because ranks report only when
they are passive, it does not complete while any rank is active.

The drain. When all work is done, other messages may still be in flight: requests, refusals,
registrations of waiting ranks. None may remain, because the next job of the same ranks would
receive it. One wave of the same counters is sufficient, and the round that collects the accounts is
such a wave. Further waves follow only if it finds messages in flight. When there are none, rank 0
gives its own account and concludes. (After an abort the waves precede the accounts, because
messages in flight must not reach ranks that have already given theirs.) Once a rank is draining,
the only counted messages that it sends are answers, and notices to rank 0. Rank 0 answers each
notice. Each message has at most one answer, sent in the same step. A rank reports when it is
draining and passive, and has received the answers to its notices. It also waits for the answer to
its own request, but only so that the first wave rarely fails: the argument requires only that a
rank starts nothing new.

  Consider a chain: a message, its answer, the answer to that, and so on. An answer
  is on the same side of its sender's report as the message that it answers. So a
  chain adds to S - R of the wave: 1 if its first message was sent before its sender's
  report, less 1 if its last message was received before its receiver's report. A
  chain that began before the report adds 0 or 1, and 0 only if all its messages had
  arrived when the wave was closed. A chain that began after the report starts with a
  notice and ends at the rank where it began, so it adds 0. No chain adds less than 0,
  so if S = R, no chain of the first kind is in flight. A rank waits for its chains of
  the second kind before it gives its account, and starts none after that.

If a message could have two answers, this would be wrong: two answers that were sent after a report
and received before another report would hide two messages in flight.

Token ring. This is the algorithm of Dijkstra, Feijen and van Gasteren (1983) with Safra's counts
(EWD 998), which make it correct for messages that take time. A token travels from rank 0 through
P-1, P-2, ..., 1 back to 0. Only passive ranks pass it on, and add their number of messages sent
less received. A rank that has received a message since it last passed the token is black and
blackens the token. Rank 0 concludes when it is passive and white, the token returns white, and the
counts sum to zero. EWD 998 proves this invariant: (P0) the sum of counts is the number of messages
in flight; and (P1) the ranks that the token has passed are passive and their counts sum to the
token's, or (P2) the sum of the token's and the unpassed ranks' counts is positive, or (P3) an
unpassed rank is black, or (P4) the token is. Published systems such as libcircle use rings. The
ring is here for comparison, and is not the default because a round takes O(P) time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from pcircle.circle.messages import Message, MessageCounts, SafraToken, TreeBroadcast, TreeReduction
from pcircle.circle.topology import TreePosition
from pcircle.core.errors import require

Outgoing = list[tuple[int, Message]]


class Detector(Protocol):
    """The interface of both algorithms.

    The engine calls `sent` and `received` for every counted message, `handle` for the detector's
    own messages, and `advance` after every event. `terminated` becomes true on rank 0, once, and
    only if the computation has terminated. It eventually becomes true if the computation terminates
    and messages continue to be delivered.
    """

    terminated: bool

    def sent(self) -> None:
        """Count a message that was ordered."""

    def received(self) -> None:
        """Count a message that was consumed."""

    def handle(self, source: int, message: Message) -> Outgoing:
        """Process a message of a wave of this detector, or the token."""
        ...

    def advance(self, passive: bool, now_s: float) -> Outgoing:
        """Make all possible progress. `passive` is this rank's state now."""
        ...

    def wakeup_s(self) -> float | None:
        """Return when to call `advance` again if nothing else happens."""


class Backoff:
    """Exponential backoff between the attempts of rank 0, so that waiting is cheap."""

    def __init__(self, first_s: float = 0.0005, limit_s: float = 0.05) -> None:
        self._first_s = self._wait_s = first_s
        self._limit_s = limit_s
        self.due_s: float | None = None

    def reset(self) -> None:
        """Allow an immediate attempt, and start again with the shortest delay."""
        self._wait_s = self._first_s
        self.due_s = None

    def defer(self, now_s: float) -> None:
        """Delay the next attempt, and double the delay after it."""
        self.due_s = now_s + self._wait_s
        self._wait_s = min(self._limit_s, 2 * self._wait_s)

    def is_due(self, now_s: float) -> bool:
        """Return whether the delay is over."""
        return self.due_s is None or now_s >= self.due_s


class CounterWaves(ABC):
    """Waves of counters on the tree, one after the other, until `_closed` ends them."""

    def __init__(self, tree: TreePosition, kind: int) -> None:
        self.terminated = False
        self.counted: MessageCounts = MessageCounts()
        self.waves: int = 0
        self._tree = tree
        self._kind = kind
        self._number = 0  # of the open or the last wave
        self._open = False
        self._waiting: set[int] = set()  # children that have not answered
        self._children = MessageCounts()
        self._backoff = Backoff()

    def sent(self) -> None:
        self.counted = MessageCounts(self.counted.sent + 1, self.counted.received)

    def received(self) -> None:
        self.counted = MessageCounts(self.counted.sent, self.counted.received + 1)

    def handle(self, source: int, message: Message) -> Outgoing:
        """Open a wave here and below, or record a child's answer."""
        if isinstance(message, TreeBroadcast):
            return self._opened(message.number)
        if isinstance(message, TreeReduction) and self._accepts(source, message.number):
            self._waiting.discard(source)
            self._children = self._children + require(message.counted)
        return []

    def give_up(self) -> None:
        """Abandon the open wave: this rank does not answer it."""
        self._open = False

    def _accepts(self, source: int, number: int) -> bool:
        return self._open and number == self._number and source in self._waiting

    def _opened(self, number: int) -> Outgoing:
        self._number = number
        self._open = True
        self._waiting = set(self._tree.children)
        self._children = MessageCounts()
        return [(child, TreeBroadcast(self._kind, number)) for child in self._tree.children]

    def _may_open(self, passive: bool, now_s: float) -> bool:
        # The last wave must be closed, otherwise the moment t of the argument does not exist.
        return passive and not self._open and self._backoff.is_due(now_s)

    def _may_report(self, passive: bool) -> bool:
        return self._open and passive and not self._waiting

    def advance(self, passive: bool, now_s: float) -> Outgoing:
        """Report if this rank and its children are done; on the root, end or start a wave."""
        out: Outgoing = []
        root = self._tree.parent is None
        if root and not self.terminated and self._may_open(passive, now_s):
            self.waves += 1
            out += self._opened(self._number + 1)
        if not self._may_report(passive):
            return out
        self._open = False
        total = self.counted + self._children
        if self._tree.parent is not None:
            out.append((self._tree.parent, TreeReduction(self._kind, self._number, counted=total)))
            return out
        self._closed(total, now_s)
        if not self.terminated and self._backoff.due_s is None:
            out += self.advance(passive, now_s)
        return out

    @abstractmethod
    def _closed(self, total: MessageCounts, now_s: float) -> None:
        """Decide on the root, from the sums of a wave, whether to end or to schedule another."""

    def wakeup_s(self) -> float | None:
        """Return when the root may open the next wave."""
        return None if self._open or self.terminated else self._backoff.due_s


class FourCounter(CounterWaves):
    """Mattern's four counters: two successive waves with equal, balanced sums show termination."""

    _previous: MessageCounts | None = None

    def _closed(self, total: MessageCounts, now_s: float) -> None:
        balanced = total.sent == total.received
        self.terminated: bool = balanced and total == self._previous
        if balanced and total != self._previous:
            self._backoff.reset()  # the confirming wave may follow at once
        else:
            self._backoff.defer(now_s)
        self._previous = total


class DrainWaves(CounterWaves):
    """Waves of ranks that start nothing new. One wave whose sums balance is sufficient."""

    def _closed(self, total: MessageCounts, now_s: float) -> None:
        self.terminated: bool = total.sent == total.received
        self._backoff.defer(now_s)


class TokenRing:
    """Dijkstra's token ring with Safra's message counts."""

    def __init__(self, rank: int, size: int) -> None:
        self.terminated: bool = False
        self._rank = rank
        self._size = size
        self._count = 0  # messages sent less received
        self._black = (
            True  # rank 0 must not conclude from the initial token, which no rank has seen
        )
        self._token: SafraToken | None = SafraToken(0, 0, True) if rank == 0 else None
        self._backoff = Backoff()

    def sent(self) -> None:
        self._count += 1

    def received(self) -> None:
        """Count a message; it may have made this rank active after the token passed."""
        self._count -= 1
        self._black = True

    def handle(self, source: int, message: Message) -> Outgoing:
        """Take the token."""
        if isinstance(message, SafraToken):
            self._token = message
        return []

    def advance(self, passive: bool, now_s: float) -> Outgoing:
        """Pass the token on if this rank holds it and is passive; on rank 0, evaluate it first."""
        token = self._token
        if token is None or not passive or self.terminated:
            return []
        if self._rank:
            self._token = None
            black = token.black or self._black
            self._black = False
            onward = SafraToken(token.probe, token.count + self._count, black)
            return [(self._rank - 1, onward)]
        if not self._backoff.is_due(now_s):
            return []
        if token.probe and not token.black and not self._black and token.count + self._count == 0:
            self.terminated = True
            return []
        if self._size == 1:
            self.terminated = True  # passive, and the only rank
            return []
        return self._probe(token, now_s)

    def _probe(self, token: SafraToken, now_s: float) -> Outgoing:
        self._backoff.defer(now_s)
        self._token = None
        self._black = False
        return [(self._size - 1, SafraToken(token.probe + 1, 0, False))]

    def wakeup_s(self) -> float | None:
        """Return when rank 0 may send the token again."""
        return self._backoff.due_s if self._token is not None and not self.terminated else None
