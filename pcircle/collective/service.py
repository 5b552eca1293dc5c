"""Runs a member of collective operations on a transport; contains the only loop and clock.

A rank that only serves calls `serve`, which returns when no rank has further requests. A rank that
makes requests calls `do`, which serves other ranks until its own answer has arrived. The store's
methods run in this loop, so they should take no longer than a file system operation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from pcircle.collective.member import Member
from pcircle.collective.operation import Answer, Message, Op, Records, Request, Store
from pcircle.transport.contract import Delivery, Transport


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    """The sender will make no more requests; `code` is its exit code."""

    code: int


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag="leaving"):
    """The sender will no longer answer: all ranks have finished, and it has nothing in progress."""


class Recovered(msgspec.Struct, frozen=True, array_like=True, tag="recovered"):
    """The sender has completed the operations of an earlier job, except `left` of them."""

    left: int


_Message: TypeAlias = Message | Finished | Leaving | Recovered

# One rank performs at most 2**20 operations in one job.
_NUMBER_BITS = 20


def fresh_number() -> int:
    """Return a random base for operation numbers, so that jobs almost never share numbers."""
    return int.from_bytes(os.urandom(5), "big") << _NUMBER_BITS


class Service:
    """One rank's part in collective operations.

    `patience_s` is how long a coordinator waits for members. `lost` maps each lost rank to the
    reason.
    """

    def __init__(
        self, transport: Transport, store: Store, records: Records, patience_s: float = 30.0
    ) -> None:
        self.lost: dict[int, str] = {}
        self._transport = transport
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(_Message).decode
        self._finished: dict[int, int] = {}
        self._left: set[int] = set()
        self._recovered: dict[int, int] = {}
        self._answers: dict[Op, Answer] = {}
        self._member = Member(
            transport.rank, store, records, self._send, patience_s=patience_s, first=fresh_number()
        )

    def recover(self) -> int:
        """Complete an earlier job's operations on all ranks; return how many remain in doubt."""
        left = len(self._member.recover())
        self._tell_all(Recovered(left))
        self._until(lambda: self._all(set(self._recovered)))
        return sum(self._recovered.values())

    def do(self, request: Request, *, collective: bool = True) -> Answer:
        """Request an operation and return its answer, serving other ranks meanwhile."""
        (answer,) = self.do_all([request], collective=collective)
        return answer

    def do_all(self, requests: Sequence[Request], *, collective: bool = True) -> list[Answer]:
        """Request several operations at once and return their answers in the same order."""
        ask, now_s = self._member.request, time.monotonic()
        ops = [ask(request, now_s, collective=collective) for request in requests]
        self._take()
        self._until(lambda: all(op in self._answers for op in ops))
        return [self._answers.pop(op) for op in ops]

    def serve(self, code: int = 0) -> int:
        """Serve other ranks until all have finished or are lost; return the greatest exit code."""
        self._tell_all(Finished(code))
        self._until(lambda: self._all(set(self._finished)) and self._member.is_idle)
        self._tell_all(Leaving())
        self._until(lambda: self._all(self._left))
        return max(self._finished.values())

    def _all(self, ranks: set[int]) -> bool:
        return len(ranks | self.lost.keys()) == self._transport.size

    def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._turn(None)

    def step(self, timeout_s: float) -> None:
        """Serve other ranks until a message arrives or the timeout has passed."""
        self._turn(timeout_s)

    def _turn(self, timeout_s: float | None) -> None:
        now_s = time.monotonic()
        rest_s = max(0.0, self._member.next_s() - now_s)
        if timeout_s is None or rest_s < timeout_s:
            timeout_s = None if rest_s == float("inf") else rest_s
        for arrival in self._transport.poll(timeout_s):
            now_s = time.monotonic()
            if isinstance(arrival, Delivery):
                self._deliver(arrival.source, self._decode(arrival.payload), now_s)
            else:
                self.lost[arrival.rank] = arrival.reason
                self._member.lost(arrival.rank, now_s)
        self._member.tick(time.monotonic())
        self._take()

    def _deliver(self, source: int, message: _Message, now_s: float) -> None:
        if isinstance(message, Finished):
            self._finished[source] = message.code
        elif isinstance(message, Leaving):
            self._left.add(source)
            if source != self._transport.rank:
                self._member.lost(source, now_s)  # its undecided operations are in doubt
        elif isinstance(message, Recovered):
            self._recovered[source] = message.left
        else:
            self._member.received(source, message, now_s)

    def _take(self) -> None:
        for answer in self._member.answers:
            self._answers[answer.op] = answer
        self._member.answers.clear()

    def _tell_all(self, message: _Message) -> None:
        for rank in range(self._transport.size):
            self._send(rank, message)

    def _send(self, dest: int, message: _Message) -> None:
        self._transport.send(dest, self._encode(message))
