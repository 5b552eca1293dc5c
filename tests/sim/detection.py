"""A termination detector alone, against an adversary that decides each next step.

The engine's work stealing visits few of the states that could deceive a detector. Here a rank is
either active or passive, an active one sends basic messages to any rank, and the order of all
deliveries is drawn, with some pairs of ranks far slower than others: hundreds of jobs in the time
that the engine needs for one. The test checks the contract: never too early, and eventually.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from pcircle.circle.messages import Message
from pcircle.circle.termination import Detector, Outgoing
from pcircle.circle.topology import TreePosition

MakeDetector = Callable[[TreePosition], Detector]
# The maximum number of steps per rank from the end of all work to detection: some waves.
PATIENCE = 400


class Game:
    """One job of `size` ranks against the adversary of a seed."""

    def __init__(self, make: MakeDetector, seed: int) -> None:
        self.rng = rng = Random(f"detection {seed}")
        size = rng.choice((1, 2, 3, 3, 4, 4, 5, 6, 9))
        arity = rng.choice((1, 2, 8))
        self.size = size
        self.detectors = [make(TreePosition(rank, size, arity)) for rank in range(size)]
        self.active = [rng.random() < 0.5 for _ in range(size)]
        # None stands for a basic message.
        self.channels: dict[tuple[int, int], deque[Message | None]] = {}
        self.budget = rng.choice((0, 2, 4, 8, 16))
        self.flying = 0  # basic messages
        self.now_s = 0.0
        self._eager = rng.choice((0.2, 0.5, 0.9))  # to send instead of becoming passive
        self._busy = rng.choice((0.05, 0.3, 0.7))  # chance that a step is work
        self._slow = rng.choice((1.0, 0.2, 0.02))  # of the slow pairs, relative to the other pairs
        self._lame = {(a, b) for a in range(size) for b in range(size) if rng.random() < 0.4}

    def play(self) -> None:
        """Until it is found that all is over; AssertionError if that is wrong, or never."""
        for rank in range(self.size):
            self._advance(rank)
        spare = PATIENCE * (self.size + 1)
        while not self.detectors[0].terminated:
            self.now_s += 0.01
            over = not self.flying and not any(self.active)
            spare -= over
            assert spare > 0, "all is over, and nobody finds out"
            workers = [rank for rank in range(self.size) if self.active[rank]]
            if workers and (self.rng.random() < self._busy or not self.channels):
                self._work(self.rng.choice(workers))
            elif self.channels:
                self._deliver()
            else:
                self._advance(0)  # time passes
        assert not any(self.active), "terminated, but a rank is active"
        assert not self.flying, "terminated, but a basic message is in flight"

    def _work(self, rank: int) -> None:
        if self.size > 1 and self.budget and self.rng.random() < self._eager:
            self.budget -= 1
            other = (rank + self.rng.randrange(1, self.size)) % self.size
            self.detectors[rank].sent()
            self.flying += 1
            self.channels.setdefault((rank, other), deque()).append(None)
        else:
            self.active[rank] = False
        self._advance(rank)

    def _deliver(self) -> None:
        pairs = list(self.channels)
        weights = [self._slow if pair in self._lame else 1.0 for pair in pairs]
        (pair,) = self.rng.choices(pairs, weights)
        channel = self.channels[pair]
        message = channel.popleft()
        if not channel:
            del self.channels[pair]
        source, dest = pair
        if message is None:
            self.flying -= 1
            self.detectors[dest].received()
            self.active[dest] = True
        else:
            self._send(dest, self.detectors[dest].handle(source, message))
        self._advance(dest)

    def _advance(self, rank: int) -> None:
        self._send(rank, self.detectors[rank].advance(not self.active[rank], self.now_s))

    def _send(self, source: int, outgoing: Outgoing) -> None:
        for dest, message in outgoing:
            self.channels.setdefault((source, dest), deque()).append(message)
