"""One node of a broadcast: a state machine that handles messages and calls the node's disk.

The protocol:

1. The reader sends the plan to all nodes. Each node finishes or removes the remains of an earlier
   job, and reports whether it can take part.
2. The stream arrives (`pcircle.tools.fbcast.forwarder`) and is written to a temporary directory. A
   node that cannot write reports the problem, but continues to forward chunks to the nodes behind
   it.
3. When all nodes have reported that they have the entire stream, a collective operation
   (`pcircle.collective`) shows it. All nodes prepare, the decision is recorded, and all nodes carry
   it out. Until the record exists, no node shows anything. Once it exists, every node that is alive
   or is started again shows the files.
4. The reader ends the job on all ranks. Nodes remove everything that is not shown.

A node that loses the reader, or receives no message from it for too long, looks up the record,
carries out the decision, and ends. Like the members of collective operations, a node has no clock,
no network and no threads. `work` runs calls that may block, in order, and passes on their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Protocol, TypeAlias, TypeVar

from pcircle.collective import Member, Records, Store
from pcircle.core.errors import EXIT_OK, StoppedEarly
from pcircle.tools.fbcast import messages
from pcircle.tools.fbcast.forwarder import Forwarder, new_forwarder

READER = 0
_ALIVE_SHARE = 4
"""The number of heartbeats that a node sends during the reader's timeout."""
_READER_SHARE = 3
"""The number of the reader's timeouts for which a node waits for a silent reader."""

T = TypeVar("T")
Then: TypeAlias = Callable[[T | BaseException], None]
"""A function that receives the result of a call, or its error."""


class BlockingWorker(Protocol):
    """Runs calls that may block, in order, and passes on their results."""

    def __call__(self, call: Callable[[], T], then: Then[T], /) -> None: ...


class Disk(Store, Protocol):
    """The storage of a node.

    All methods except `pulse` and those of `Store` may block. They raise OSError with the reason if
    they fail.
    """

    def join(
        self, plan: messages.BroadcastPlan, recover: Callable[[], Iterable[object]]
    ) -> messages.Ready:
        """Settle earlier jobs with `recover`, and return whether this node can take part."""
        ...

    def pulse(self) -> int:
        """Return a number that grows as long as a call is making progress."""
        ...

    def sign(self, names: Sequence[bytes]) -> bytes:
        """Return the concatenated signatures of names in DST."""
        ...

    def begin(self, files: bool) -> None:
        """Discard any earlier stream, and start a stream of files or of a list of files."""

    def write(self, data: bytes) -> None:
        """Write the next bytes of the stream."""

    def complete(self) -> bytes:
        """Finish the stream, and return the answer for the reader."""
        ...

    def drop(self) -> None:
        """Remove entries that are not shown, and entries that were replaced."""


def explain(error: BaseException) -> str:
    """Return the reason for an error, as shown to the user."""
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__


