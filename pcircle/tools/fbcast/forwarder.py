"""Distribution of a stream to all nodes: the forwarding on one node, and a cost model.

A `Forwarder` accesses neither the network nor files itself. A node forwards each chunk, and
delivers it to be written. When the chunk has been written (`chunk_written`) and forwarded, the node
sends an acknowledgement back, which allows the sender to send another chunk. A node therefore holds
a bounded number of chunks, no matter which node is slow.

The cost model chooses how a stream travels to all nodes, and the size of its chunks. Sending n
bytes over a link takes alpha + n beta seconds, and a link carries both directions at the same time.
For N bytes and P nodes:

- *chain*, in chunks of c bytes from each node to the next: (N / c + P - 2) (alpha + c beta). The
  best c is sqrt(N alpha / ((P - 2) beta)), and each link carries the data once. (A tree with a
  fan-out of two would carry it twice.)
- *exchange*: recursive halving scatters one P-th of the data to each node, and an all-gather
  collects it: 2 log2(P) alpha + 2 (P - 1) / P N beta. Each link carries the data twice, but the
  number of steps is logarithmic, which pays off for very many nodes.

The exchange is the algorithm of van de Geijn (Barnett, Shuler, van de Geijn et al., Interprocessor
collective communication library, 1994), as described by Thakur, Rabenseifner and Gropp
(Optimization of collective communication operations in MPICH, 2005). The all-gather algorithm is
Bruck's, which works for any number of nodes. The constants need not match the real network. Near
the crossing point the costs are similar, and far from it they differ so much that the choice is
clear.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil, log2, sqrt
from typing import TypeAlias

from pcircle.collective.coordinator import shares
from pcircle.tools.fbcast.messages import Acknowledgement, Parts, StreamChunk, StreamStart, Way

WINDOW = 8
"""The maximum number of unacknowledged chunks between two nodes of a chain."""
_PANELS = 2

Send: TypeAlias = Callable[[int, Parts | Acknowledgement], None]
Deliver: TypeAlias = Callable[[StreamChunk], None]


class Forwarder(ABC):
    """Forwards chunks on one node, and calls `deliver` once for each of them, in order."""

    def __init__(self, start: StreamStart, rank: int, send: Send, deliver: Deliver) -> None:
        self.attempt: int = start.attempt
        self._route = start.route
        self._place = start.route.index(rank)
        self._send = send
        self._deliver = deliver
        self._offered = 0
        self._written = 0  # number of chunks

    @abstractmethod
    def has_room(self) -> bool:
        """Return whether the reader may offer the next chunk."""

    @abstractmethod
    def offer(self, chunk: StreamChunk) -> None:
        """Accept the next chunk of the stream; only the reader calls this method."""

    @abstractmethod
    def received(self, source: int, parts: Parts) -> None:
        """Handle received chunks."""

    @abstractmethod
    def acknowledged(self, source: int, below: int) -> None:
        """Handle the acknowledgement of all chunks or panels below a number."""

    def chunk_written(self) -> None:
        """Note that the next chunk was written.

        A node that has failed also calls this method, because it continues to forward.
        """
        self._written += 1
        self._tell()

    @abstractmethod
    def _tell(self) -> None:
        """Acknowledge the progress of this node."""

    def _part(
        self, place: int, chunks: Sequence[StreamChunk], onward: tuple[int, ...] = ()
    ) -> None:
        self._send(self._route[place], Parts(self.attempt, tuple(chunks), onward))


class Chain(Forwarder):
    """Forwards from each node to the next, with several chunks in flight."""

    def __init__(self, start: StreamStart, rank: int, send: Send, deliver: Deliver) -> None:
        super().__init__(start, rank, send, deliver)
        self._is_end = self._place == len(self._route) - 1
        self._queue: deque[StreamChunk] = deque()
        self._passed = 0  # number of forwarded chunks
        self._taken = 0  # acknowledged by the next node
        self._acknowledged = 0

    def has_room(self) -> bool:
        return not self._queue and self._offered - self._written < WINDOW

    def offer(self, chunk: StreamChunk) -> None:
        self._offered += 1
        self._take(chunk)

    def received(self, source: int, parts: Parts) -> None:
        for chunk in parts.chunks:
            self._take(chunk)

    def acknowledged(self, source: int, below: int) -> None:
        self._taken = max(self._taken, below)
        self._pass_on()

    def _take(self, chunk: StreamChunk) -> None:
        if not self._is_end:
            self._queue.append(chunk)
            self._pass_on()
        self._deliver(chunk)

    def _pass_on(self) -> None:
        while self._queue and self._passed - self._taken < WINDOW:
            self._passed += 1
            self._part(self._place + 1, [self._queue.popleft()])
        self._tell()

    def _tell(self) -> None:
        below = self._written if self._is_end else min(self._written, self._passed)
        if self._place and below > self._acknowledged:
            self._acknowledged = below
            self._send(self._route[self._place - 1], Acknowledgement(self.attempt, below))


class Exchange(Forwarder):
    """Scatters by recursive halving, then gathers as in Bruck et al., panel by panel.

    A panel consists of one chunk for each place on the route. In step k of the gathering, a node
    sends the chunks of 2**k places, beginning with its own, to the node 2**k places before it. The
    reader already has all chunks, so it receives none.
    """

    def __init__(self, start: StreamStart, rank: int, send: Send, deliver: Deliver) -> None:
        super().__init__(start, rank, send, deliver)
        self._nodes = len(self._route)
        self._held: dict[int, dict[int, StreamChunk]] = {}  # by panel and place
        self._step: dict[int, int] = {}  # the next step of each panel
        self._next = 0  # number of the next chunk to deliver
        self._taken = dict.fromkeys(self._route[1:], 0)  # acknowledged panels by rank

    def has_room(self) -> bool:
        taken = min(self._taken.values(), default=self._offered // self._nodes)
        taken = min(taken, self._written // self._nodes)
        return self._offered // self._nodes - taken < _PANELS

    def offer(self, chunk: StreamChunk) -> None:
        self._offered += 1
        panel, place = divmod(chunk.number, self._nodes)
        held = self._held.setdefault(panel, {})
        held[place] = chunk
        if chunk.last:  # empty chunks complete the last panel
            for empty in range(place + 1, self._nodes):
                held[empty] = StreamChunk(panel * self._nodes + empty, b"", b"")
        if len(held) == self._nodes:
            for first, onward in shares(range(1, self._nodes)):
                self._part(first, [held[target] for target in (first, *onward)], onward)
            self._gather(panel)

    def received(self, source: int, parts: Parts) -> None:
        by_place = {chunk.number % self._nodes: chunk for chunk in parts.chunks}
        for first, onward in shares(parts.onward):
            self._part(first, [by_place[target] for target in (first, *onward)], onward)
        if parts.onward:
            by_place = {self._place: by_place[self._place]}
        for place, chunk in by_place.items():
            panel = chunk.number // self._nodes
            if panel * self._nodes >= self._next - self._nodes:
                self._held.setdefault(panel, {})[place] = chunk
        for panel in sorted({chunk.number // self._nodes for chunk in parts.chunks}):
            self._gather(panel)

    def acknowledged(self, source: int, below: int) -> None:
        if source in self._taken:
            self._taken[source] = max(self._taken[source], below)

    def _gather(self, panel: int) -> None:
        """Send the available chunks of a panel, and deliver the next chunks in order."""
        held = self._held.get(panel, {})
        step = self._step.get(panel, 0)
        while (1 << step) < self._nodes:
            count = min(1 << step, self._nodes - (1 << step))
            places = [(self._place + distance) % self._nodes for distance in range(count)]
            if not all(place in held for place in places):
                break
            to = (self._place - (1 << step)) % self._nodes
            if to:
                self._part(to, [held[place] for place in places])
            step += 1
        self._step[panel] = step
        self._hand_out()

    def _hand_out(self) -> None:
        while True:
            panel, place = divmod(self._next, self._nodes)
            chunk = self._held.get(panel, {}).get(place)
            if chunk is None:
                break
            self._next += 1
            if chunk.digest:
                self._deliver(chunk)
            else:
                self.chunk_written()
        for panel in [p for p in self._held if (p + 1) * self._nodes <= self._next]:
            if (1 << self._step[panel]) >= self._nodes:
                del self._held[panel]
        self._tell()

    def _tell(self) -> None:
        panels = self._written // self._nodes
        if self._place and panels and panels > self._taken[self._route[self._place]]:
            self._taken[self._route[self._place]] = panels
            self._send(self._route[0], Acknowledgement(self.attempt, panels))


def new_forwarder(start: StreamStart, rank: int, send: Send, deliver: Deliver) -> Forwarder:
    """Return the forwarder of a node for the algorithm that `start` specifies."""
    kind = Chain if start.way == "chain" else Exchange
    return kind(start, rank, send, deliver)


# ---- cost model ----------------------------------------------------------------------------------

ALPHA_S = 5e-4
"""The cost of a message: processing by two interpreters, and the latency of the network."""
BETA_S = 1e-9
"""The cost of a byte."""
MIN_CHUNK_BYTES = 64 << 10
MAX_CHUNK_BYTES = 1 << 20
MAX_PANEL_BYTES = 64 << 20
"""The maximum size of a panel, the unit of the exchange; each node holds two panels."""


def chain_chunk_bytes(size_bytes: int, nodes: int) -> int:
    """Return the best chunk size for a chain, within bounds."""
    hops = max(nodes - 2, 1)
    best = sqrt(size_bytes * ALPHA_S / (hops * BETA_S))
    return int(min(max(best, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES))


def chain_s(size_bytes: int, nodes: int) -> float:
    """Return the estimated duration of a chain."""
    chunk = chain_chunk_bytes(size_bytes, nodes)
    return (ceil(size_bytes / chunk) + max(nodes - 2, 0)) * (ALPHA_S + chunk * BETA_S)


def exchange_chunk_bytes(size_bytes: int, nodes: int) -> int:
    """Return the size of a node's part of a panel."""
    return max(min(ceil(size_bytes / nodes), MAX_PANEL_BYTES // nodes, MAX_CHUNK_BYTES), 4 << 10)


def exchange_s(size_bytes: int, nodes: int) -> float:
    """Return the estimated duration of an exchange."""
    panels = ceil(size_bytes / (nodes * exchange_chunk_bytes(size_bytes, nodes)))
    # A long message costs as much per byte as a sequence of chunks.
    byte_s = BETA_S + ALPHA_S / MAX_CHUNK_BYTES
    return panels * 2 * ceil(log2(nodes)) * ALPHA_S + 2 * (nodes - 1) / nodes * size_bytes * byte_s


def choose(size_bytes: int, nodes: int) -> tuple[Way, int]:
    """Return how a stream of this size travels, and its chunk size."""
    size_bytes = max(size_bytes, 1)
    if nodes > 2 and exchange_s(size_bytes, nodes) < chain_s(size_bytes, nodes):
        return "exchange", exchange_chunk_bytes(size_bytes, nodes)
    return "chain", chain_chunk_bytes(size_bytes, nodes)


def crossing_bytes(nodes: int) -> int:
    """Return a size above which a chain is best, so that the exact size does not matter."""
    size_bytes = MIN_CHUNK_BYTES
    while choose(size_bytes, nodes)[0] == "exchange":
        size_bytes *= 2
    return size_bytes
