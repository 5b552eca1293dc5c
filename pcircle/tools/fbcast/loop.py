"""The event loop of one rank of a broadcast, which reads the clock for the node and the conductor.

Threads perform the file I/O: one writes the stream, and on the reader a second thread reads the
source. Messages therefore continue to flow while a disk is slow, and a disk that hangs is detected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

import msgspec

from pcircle.collective import Records
from pcircle.collective.service import fresh_number
from pcircle.core.errors import StoppedEarly
from pcircle.runtime.signals import Signals
from pcircle.threads.pool import PoolFuture, WorkerPool
from pcircle.tools.fbcast.conductor import Conductor
from pcircle.tools.fbcast.messages import Finish, Message, StopRequest
from pcircle.tools.fbcast.node import READER, BlockingWorker, BroadcastNode, Disk, Then
from pcircle.tools.fbcast.signatures import digest
from pcircle.transport.contract import Delivery, Transport

_PATIENCE_S = 0.5  # for a stuck thread at the end of the job
T = TypeVar("T")
MakeConductor = Callable[[BroadcastNode, Callable[[int, Message], None], BlockingWorker], Conductor]


def nodes_of(places: Sequence[int], *, per_rank: bool) -> tuple[int, ...]:
    """Return the ranks that act as nodes: the first rank of each host, or all if `per_rank`."""
    if per_rank:
        return tuple(range(len(places)))
    return tuple(rank for rank in range(len(places)) if places.index(places[rank]) == rank)


class Loop:
    """The event loop of one rank; a rank without a `disk` only waits for the end of the job."""

    def __init__(self, transport: Transport, disk: Disk | None, records: Records) -> None:
        self._transport = transport
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Message).decode
        self._writer = WorkerPool(transport.wake)
        self._reader = WorkerPool(transport.wake)
        self._conductor: Conductor | None = None
        self._code: int | None = None
        self.node: BroadcastNode | None = None
        self.asked: Callable[[], None] = lambda: None  # prints the progress, on the reader
        if disk is not None:
            self.node = BroadcastNode(
                transport.rank,
                disk,
                records,
                self._send,
                _worker(self._writer),
                digest,
                fresh_number(),
            )

    def conduct(self, make: MakeConductor) -> Conductor:
        """Make this rank the reader in addition to a node, and return its conductor."""
        if self.node is None:
            raise ValueError("the reader is a node")
        self._conductor = make(self.node, self._send, _worker(self._reader))
        return self._conductor

    def run(self, signals: Signals) -> int:
        """Process messages until the job is over, and return the exit code."""
        stop_sent = False
        if self._conductor is not None:
            self._conductor.begin(time.monotonic())
        while not self._is_over():
            if signals.pending is not None and not stop_sent:
                stop_sent = True
                self._send(READER, StopRequest(signals.code or StoppedEarly.exit_code))
            if signals.asked:
                signals.asked = False
                self.asked()
            self._turn()
        self._writer.close(_PATIENCE_S)
        self._reader.close(_PATIENCE_S)
        if self._conductor is not None:
            return self._conductor.code
        return StoppedEarly.exit_code if self._code is None else self._code

    def _is_over(self) -> bool:
        if self.node is not None:
            return self.node.has_ended
        return self._code is not None

    def _turn(self) -> None:
        now_s = time.monotonic()
        next_s = inf
        for machine in (self.node, self._conductor):
            if machine is not None:
                next_s = min(next_s, machine.next_s())
        wait_s = None if next_s == inf else max(0.0, next_s - now_s)
        for arrival in self._transport.poll(wait_s):
            now_s = time.monotonic()
            if isinstance(arrival, Delivery):
                self._deliver(arrival.source, self._decode(arrival.payload), now_s)
            else:
                self._lose(arrival.rank, arrival.reason, now_s)
        now_s = time.monotonic()
        for machine in (self.node, self._conductor):
            if machine is not None:
                machine.now_s = now_s
        self._writer.drain()
        self._reader.drain()
        for machine in (self.node, self._conductor):
            if machine is not None:
                machine.tick(now_s)

    def _deliver(self, source: int, message: Message, now_s: float) -> None:
        if isinstance(message, Finish):
            self._code = message.code
        if self._conductor is not None and self._conductor.received(source, message, now_s):
            return
        if self.node is not None:
            self.node.received(source, message, now_s)

    def _lose(self, rank: int, reason: str, now_s: float) -> None:
        if self._conductor is not None:  # first, because only the conductor reports the reason
            self._conductor.lost(rank, reason, now_s)
        if self.node is not None:
            self.node.lost(rank, now_s)
        elif rank == READER and self._code is None:
            self._code = StoppedEarly.exit_code

    def _send(self, dest: int, message: Message) -> None:
        self._transport.send(dest, self._encode(message))


def _worker(pool: WorkerPool) -> BlockingWorker:
    """Return a function that runs a call on a thread of the pool and then passes on its result."""

    def work(call: Callable[[], T], then: Then[T]) -> None:
        def ended(future: PoolFuture[T]) -> None:
            error = future.error()
            if error is not None and not isinstance(error, OSError | msgspec.MsgspecError):
                raise error  # a bug, not a failure of the disk
            then(future.result() if error is None else error)

        pool.submit(call).then(ended)

    return work


def host_name() -> str:
    """Return the name of this host."""
    return os.uname().nodename
