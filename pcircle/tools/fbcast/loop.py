"""A rank of a broadcast on a transport: the only loop, and the only clock.

Files are worked on by threads: one that writes what comes, and at the reader one that reads. So
messages go on while a disk is slow, and a disk that never answers is found out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec

from pcircle.collective import Records
from pcircle.collective.service import fresh_number
from pcircle.core.errors import StoppedEarly
from pcircle.runtime.signals import Signals
from pcircle.threads.pool import PoolFuture, WorkerPool
from pcircle.tools.fbcast.conductor import Conductor
from pcircle.tools.fbcast.messages import Finish, Message, Stop
from pcircle.tools.fbcast.node import READER, Disk, Node, Work
from pcircle.tools.fbcast.signing import digest
from pcircle.transport.contract import Delivery, Transport

_PATIENCE_S = 0.5  # with a thread that is stuck, when all is over
MakeConductor = Callable[[Node, Callable[[int, Message], None], Work], Conductor]


def nodes_of(places: Sequence[int], *, each: bool) -> tuple[int, ...]:
    """The ranks that act for a node: the first one of each, or with `each` all of them."""
    if each:
        return tuple(range(len(places)))
    return tuple(rank for rank in range(len(places)) if places.index(places[rank]) == rank)


class Loop:
    """One rank's messages, threads and signals. Without a `disk` it only waits for the end."""

    def __init__(self, transport: Transport, disk: Disk | None, records: Records) -> None:
        self._transport = transport
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Message).decode
        self._writer = WorkerPool(transport.wake)
        self._reader = WorkerPool(transport.wake)
        self._conductor: Conductor | None = None
        self._code: int | None = None
        self.node: Node | None = None
        self.asked: Callable[[], None] = lambda: None  # how far it is, on the rank that reads
        if disk is not None:
            self.node = Node(
                transport.rank,
                disk,
                records,
                self._send,
                _worker(self._writer),
                digest,
                fresh_number(),
            )

    def conduct(self, make: MakeConductor) -> Conductor:
        """Be the reader as well."""
        if self.node is None:
            raise ValueError("the reader is a node")
        self._conductor = make(self.node, self._send, _worker(self._reader))
        return self._conductor

    def run(self, signals: Signals) -> int:
        """Until it is over; the exit code."""
        told = False
        if self._conductor is not None:
            self._conductor.begin(time.monotonic())
        while not self._is_over():
            if signals.pending is not None and not told:
                told = True
                self._send(READER, Stop(signals.code or StoppedEarly.exit_code))
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
        for each in (self.node, self._conductor):
            if each is not None:
                next_s = min(next_s, each.next_s())
        wait_s = None if next_s == inf else max(0.0, next_s - now_s)
        for arrival in self._transport.poll(wait_s):
            now_s = time.monotonic()
            if isinstance(arrival, Delivery):
                self._deliver(arrival.source, self._decode(arrival.payload), now_s)
            else:
                self._lose(arrival.rank, arrival.reason, now_s)
        now_s = time.monotonic()
        for each in (self.node, self._conductor):
            if each is not None:
                each.now_s = now_s
        self._writer.drain()
        self._reader.drain()
        for each in (self.node, self._conductor):
            if each is not None:
                each.tick(now_s)

    def _deliver(self, source: int, message: Message, now_s: float) -> None:
        if isinstance(message, Finish):
            self._code = message.code
        if self._conductor is not None and self._conductor.received(source, message, now_s):
            return
        if self.node is not None:
            self.node.received(source, message, now_s)

    def _lose(self, rank: int, reason: str, now_s: float) -> None:
        if self._conductor is not None:  # which knows why, and so is first
            self._conductor.lost(rank, reason, now_s)
        if self.node is not None:
            self.node.lost(rank, now_s)
        elif rank == READER and self._code is None:
            self._code = StoppedEarly.exit_code

    def _send(self, dest: int, message: Message) -> None:
        self._transport.send(dest, self._encode(message))


def _worker(pool: WorkerPool) -> Work:
    """Have something done by a pool's thread."""

    def work(call: Callable[[], Any], then: Callable[[Any, BaseException | None], None]) -> None:
        def ended(future: PoolFuture[Any]) -> None:
            error = future.error()
            if error is not None and not isinstance(error, OSError | msgspec.MsgspecError):
                raise error  # a defect
            then(None if error is not None else future.result(), error)

        pool.submit(call).then(ended)

    return work


def host_name() -> str:
    """The name of this node."""
    return os.uname().nodename
