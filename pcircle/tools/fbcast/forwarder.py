"""Spreads a stream over all nodes: the forwarding of chunks on one node, without network or files.

A node forwards each chunk and delivers it to be written. After `chunk_written`, and once the chunk
has been forwarded, the node sends an acknowledgement back, which allows the sender to send the next
chunk. So a node holds a bounded number of chunks, no matter which node is slow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pcircle.collective.halving import shares
from pcircle.tools.fbcast.messages import Parts, StreamChunk, StreamStart, Took

WINDOW = 8
"""The maximum number of unacknowledged chunks between two nodes of a chain."""
_PANELS = 2

Send: TypeAlias = Callable[[int, Parts | Took], None]
Deliver: TypeAlias = Callable[[StreamChunk], None]


class Forwarder(ABC):
    """The forwarding on one node. It calls `deliver` once for each chunk, in order."""

    def __init__(self, start: StreamStart, rank: int, send: Send, deliver: Deliver) -> None:
        self.attempt = start.attempt
        self.sent_chunks = 0
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
        """Send the next chunk, on the reader."""

    @abstractmethod
    def received(self, source: int, parts: Parts) -> None:
        """Handle received chunks."""

    @abstractmethod
    def took(self, source: int, below: int) -> None:
        """Handle the acknowledgement of all chunks, or panels, below a number."""

    def chunk_written(self) -> None:
        """Note that the next chunk is written.

        A node that has failed calls this as well, since it only forwards.
        """
        self._written += 1
        self._tell()

    @abstractmethod
    def _tell(self) -> None:
        """Acknowledge the progress of this node."""

    def _part(
        self, place: int, chunks: Sequence[StreamChunk], onward: tuple[int, ...] = ()
    ) -> None:
        self.sent_chunks += len(chunks)
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

    def took(self, source: int, below: int) -> None:
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
            self._send(self._route[self._place - 1], Took(self.attempt, below))


class Exchange(Forwarder):
    """Scatters by recursive halving, then gathers as in Bruck et al., panel by panel.

    A panel has one chunk for each place of the route. In step k of the gathering, a node sends the
    chunks of 2**k places, starting with its own, to the node 2**k places before it. The reader has
    all chunks, so it receives none.
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

    def took(self, source: int, below: int) -> None:
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
            self._send(self._route[0], Took(self.attempt, panels))


def spread_of(start: StreamStart, rank: int, send: Send, deliver: Deliver) -> Forwarder:
    """Return the forwarding of a node for the chosen algorithm."""
    kind = Chain if start.way == "chain" else Exchange
    return kind(start, rank, send, deliver)