class BroadcastNode:
    """The state of one node; `has_ended` is set when no work is left."""

    def __init__(
        self,
        rank: int,
        disk: Disk,
        records: Records,
        send: Callable[[int, messages.Message], None],
        work: BlockingWorker,
        digest: Callable[[bytes], bytes],
        first: int = 0,
    ) -> None:
        self.rank = rank
        self.plan: messages.BroadcastPlan | None = None
        self.member: Member | None = None
        self.forwarder: Forwarder | None = None
        self.has_ended: bool = False
        self.code: int = EXIT_OK
        self.in_doubt: bool = False
        self._disk = disk
        self._records = records
        self._send = send
        self._work_on = work
        self._digest = digest
        self._first = first
        self._early: list[tuple[int, messages.Parts]] = []
        self._problem = ""
        self._unwritten = 0  # number of chunks that were delivered but not yet written
        self._leaving = False
        self.now_s: float = 0.0
        self._alive_s = inf
        self._reader_s = 0.0  # the time of the reader's last message
        self._under_way = 0  # pending calls of the disk
        self._pulse = 0
        self._since_s = 0.0  # when the disk last made progress
        self._lost: set[int] = set()

    # ---- events ----------------------------------------------------------------

    def received(self, source: int, message: messages.Message, now_s: float) -> None:
        """Handle a message."""
        self.now_s = now_s
        if source == READER:
            self._reader_s = now_s
        if isinstance(message, messages.Parts):
            self._parts(source, message)
        elif isinstance(message, messages.Acknowledgement):
            if self.forwarder is not None and message.attempt == self.forwarder.attempt:
                self.forwarder.acknowledged(source, message.below)
        elif isinstance(message, messages.Begin):
            self._begin(message.plan)
        elif isinstance(message, messages.StreamStart):
            self._start(message)
        elif isinstance(message, messages.Finish):
            self._finish(message.code)
        elif self.member is not None and not isinstance(message, messages.Alive):
            self.member.received(source, message, now_s)  # type: ignore[arg-type]

    def lost(self, rank: int, now_s: float) -> None:
        """Handle the loss of a rank."""
        self.now_s = now_s
        self._lost.add(rank)
        if rank == READER:
            self._finish(StoppedEarly.exit_code)
        elif self.member is not None:
            self.member.lost(rank, now_s)

    def tick(self, now_s: float) -> None:
        """Send a heartbeat if it is due, and detect a hanging disk or reader."""
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
            self._send(READER, messages.Alive())
            silent_s = 0.0 if self.rank == READER else now_s - self._reader_s
            if silent_s > _READER_SHARE * self.plan.patience_s:
                self._finish(StoppedEarly.exit_code)  # the reader is hanging
                return
            if is_stuck:
                self._fail(f"no response from the file system within {self.plan.patience_s:g} s")

    def next_s(self) -> float:
        """Return the time at which `tick` must be called next."""
        if self.plan is None or self.member is None:
            return inf
        if self._leaving:
            return self._since_s + self.plan.patience_s * 1.01 if self._under_way else inf
        return min(self._alive_s, self.member.next_s())

    # ---- beginning -------------------------------------------------------------

    def _begin(self, plan: messages.BroadcastPlan) -> None:
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

    def _joined(self, ready: messages.Ready | BaseException) -> None:
        if isinstance(ready, BaseException):
            ready = messages.Ready("", explain(ready))
        self._send(READER, ready)
        plan = self.plan
        if plan is not None and plan.verb == "check" and not ready.problem:
            self._work(lambda: self._disk.sign(plan.names), self._staged_as(0))

    # ---- the stream ------------------------------------------------------------

    def _start(self, start: messages.StreamStart) -> None:
        if self._leaving:
            return
        self._problem = ""
        self._unwritten = 0
        self.forwarder = new_forwarder(start, self.rank, self._send, self._deliver)
        self._work(lambda: self._disk.begin(start.files), self._written)
        early, self._early = self._early, []
        for source, parts in early:
            self._parts(source, parts)

    def _parts(self, source: int, parts: messages.Parts) -> None:
        attempt = self._attempt()
        if parts.attempt == attempt and self.forwarder is not None:
            self.forwarder.received(source, parts)
        elif parts.attempt > attempt:
            self._early.append((source, parts))  # its `StreamStart` has not arrived yet

    def _deliver(self, chunk: messages.StreamChunk) -> None:
        forwarder = self.forwarder
        if forwarder is None:
            return
        if self._problem:
            forwarder.chunk_written()
            return

        def then(error: BaseException | None) -> None:
            if self.forwarder is not forwarder or self._problem:
                return
            if error is not None:
                self._fail(explain(error))
                return
            self._unwritten -= 1
            forwarder.chunk_written()
            if chunk.last:
                self._work(self._disk.complete, self._staged_as(forwarder.attempt))

        self._unwritten += 1

        self._work(lambda: self._write(chunk), then)

    def _write(self, chunk: messages.StreamChunk) -> None:
        if self._digest(chunk.data) != chunk.digest:
            raise OSError(f"chunk {chunk.number} arrived damaged: checksum mismatch")
        self._disk.write(chunk.data)

    def _written(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(explain(error))

    def _staged_as(self, attempt: int) -> Then[bytes]:
        def then(answer: bytes | BaseException) -> None:
            if isinstance(answer, BaseException):
                self._fail(explain(answer), attempt)
            elif not self._problem and self._attempt() == attempt:
                self._send(READER, messages.Staged(attempt, said=answer))

        return then

    def _attempt(self) -> int:
        return 0 if self.forwarder is None else self.forwarder.attempt

    def _fail(self, why: str, attempt: int | None = None) -> None:
        """Report to the reader that this node cannot continue with the stream."""
        if attempt is not None and attempt != self._attempt():
            return
        if not self._problem and not self._leaving:
            self._problem = why
            self._send(READER, messages.Staged(self._attempt(), why))
            unwritten, self._unwritten = self._unwritten, 0
            if self.forwarder is not None:
                for _ in range(unwritten):  # nodes behind this one must not wait for its disk
                    self.forwarder.chunk_written()

    # ---- the end ---------------------------------------------------------------

    def _finish(self, code: int) -> None:
        """Leave the job because it is over or the reader is lost; records settle open decisions."""
        if self._leaving:
            return
        self._leaving = True
        self.code = code
        self.forwarder = None
        self._early.clear()
        if self.member is not None and self.rank != READER:
            self.member.lost(READER, self.now_s)
        if self.plan is None:
            self.has_ended = True
            return
        self.in_doubt = bool(list(self._disk.in_doubt()))
        self._work(self._disk.drop, self._dropped)

    def _dropped(self, error: BaseException | None) -> None:
        self.has_ended = True

    def _work(self, call: Callable[[], T], then: Then[T]) -> None:
        if not self._under_way:
            self._since_s = self.now_s
        self._under_way += 1

        def done(result: T | BaseException) -> None:
            self._under_way -= 1
            self._since_s = self.now_s  # the next call is starting
            then(result)

        self._work_on(call, done)
