"""A transport on which each message takes as long as on a slower network and slower processors.

Ranks on one machine reach each other in microseconds, so what a protocol costs would be the cost of
its Python. Here each message carries the time at which it may be seen, and its receiver does not
see it before. The delays are those of Carns, Settlemyer and Ligon's model (their section on the
simulation, see `examples.papers.network`): a sender is busy with one message after the other, each
for `Delay.overhead_s`; then it is under way for `Delay.latency_s`; then the receiver is busy with
it for `Delay.overhead_s`, again one after the other. A message to oneself is never under way.

Nobody sleeps for a message: a rank that waits is in its poll, so two cores carry many ranks as long
as the delays are much longer than the work. All ranks must be on one machine, for they share its
monotonic clock. A poll wakes up to a millisecond late.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from struct import Struct

import msgspec

from pcircle.transport.contract import Delivery, LostRank, Transport

_STAMP = Struct("<d")


class Delay(msgspec.Struct, frozen=True):
    """What each message costs: a processor at both ends, and the way between them."""

    overhead_s: float
    latency_s: float


class Delayed:
    """A transport behind which each message is delivered at its time."""

    def __init__(
        self, inner: Transport, delay: Delay, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.rank, self.size, self.nodes = inner.rank, inner.size, inner.nodes
        self.messages = 0
        self._inner = inner
        self._delay = delay
        self._clock_s = clock_s
        self._sent_s = 0.0  # when this rank's processor is done with all that it has sent
        self._received_s = 0.0  # and with all that it has received
        self._held: deque[tuple[float, Delivery | LostRank]] = deque()  # in order of their times

    def send(self, dest: int, payload: bytes) -> None:
        self._sent_s = max(self._sent_s, self._clock_s()) + self._delay.overhead_s
        arrives_s = self._sent_s + (self._delay.latency_s if dest != self.rank else 0.0)
        self._inner.send(dest, _STAMP.pack(arrives_s) + payload)
        self.messages += 1

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        ends_s = float("inf") if timeout_s is None else self._clock_s() + timeout_s
        while True:
            now_s = self._clock_s()
            due = self._due(now_s)
            until_s = min(ends_s, self._held[0][0] if self._held else ends_s)
            wait_s = 0.0 if due else max(0.0, until_s - now_s)
            arrivals = self._inner.poll(None if wait_s == float("inf") else wait_s)
            for arrival in arrivals:
                self._hold(arrival)
            due += self._due(self._clock_s())
            now_s = self._clock_s()
            if due or now_s >= ends_s or (not arrivals and now_s < until_s):  # the last: woken
                return due

    def _hold(self, arrival: Delivery | LostRank) -> None:
        """Find out when an arrival is seen; one after the other, so what is lost comes last."""
        if isinstance(arrival, Delivery):
            (arrives_s,) = _STAMP.unpack_from(arrival.payload)
            self._received_s = max(self._received_s, arrives_s) + self._delay.overhead_s
            arrival = Delivery(arrival.source, arrival.payload[_STAMP.size :])
        self._held.append((self._received_s, arrival))

    def _due(self, now_s: float) -> list[Delivery | LostRank]:
        due = []
        while self._held and self._held[0][0] <= now_s:
            due.append(self._held.popleft()[1])
        return due

    def wake(self) -> None:
        self._inner.wake()

    def close(self) -> None:
        self._inner.close()

    def abort(self, exit_code: int) -> None:
        self._inner.abort(exit_code)
