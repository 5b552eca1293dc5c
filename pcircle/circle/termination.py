"""How the ranks find out that all work is done, and why that is right.

The model. A rank is *passive* when its queue is empty (the spilled part
included), no item of its own is running or waiting, and no completion is. A
passive rank becomes active only by receiving a *basic* message (work or a
result); only active ranks send basic messages, except that a passive rank
never does. Messages take any time, and keep their order only per pair of
ranks. The computation has *terminated* when every rank is passive and no
basic message is in flight. That state is stable; the question is how to see
it from inside, where no two ranks share a "now".

Four counters (Mattern 1987, "Algorithms for distributed termination
detection", section 4), as waves on the tree of ranks. Every rank counts the
basic messages it ordered (sent) and consumed (received). A wave asks each
rank for its counters; a rank answers when it is passive and all its children
have answered, with the counters as they are *then*. Suppose two waves, the
second opened after the first was closed at the root, with sums
S1 = R1 = S2 = R2.

  Let t be the moment the first wave was closed. Every rank's first report was
  made before t, its second after t, and counters never fall. So
  R1 <= R(t) <= S(t) <= S2: what was received by t is at least what the first
  reports say, no message is received that was not sent, and what was sent by
  t is at most what the second reports say. With R1 = S2, R(t) = S(t): at t no
  basic message was in flight. And as S1 = S2 and R1 = R2 and counters never
  fall, no rank's counters moved between its two reports. Each rank was
  passive at its first report and has since received no basic message, so it
  stayed passive until its second, t included. Hence at t the computation had
  terminated.

Each premise is needed, and the tests have a mutant that drops each one:

  * the counters: all ranks may report passive while a work reply is in
    flight to one that reported before it arrives;
  * fresh reports: with a stale report in the second wave, a message may slip
    between the two (received after the stale report and resent before t);
  * waves that don't overlap: else there is no moment t between all the first
    reports and all the second ones;
  * passive means nothing is *running*: an item that runs may spawn, with no
    message to give it away.

The cost is 2(P-1) messages and O(log P) time a wave. As reports wait until a
rank is passive, a wave is not a poll: while somebody works, it stands still.

The drain. When all work is done, messages may still be on their way: requests,
refusals, who waits. None may be left, because the next job of the same ranks
would get it. One wave of the same counters is enough for that, and the round
that collects the accounts is one: only where it finds that messages are left
others follow it, and rank 0 gives its own account, and concludes, when none is.
(After an abort they come before it, since what of that is on
its way must not meet ranks that have told all.) From when it
drains a rank sends no counted message but answers, and notices to rank 0, which
rank 0 answers; each message has one answer at most, sent in the same turn; and
a rank reports when it drains, is passive and has heard the answers to its notices. It
waits for the answer to its request, too, so that the first wave is seldom in vain; the argument
needs no more than that nothing is begun.

  Take a chain: a message, its answer, the answer to that, and so on. An answer
  is on the same side of its sender's report as the message that it answers. So
  a chain adds to S - R of the wave: 1 if its first message was sent before its
  sender's report, less 1 if its last one was received, and that before its
  receiver's report. It adds 0 or 1 if it began before the report: 0 only if all
  of it had arrived when the wave was closed. A chain that began after it is a
  notice, and ends where it began: it adds 0. Nothing adds less than 0, and so
  with S = R no chain of the first kind is in flight. One of the second kind is
  waited for by the rank that began it, before it gives its account, and after
  that there are none.

With two answers to a message this would be wrong: two that were sent after a
report and received before another one's would hide two that are in flight.

Token ring (Dijkstra, Feijen, van Gasteren 1983; with Safra's counts, EWD 998,
so that it is right for messages that take time). A token goes round from rank
0 by P-1, P-2, ..., 1 back to 0; only passive ranks pass it on, adding their
count of messages sent less received; a rank that received a message since it
last passed the token is black and blackens it. Rank 0 concludes when it is
passive and white, the token comes back white, and the counts sum to zero.
EWD 998 has the invariant and its proof: (P0) the sum of counts is the number
of messages in flight; and (P1) the ranks that the token has passed are passive
and their counts sum to the token's, or (P2) the sum of the token's and the
unpassed ranks' counts is positive, or (P3) an unpassed rank is black, or (P4)
the token is. The published systems (libcircle) use rings; O(P) time a round is
why it is the comparison here and not the default.
"""

from __future__ import annotations

from typing import Protocol

from pcircle.circle.messages import Counted, Down, Message, Token, Up
from pcircle.circle.topology import Tree
from pcircle.guards import require

Outgoing = list[tuple[int, Message]]


class Detector(Protocol):
    """The contract of both strategies.

    The engine calls `sent` and `received` for every counted message, hands
    in what arrives, and calls `advance` after every event. `terminated`
    becomes true on rank 0, once, and only if the computation has terminated;
    and it does become true if the computation terminates and messages keep
    arriving.
    """

    terminated: bool

    def sent(self) -> None:
        """A counted message was ordered."""

    def received(self) -> None:
        """A counted message was consumed."""

    def handle(self, source: int, message: Message) -> Outgoing:
        """A message of the detector's own has come: Down or Up of its kind, or Token."""

    def advance(self, passive: bool, now_s: float) -> Outgoing:
        """Go on as far as possible. `passive` is this rank's state now."""

    def wakeup_s(self) -> float | None:
        """When `advance` should be called again although nothing happened."""


