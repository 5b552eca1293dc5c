"""A transport that delays messages as a slower network and slower processors would.

Ranks on one machine reach each other in microseconds, so the cost of a protocol would be that of
its Python code. Here each message carries the time of its delivery, and the receiver does not see
it earlier. The delays follow the model of Carns, Settlemyer and Ligon (their section on the
simulation, see `examples.papers.network`). The sender handles one message after the other, each for
`Delay.overhead_s`. The message then travels for `Delay.latency_s`, and the receiver handles it for
`Delay.overhead_s`, again one after the other. A message of a rank to itself does not travel. If
`Delay.near_s` is set, messages between ranks of the same node travel for that time.

No rank sleeps for the duration of a message: a waiting rank is in its poll. So two cores can run
many ranks if the delays are much longer than the work. All ranks must be on one machine, because
they share its monotonic clock. A poll wakes up to a millisecond late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from struct import Struct

import msgspec

from pcircle.transport.contract import Delivery, LostRank, Transport

_STAMP = Struct("<d")


class Delay(msgspec.Struct, frozen=True):
    """The cost of a message: processing at both ends, and the travel between them."""

    overhead_s: float
    latency_s: float
    near_s: float | None = None


class Delayed:
    """A transport that delivers each message at its delayed time.

    `nodes` replaces the nodes of the inner transport.
    """

    def __init__(
        self,
        inner: Transport,
        delay: Delay,
        clock_s: Callable[[], float] = time.monotonic,
        nodes: Sequence[int] | None = None,
    ) -> None:
        self.rank, self.size = inner.rank, inner.size
        self.nodes = inner.nodes if nodes is None else tuple(nodes)
        self.messages = 0
        self._inner = inner
        self._delay = delay
        self._clock_s = clock_s
        self._sent_s = 0.0  # when this rank's processor has sent all its messages
        self._received_s = 0.0  # and has handled all messages received
        self._number = 0  # of arrivals: keeps the order of simultaneous ones
        self._held: list[tuple[float, int, Delivery | LostRank]] = []  # a heap, by time
        near_s = delay.latency_s if delay.near_s is None else delay.near_s
        self._latencies_s = [
            near_s if node == self.nodes[self.rank] else delay.latency_s for node in self.nodes
        ]
        self._latencies_s[self.rank] = 0.0

    def send(self, dest: int, payload: bytes) -> None:
        self._sent_s = max(self._sent_s, self._clock_s()) + self._delay.overhead_s
        arrives_s = self._sent_s + self._latencies_s[dest]
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
        """Compute when an arrival is delivered; a lost rank follows all earlier arrivals."""
        seen_s = self._received_s
        if isinstance(arrival, Delivery):
            (seen_s,) = _STAMP.unpack_from(arrival.payload)
            if self._delay.overhead_s:
                seen_s = max(self._received_s, seen_s) + self._delay.overhead_s
            self._received_s = max(self._received_s, seen_s)
            arrival = Delivery(arrival.source, arrival.payload[_STAMP.size :])
        self._number += 1
        heappush(self._held, (seen_s, self._number, arrival))

    def _due(self, now_s: float) -> list[Delivery | LostRank]:
        due = []
        while self._held and self._held[0][0] <= now_s:
            due.append(heappop(self._held)[2])
        return due

    def wake(self) -> None:
        self._inner.wake()

    def close(self) -> None:
        self._inner.close()

    def abort(self, exit_code: int) -> None:
        self._inner.abort(exit_code)
