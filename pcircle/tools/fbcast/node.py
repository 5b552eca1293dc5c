"""One node of a broadcast: messages in, messages out, and calls of its disk.

The protocol:

1. The reader asks all nodes whether they can do it. What an earlier job has left is finished or
   removed first.
2. The stream comes (`pcircle.tools.fbcast.spread`), and is written below a temporary name. A node
that
   can't write says so at once, and goes on handing on, so that nobody behind it is lost with it.
3. When all have told the reader that they have all of it, showing it is one collective operation
   (`pcircle.collective`): prepared by all, decided by a record, done by all. So before the record
   nobody shows it, and once there is one all do who live, or are started again.
4. The reader tells all ranks that it is over. What is not shown is removed.

Who loses the reader, or hears nothing of it for long, looks for the record, does what it says, and
ends. Like the members of collective operations this has no clock, no network and no threads; `work`
has something done that may take long, in order, and calls back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Protocol, TypeAlias

from pcircle.collective import Member, Records, Store
from pcircle.core.errors import EXIT_OK, StoppedEarly
from pcircle.tools.fbcast.messages import (
    Alive,
    Begin,
    Chunk,
    Finish,
    Message,
    Parts,
    Plan,
    Ready,
    Staged,
    Start,
    Took,
)
from pcircle.tools.fbcast.spread import Spread, spread_of

READER = 0
_ALIVE_SHARE = 4
"""How often a node says that it lives while the reader is patient."""
_READER_SHARE = 3
"""For how much longer the others are patient with the reader than it is with them."""

Then: TypeAlias = Callable[[Any, "BaseException | None"], None]
Work: TypeAlias = Callable[[Callable[[], Any], Then], None]


class Disk(Store, Protocol):
    """What a node keeps. All but the methods of `Store` may take long; OSError says why not."""

    def join(self, plan: Plan, recover: Callable[[], Iterable[object]]) -> Ready:
        """Look whether a job can be done here, and `recover` what an earlier one has left."""

    def pulse(self) -> int:
        """A number that grows while one of these goes on, however long it takes."""

    def sign(self) -> bytes:
        """The signature of each name, one after the other."""

    def begin(self, files: bool) -> None:
        """A stream comes: of files, or else of the list of them. An earlier one is forgotten."""

    def write(self, data: bytes) -> None:
        """The next bytes of it."""

    def complete(self) -> bytes:
        """That was all; the answer to it."""

    def drop(self) -> None:
        """Remove what is not shown, and what was replaced."""


def explain(error: BaseException) -> str:
    """What a person is told of an error."""
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__


class Node:
    """One node. `has_ended` says that there is nothing left to do for it, and `code` how it was."""

    def __init__(
        self,
        rank: int,
        disk: Disk,
        records: Records,
        send: Callable[[int, Message], None],
        work: Work,
        digest: Callable[[bytes], bytes],
        first: int = 0,
    ) -> None:
        self.rank = rank
        self.plan: Plan | None = None
        self.member: Member | None = None
        self.spread: Spread | None = None
        self.has_ended = False
        self.code = EXIT_OK
        self.in_doubt = False
        self._disk = disk
        self._records = records
        self._send = send
        self._work_on = work
        self._digest = digest
        self._first = first
        self._early: list[tuple[int, Parts]] = []
        self._problem = ""
        self._unwritten = 0  # chunks
        self._leaving = False
        self.now_s = 0.0
        self._alive_s = inf
        self._reader_s = 0.0  # when it was heard
        self._under_way = 0  # calls of the disk
        self._pulse = 0
        self._since_s = 0.0  # of the first of them
        self._lost: set[int] = set()

    # ---- events ----------------------------------------------------------------

    def received(self, source: int, message: Message, now_s: float) -> None:
        """A message has come."""
        self.now_s = now_s
        if source == READER:
            self._reader_s = now_s
        if isinstance(message, Parts):
            self._parts(source, message)
        elif isinstance(message, Took):
            if self.spread is not None and message.attempt == self.spread.attempt:
                self.spread.took(source, message.below)
        elif isinstance(message, Begin):
            self._begin(message.plan)
        elif isinstance(message, Start):
            self._start(message)
        elif isinstance(message, Finish):
            self._finish(message.code)
        elif self.member is not None and not isinstance(message, Alive):
            self.member.received(source, message, now_s)  # type: ignore[arg-type]

    def lost(self, rank: int, now_s: float) -> None:
        """A rank is dead."""
        self.now_s = now_s
        self._lost.add(rank)
        if rank == READER:
            self._finish(StoppedEarly.exit_code)
        elif self.member is not None:
            self.member.lost(rank, now_s)

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        self.now_s = now_s
        if self.member is not None:
            self.member.tick(now_s)
        if self.plan is None:
            return
        pulse = self._disk.pulse()
        if pulse != self._pulse:
            self._pulse, self._since_s = pulse, now_s
        is_stuck = self._under_way > 0 and now_s - self._since_s > self.plan.patience_s
        if self._leaving:
            self.has_ended = self.has_ended or is_stuck
            return
        if self._alive_s <= now_s:
            self._alive_s = now_s + self.plan.patience_s / _ALIVE_SHARE
            self._send(READER, Alive())
            silent_s = 0.0 if self.rank == READER else now_s - self._reader_s
            if silent_s > _READER_SHARE * self.plan.patience_s:
                self._finish(StoppedEarly.exit_code)  # it is stuck, and answers nobody
                return
            if is_stuck:
                self._fail(f"no answer from the file system in {self.plan.patience_s:g} s")

    def next_s(self) -> float:
        """When `tick` has something to do."""
        if self.plan is None or self.member is None:
            return inf
        if self._leaving:
            return self._since_s + self.plan.patience_s * 1.01 if self._under_way else inf
        return min(self._alive_s, self.member.next_s())

    # ---- beginning -------------------------------------------------------------

    def _begin(self, plan: Plan) -> None:
        self.plan = plan
        self.member = member = Member(
            self.rank,
            self._disk,
            self._records,
            self._send,
            patience_s=plan.patience_s,
            first=self._first,
        )
        for rank in self._lost:
            member.lost(rank, self.now_s)
        self._alive_s = self.now_s + plan.patience_s / _ALIVE_SHARE
        self._work(lambda: self._disk.join(plan, member.recover), self._joined)

    def _joined(self, ready: Any, error: BaseException | None) -> None:
        if error is not None:
            ready = Ready("", explain(error))
        self._send(READER, ready)
        if self.plan is not None and self.plan.verb == "check" and not ready.problem:
            self._work(self._disk.sign, self._staged_as(0))

    # ---- the stream ------------------------------------------------------------

    def _start(self, start: Start) -> None:
        if self._leaving:
            return
        self._problem = ""
        self._unwritten = 0
        self.spread = spread_of(start, self.rank, self._send, self._deliver)
        self._work(lambda: self._disk.begin(start.files), self._written)
        early, self._early = self._early, []
        for source, parts in early:
            self._parts(source, parts)

    def _parts(self, source: int, parts: Parts) -> None:
        attempt = 0 if self.spread is None else self.spread.attempt
        if parts.attempt == attempt and self.spread is not None:
            self.spread.received(source, parts)
        elif parts.attempt > attempt:
            self._early.append((source, parts))  # the reader's word is still on its way

    def _deliver(self, chunk: Chunk) -> None:
        spread = self.spread
        if spread is None:
            return
        if self._problem:
            spread.chunk_written()
            return

        def then(_: Any, error: BaseException | None) -> None:
            if self.spread is not spread or self._problem:
                return
            if error is not None:
                self._fail(explain(error))
                return
            self._unwritten -= 1
            spread.chunk_written()
            if chunk.last:
                self._work(self._disk.complete, self._staged_as(spread.attempt))

        self._unwritten += 1

        self._work(lambda: self._write(chunk), then)

    def _write(self, chunk: Chunk) -> None:
        if self._digest(chunk.data) != chunk.digest:
            raise OSError(f"chunk {chunk.number} arrived damaged: checksum mismatch")
        self._disk.write(chunk.data)

    def _written(self, _: Any, error: BaseException | None) -> None:
        if error is not None:
            self._fail(explain(error))

    def _staged_as(self, attempt: int) -> Then:
        def then(said: Any, error: BaseException | None) -> None:
            if error is not None:
                self._fail(explain(error), attempt)
            elif not self._problem and self._attempt() == attempt:
                self._send(READER, Staged(attempt, said=said))

        return then

    def _attempt(self) -> int:
        return 0 if self.spread is None else self.spread.attempt

    def _fail(self, why: str, attempt: int | None = None) -> None:
        """This node can't go on with a stream, and the reader has to know."""
        if attempt is not None and attempt != self._attempt():
            return
        if not self._problem and not self._leaving:
            self._problem = why
            self._send(READER, Staged(self._attempt(), why))
            unwritten, self._unwritten = self._unwritten, 0
            if self.spread is not None:
                for _ in range(unwritten):  # nobody behind this node waits for its disk
                    self.spread.chunk_written()

    # ---- the end ---------------------------------------------------------------

    def _finish(self, code: int) -> None:
        """It is over, or the reader is lost: what is in doubt is settled by the record."""
        if self._leaving:
            return
        self._leaving = True
        self.code = code
        self.spread = None
        self._early.clear()
        if self.member is not None and self.rank != READER:
            self.member.lost(READER, self.now_s)
        if self.plan is None:
            self.has_ended = True
            return
        self.in_doubt = bool(list(self._disk.in_doubt()))
        self._work(self._disk.drop, self._dropped)

    def _dropped(self, _: Any, error: BaseException | None) -> None:
        self.has_ended = True

    def _work(self, call: Callable[[], Any], then: Then) -> None:
        if not self._under_way:
            self._since_s = self.now_s
        self._under_way += 1

        def done(value: Any, error: BaseException | None) -> None:
            self._under_way -= 1
            self._since_s = self.now_s  # the next one begins
            then(value, error)

        self._work_on(call, done)