class Pace:
    """How long rank 0 waits before it tries again: doubling, so that trying is cheap."""

    def __init__(self, first_s: float = 0.0005, limit_s: float = 0.05) -> None:
        self._first_s = self._wait_s = first_s
        self._limit_s = limit_s
        self.due_s: float | None = None

    def now(self) -> None:
        """Nothing stands in the way: no waiting, and begin anew."""
        self._wait_s = self._first_s
        self.due_s = None

    def later(self, now_s: float) -> None:
        """Wait, the next time longer."""
        self.due_s = now_s + self._wait_s
        self._wait_s = min(self._limit_s, 2 * self._wait_s)

    def ready(self, now_s: float) -> bool:
        """Whether the wait is over."""
        return self.due_s is None or now_s >= self.due_s


class Waves:
    """Waves of counters on the tree, one after the other, until `_judge` ends them."""

    def __init__(self, tree: Tree, kind: int) -> None:
        self.terminated = False
        self.counted = Counted()
        self.waves = 0
        self._tree = tree
        self._kind = kind
        self._number = 0  # of the open wave, or of the last one
        self._open = False
        self._waiting: set[int] = set()  # children that have not answered
        self._children = Counted()
        self._pace = Pace()

    def sent(self) -> None:
        """A counted message was ordered."""
        self.counted = Counted(self.counted.sent + 1, self.counted.received)

    def received(self) -> None:
        """A counted message was consumed."""
        self.counted = Counted(self.counted.sent, self.counted.received + 1)

    def handle(self, source: int, message: Message) -> Outgoing:
        """Down opens the wave here and below; Up closes it for one child."""
        if isinstance(message, Down):
            return self._opened(message.number)
        if isinstance(message, Up) and self._accepts(source, message.number):
            self._waiting.discard(source)
            self._children = self._children + require(message.counted)
        return []

    def give_up(self) -> None:
        """The open wave is not answered here any more."""
        self._open = False

    def _accepts(self, source: int, number: int) -> bool:
        return self._open and number == self._number and source in self._waiting

    def _opened(self, number: int) -> Outgoing:
        self._number = number
        self._open = True
        self._waiting = set(self._tree.children)
        self._children = Counted()
        return [(child, Down(self._kind, number)) for child in self._tree.children]

    def _may_open(self, passive: bool, now_s: float) -> bool:
        # Only after the last wave was closed, or the argument's moment t does not exist.
        return passive and not self._open and self._pace.ready(now_s)

    def _may_report(self, passive: bool) -> bool:
        return self._open and passive and not self._waiting

    def advance(self, passive: bool, now_s: float) -> Outgoing:
        """Report if this rank is passive and its children have; at the root, conclude or reopen."""
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
            out.append((self._tree.parent, Up(self._kind, self._number, counted=total)))
            return out
        self._closed(total, now_s)
        if not self.terminated and self._pace.due_s is None:
            out += self.advance(passive, now_s)
        return out

    def _closed(self, total: Counted, now_s: float) -> None:
        """The root has the sums of a wave: has all ended, and if not, when is the next one?"""
        raise NotImplementedError

    def wakeup_s(self) -> float | None:
        """When the root may open the next wave."""
        return None if self._open or self.terminated else self._pace.due_s


class FourCounter(Waves):
    """Mattern's four counters: two waves that agree."""

    _previous: Counted | None = None

    def _closed(self, total: Counted, now_s: float) -> None:
        balanced = total.sent == total.received
        self.terminated = balanced and total == self._previous
        if balanced and total != self._previous:
            self._pace.now()  # the confirming wave may follow at once
        else:
            self._pace.later(now_s)
        self._previous = total


class Drain(Waves):
    """One wave that balances, of ranks that begin nothing any more."""

    def _closed(self, total: Counted, now_s: float) -> None:
        self.terminated = total.sent == total.received
        self._pace.later(now_s)


class TokenRing:
    """Dijkstra's token ring with Safra's message counts."""

    def __init__(self, rank: int, size: int) -> None:
        self.terminated = False
        self.probes = 0
        self._rank = rank
        self._size = size
        self._count = 0  # sent less received
        self._black = True  # rank 0 must not conclude from the first, unstarted probe
        self._token: Token | None = Token(0, 0, True) if rank == 0 else None
        self._pace = Pace()

    def sent(self) -> None:
        """A counted message was ordered."""
        self._count += 1

    def received(self) -> None:
        """A counted message was consumed: this rank may have become active behind the token."""
        self._count -= 1
        self._black = True

    def handle(self, source: int, message: Message) -> Outgoing:
        """The token has come."""
        if isinstance(message, Token):
            self._token = message
        return []

    def advance(self, passive: bool, now_s: float) -> Outgoing:
        """Pass the token on if this rank holds it and is passive; at rank 0, judge it first."""
        token = self._token
        if token is None or not passive or self.terminated:
            return []
        if self._rank:
            self._token = None
            black = token.black or self._black
            self._black = False
            onward = Token(token.probe, token.count + self._count, black)
            return [(self._rank - 1, onward)]
        if not self._pace.ready(now_s):
            return []
        if token.probe and not token.black and not self._black and token.count + self._count == 0:
            self.terminated = True
            return []
        if self._size == 1:
            self.terminated = True  # passive, and nobody else could send
            return []
        return self._probe(token, now_s)

    def _probe(self, token: Token, now_s: float) -> Outgoing:
        self._pace.later(now_s)
        self.probes += 1
        self._token = None
        self._black = False
        return [(self._size - 1, Token(token.probe + 1, 0, False))]

    def wakeup_s(self) -> float | None:
        """When rank 0 may send the token round again."""
        return self._pace.due_s if self._token is not None and not self.terminated else None
