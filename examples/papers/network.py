"""Messages between a client and the servers of a parallel file system, in virtual time.

Carns, Settlemyer and Ligon measured their collective operations in a discrete-event simulation.
This is a small one of the same kind, for `examples.papers.metadata`. Node 0 is the client, and
nodes 1 to n are the servers, all on one switch. A message waits in four queues, first come first
served: its sender's processor, the link to the switch, the link from the switch, and its receiver's
processor. A message within a node uses no link. The work of a server before it answers is a delay,
which does not block other requests.

The model and its numbers are from the paper's sections on the simulation and from its public
simulator, HECIOS (configuration of April 2008, read for facts). TCP's windows and acknowledgements,
ARP and losses are omitted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from functools import cache
from random import Random

import msgspec

CLIENT = 0
SEGMENT_BYTES = 512  # of TCP
HEADERS_BYTES = 58  # of TCP, IP and Ethernet
MIN_FRAME_BYTES = 64
REQUEST_HEADER_BYTES = 24  # in front of each request; an answer has none
BITS = 8

Action = Callable[[], None]


class Interruptions(msgspec.Struct, frozen=True):
    """Other work on a node: its rate for each ms of work or request, and its mean duration."""

    rate: float = 0.0
    mean_ms: float = 0.0

    def draw_ms(self, occasions: float, random: Random) -> float:
        """Return an exponential delay, or 0 most of the time; *occasions* are ms or requests."""
        if not self.rate or random.random() >= self.rate * occasions:
            return 0.0
        return random.expovariate(1 / self.mean_ms)


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of the network and the nodes; a processor handles a message in *overhead_ms*.

    A message that the client receives costs an additional *poll_ms* for each open connection.
    *interruptions* delay a processor, for each ms in which it handles messages. *stalls* delay a
    server before it begins a request.
    """

    overhead_ms: float
    bits_per_ms: float
    propagation_ms: float = 0.0
    poll_ms: float = 0.0
    interruptions: Interruptions = Interruptions()
    stalls: Interruptions = Interruptions()


class Call(msgspec.Struct, frozen=True):
    """A request to a node, the process that it starts there, and the answer when that ends."""

    target: int
    request_bytes: int
    answer_bytes: int
    process: Callable[[], Process]


class Answer(msgspec.Struct, frozen=True):
    """As a step: answer the request now, before the process ends."""


# The next step of a process: wait for some ms; send requests, in order, and wait for all answers;
# or answer early.
Step = float | Sequence[Call] | Answer
Process = Generator[Step, None, None]


class Queue:
    """Serves one message at a time, in the order of arrival."""

    def __init__(self) -> None:
        self._free_ms = 0.0

    def served_ms(self, now_ms: float, duration_ms: float) -> float:
        """Take a message that arrives now; return when it leaves."""
        self._free_ms = max(self._free_ms, now_ms) + duration_ms
        return self._free_ms


class Node:
    """A node: a processor for sending, one for receiving, and a link in each direction."""

    def __init__(self) -> None:
        self.sending, self.receiving = Queue(), Queue()
        self.to_switch, self.from_switch = Queue(), Queue()


@cache
def wire_bytes(payload_bytes: int) -> int:
    """Return the size of a message on a link: segments with headers, each in a frame."""
    full, rest = divmod(payload_bytes, SEGMENT_BYTES)
    sizes = [SEGMENT_BYTES] * full + [rest] * (rest > 0)
    return sum(max(MIN_FRAME_BYTES, size + HEADERS_BYTES) for size in sizes)


class Network:
    """The client and *servers* servers; runs processes on them until no event is left."""

    def __init__(self, conditions: Conditions, servers: int, random: Random) -> None:
        self.now_ms = 0.0
        self.messages = 0
        self.payload_bytes = 0  # with the headers of requests
        self._conditions = conditions
        self._servers = servers
        self._random = random
        self._nodes = [Node() for _ in range(servers + 1)]
        self._agenda: list[tuple[float, int, Action]] = []
        self._planned = 0  # breaks ties: the action that was scheduled first comes first

    def run(self, node: int, process: Process, ended: Action) -> None:
        """Run a process on a node, and all its consequences; call *ended* when the process ends."""
        self._advance(node, process, ended)
        self.settle()

    def settle(self) -> None:
        """Run until no event is left."""
        while self._agenda:
            self.now_ms, _, action = heapq.heappop(self._agenda)
            action()

    def at(self, when_ms: float, action: Action) -> None:
        """Schedule an action."""
        self._planned += 1
        heapq.heappush(self._agenda, (when_ms, self._planned, action))

    def _advance(self, node: int, process: Process, answer: Action) -> None:
        """Advance a process to its next wait; call *answer* when it ends or answers early."""
        for step in process:
            if isinstance(step, Answer):
                answer()
                self._advance(node, process, _nothing)
                return
            if isinstance(step, int | float):
                self.at(self.now_ms + step, lambda: self._advance(node, process, answer))
                return
            if step:
                self._exchange(node, step, lambda: self._advance(node, process, answer))
                return
        answer()

    def _exchange(self, node: int, calls: Sequence[Call], all_answered: Action) -> None:
        missing = len(calls)

        def answered() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                all_answered()

        for call in calls:
            self._ask(node, call, answered)

    def _ask(self, node: int, call: Call, answered: Action) -> None:
        def answer() -> None:
            self.send(call.target, node, call.answer_bytes, answered)

        def begin() -> None:
            self._advance(call.target, call.process(), answer)

        def asked() -> None:
            stall_ms = self._conditions.stalls.draw_ms(1, self._random)
            if stall_ms:
                self.at(self.now_ms + stall_ms, begin)
            else:
                begin()

        self.send(node, call.target, REQUEST_HEADER_BYTES + call.request_bytes, asked)

    def send(self, source: int, target: int, size_bytes: int, received: Action) -> None:
        """Send a message through its four queues, or two within a node."""
        self.messages += 1
        self.payload_bytes += size_bytes
        transfer_ms = wire_bytes(size_bytes) * BITS / self._conditions.bits_per_ms
        propagation_ms = self._conditions.propagation_ms
        sender, receiver = self._nodes[source], self._nodes[target]

        def to_switch() -> None:
            done_ms = sender.to_switch.served_ms(self.now_ms, transfer_ms)
            self.at(done_ms + propagation_ms, from_switch)

        def from_switch() -> None:
            done_ms = receiver.from_switch.served_ms(self.now_ms, transfer_ms)
            self.at(done_ms + propagation_ms, receive)

        def receive() -> None:
            polled_ms = self._conditions.poll_ms * self._servers if target == CLIENT else 0.0
            handled_ms = self._handled_ms(polled_ms)
            self.at(receiver.receiving.served_ms(self.now_ms, handled_ms), received)

        sent_ms = sender.sending.served_ms(self.now_ms, self._handled_ms())
        self.at(sent_ms, receive if source == target else to_switch)

    def _handled_ms(self, polled_ms: float = 0.0) -> float:
        """Return how long a processor handles a message, including interruptions."""
        busy_ms = self._conditions.overhead_ms + polled_ms
        return busy_ms + self._conditions.interruptions.draw_ms(busy_ms, self._random)


def _nothing() -> None:
    """Ignore the end of a process whose request was already answered."""
