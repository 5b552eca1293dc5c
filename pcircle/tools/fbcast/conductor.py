"""The coordinator of a broadcast, which runs on the rank that reads the source.

Like `pcircle.tools.fbcast.node`, the conductor performs no input or output itself. `bad` maps each
node that has dropped out to the reason. Unless `partial` is set, the first such node ends the job,
and no node shows anything. With `partial`, a stream during which a node was lost is sent again to
the remaining nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol, TypeVar

from pcircle.collective import Answer, Op, Request
from pcircle.collective.coordinator import LOST
from pcircle.core import errors
from pcircle.threads.throttle import TokenBucket
from pcircle.tools.fbcast import messages
from pcircle.tools.fbcast.node import READER, BlockingWorker, BroadcastNode, explain

T = TypeVar("T")

_LOST = "the process was lost"
JOINING, LISTING, SENDING, CHECKING, SHOWING, OVER = range(6)


class StreamSource(Protocol):
    """The data of a broadcast.

    All methods may block, and raise an OSError that names the entry that failed.
    """

    def begin(self, nodes: int, files: bool, needed: bytes | None) -> messages.Way:
        """Start reading at the beginning, and return how the stream travels.

        The stream contains files if `files` is set, or otherwise a list of them. If `needed` is
        given, the stream contains the content of only those files whose bit is set.
        """
        ...

    def read(self) -> tuple[bytes, bool]:
        """Return the next chunk, and whether it is the last."""
        ...

    def sign(self) -> bytes:
        """Return the concatenated signatures of all names."""
        ...


class Conductor:
    """Coordinates one broadcast.

    When `phase` is OVER, `code`, `reason`, `bad` and `decided` describe the outcome. `times_s` maps
    each node to the time from the start of the last stream (of the job, for a check) to its answer.
    `stream_bytes` is the size of that stream, and `sent_bytes` the total of all streams.
    """

    def __init__(
        self,
        node: BroadcastNode,
        plan: messages.BroadcastPlan,
        nodes: Sequence[int],
        ranks: int,
        source: StreamSource,
        send: Callable[[int, messages.Message], None],
        read: BlockingWorker,
        digest: Callable[[bytes], bytes],
        *,
        partial: bool = False,
        bucket: TokenBucket | None = None,
    ) -> None:
        self.bad: dict[int, str] = {}
        self.hosts: dict[int, str] = {}
        self.reason: str = ""
        self.code: int = errors.EXIT_OK
        self.phase: int = JOINING
        self.decided: bool | None = False
        self.completed: bool = False
        self.sent_bytes: int = 0
        self.chunks: int = 0
        self.way: messages.Way = "chain"
        self.times_s: dict[int, float] = {}
        self.stream_bytes: int = 0
        self._since_s = 0.0  # the start of the stream or check
        self._node = node
        self._plan = plan
        self._nodes = tuple(nodes)
        self._ranks = ranks
        self._source = source
        self._send = send
        self._read = read
        self._digest = digest
        self._partial = partial
        self._bucket = bucket
        self._ready: dict[int, messages.Ready] = {}
        self._staged: dict[int, bytes] = {}
        self._heard_s: dict[int, float] = {}
        self._attempt = 0
        self._route: tuple[int, ...] = ()
        self._files = True
        self._needed: bytes | None = None
        self._number = 0
        self._is_open = False  # whether this attempt is reading the source
        self._is_reading = False
        self._held: messages.StreamChunk | None = None
        self._held_until_s = -inf
        self._op: Op | None = None
        self._shows = 0
        self._lost_showing = False  # whether a node was lost during the collective operation
        self._signed: bytes | None = None
        self.now_s: float = 0.0
        self._stopped: int | None = None

    # ---- events ----------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """Send the plan to all nodes."""
        self.now_s = now_s
        if self.phase == OVER:
            self._finish()
            return
        self._heard_s = dict.fromkeys(self._nodes, now_s)
        self._since_s = now_s
        for rank in self._nodes:
            self._send(rank, messages.Begin(self._plan))
        if self._plan.verb == "check":
            self._read(self._source.sign, self._source_signed)

    def refuse(self, code: int) -> None:
        """Refuse the job before it starts, so that `begin` only ends it on all ranks."""
        self.phase = OVER
        self.code = code

    def received(self, source: int, message: messages.Message, now_s: float) -> bool:
        """Handle a message if it is addressed to the conductor rather than the node.

        Return whether it was handled.
        """
        self.now_s = now_s
        if source in self._heard_s:
            self._heard_s[source] = now_s
        if isinstance(message, messages.Ready):
            self._hear_ready(source, message)
        elif isinstance(message, messages.Staged):
            self._hear_staged(source, message)
        elif isinstance(message, messages.StopRequest):
            self._stop(message.code)
        elif isinstance(message, messages.Alive) and source != READER:
            self._send(source, messages.Alive())  # the node must know that the reader is alive
        else:
            return False
        return True

    def lost(self, rank: int, why: str, now_s: float) -> None:
        """Drop the node of a rank that died."""
        self.now_s = now_s
        if rank in self._nodes:
            self._drop(rank, f"{_LOST}: {why}", gone=True)

    def tick(self, now_s: float) -> None:
        """Drop silent nodes, continue the stream, and handle the collective operation's answer."""
        self.now_s = now_s
        if self.phase == OVER:
            return
        for rank in self._waited_for():
            silent_s = now_s - self._heard_s.get(rank, now_s)
            if rank != READER and silent_s > self._plan.patience_s:
                self._drop(rank, f"no response within {self._plan.patience_s:g} s", gone=True)
        self._pump()
        member = self._node.member
        if self._op is not None and member is not None:
            for answer in [candidate for candidate in member.answers if candidate.op == self._op]:
                member.answers.remove(answer)
                self._op = None
                self._hear_answer(answer)

    def next_s(self) -> float:
        """Return the time at which `tick` must be called next."""
        if self.phase == OVER:
            return inf
        waits = [self._heard_s[rank] for rank in self._waited_for() if rank != READER]
        late_s = min(waits, default=inf) + self._plan.patience_s * 1.01
        return min(late_s, self._held_until_s if self._held is not None else inf)

    def _stop(self, code: int) -> None:
        if self._stopped is None and self.phase != OVER:
            self._stopped = code
            if self.phase != SHOWING:  # during SHOWING, the decision is imminent
                self._over(code, "")

    # ---- nodes -----------------------------------------------------------------

    @property
    def good(self) -> tuple[int, ...]:
        """The nodes that have not dropped out."""
        return tuple(rank for rank in self._nodes if rank not in self.bad)

    def _waited_for(self) -> list[int]:
        if self.phase == SHOWING:
            return []  # the operation has its own timeouts
        # A bad node that is alive still forwards the stream, so it must not be silent either.
        relays = self._route if self.phase in (LISTING, SENDING) else ()
        return [rank for rank in self._heard_s if rank not in self.bad or rank in relays]

    def _drop(self, rank: int, why: str, *, gone: bool = False) -> None:
        """Mark a node as bad; if it is `gone`, it no longer forwards the stream."""
        was_good = rank not in self.bad
        if was_good:
            self.bad[rank] = why
        if gone:
            self._heard_s.pop(rank, None)
        if self.phase in (OVER, SHOWING):
            self._lost_showing = self._lost_showing or was_good
            return
        if self.phase in (JOINING, CHECKING):
            if was_good:
                self._look()
            return
        if not self._partial:
            self._over(errors.StoppedEarly.exit_code, "")
        elif not self.good:
            self._over(errors.StoppedEarly.exit_code, "no nodes are left")
        elif gone:
            self._stream()
        else:
            self._look()

    def _look(self) -> None:
        """Enter the next phase if all nodes have answered or dropped out."""
        if self.phase == JOINING and self._ready.keys() | self.bad.keys() >= set(self._nodes):
            self._joined()
        elif self.phase == CHECKING:
            if self._signed is not None and self._staged.keys() >= set(self.good):
                self._compare()
        elif self.phase in (LISTING, SENDING) and self._staged.keys() >= set(self.good):
            if self.phase == SENDING:
                self._show()
            else:
                self._need()

    def _hear_ready(self, source: int, ready: messages.Ready) -> None:
        self._ready[source] = ready
        self.hosts[source] = ready.host
        if ready.problem:
            self._heard_s.pop(source, None)  # no stream is routed through this node
            self._drop(source, ready.problem)
        else:
            self._look()

    def _joined(self) -> None:
        plan = self._plan
        if plan.verb == "check":
            self.phase = CHECKING
            self._look()
            return
        ready = {rank: self._ready[rank] for rank in self.good}
        has_completed = any(state.completed for state in ready.values())
        if has_completed and all(state.completed or state.present for state in ready.values()):
            self.completed = self.decided = True
            self._over(self._code_of_bad(errors.EntriesFailed.exit_code), "")
            return
        for rank, state in ready.items():
            if state.exists:
                self._heard_s.pop(rank, None)
                self.bad[rank] = state.exists
        if self.bad and (not self._partial or not self.good):
            answers = list(map(self._ready.get, self.bad))
            refused = all(answer is not None and not answer.unwritable for answer in answers)
            self._over(
                errors.UsageError.exit_code if refused else errors.StoppedEarly.exit_code, ""
            )
        elif plan.verb == "remove":
            self._show()
        else:
            self._files = not plan.update
            self._stream()

    # ---- the stream ------------------------------------------------------------

    def _stream(self) -> None:
        """Start sending the stream, from its beginning, to the remaining nodes."""
        self.phase = SENDING if self._files else LISTING
        self._attempt += 1
        self._number = 0
        self._staged.clear()
        self._held = None
        self._is_open = False
        files, needed, attempt = self._files, self._needed, self._attempt
        route = self._route = (READER, *(rank for rank in self.good if rank != READER))

        def opened(way: messages.Way | BaseException) -> None:
            if isinstance(way, BaseException):
                self._fail_source(way)
            elif attempt == self._attempt and self.phase != OVER:
                self.way = way
                self._is_open = True
                self._since_s = self.now_s
                self.stream_bytes = 0
                for rank in route:
                    self._send(rank, messages.StreamStart(attempt, route, way, files))

        self._read(lambda: self._source.begin(len(route), files, needed), opened)

    def _pump(self) -> None:
        """Offer the chunk that was read if the rate limit permits, and read the next chunk."""
        forwarder = self._node.forwarder
        if forwarder is None or forwarder.attempt != self._attempt or not self._is_open:
            return
        if self._held is not None and self._held_until_s <= self.now_s:
            chunk, self._held = self._held, None
            self.chunks += 1
            self.sent_bytes += len(chunk.data)
            self.stream_bytes += len(chunk.data)
            self._is_open = not chunk.last
            forwarder.offer(chunk)
        if self._is_open and self._held is None and not self._is_reading and forwarder.has_room():
            self._is_reading = True
            attempt = self._attempt
            self._read(self._read_chunk, lambda chunk: self._was_read(attempt, chunk))

    def _read_chunk(self) -> tuple[bytes, bytes, bool]:
        data, last = self._source.read()
        return data, self._digest(data), last

    def _was_read(self, attempt: int, read: tuple[bytes, bytes, bool] | BaseException) -> None:
        self._is_reading = False
        if self.phase == OVER or attempt != self._attempt:
            return
        if isinstance(read, BaseException):
            self._fail_source(read)
            return
        data, digest, last = read
        self._held = messages.StreamChunk(self._number, data, digest, last)
        self._number += 1
        self._held_until_s = -inf
        if self._bucket is not None:
            self._held_until_s = self.now_s + self._bucket.take(len(data), self.now_s)
        self._pump()

    def _fail_source(self, error: BaseException) -> None:
        if self.phase != OVER:
            self._over(errors.StoppedEarly.exit_code, explain(error))

    def _hear_staged(self, source: int, staged: messages.Staged) -> None:
        if staged.attempt != self._attempt or source in self.bad:
            return
        if staged.problem:
            self._drop(source, staged.problem)
        else:
            self._staged[source] = staged.said
            self.times_s[source] = self.now_s - self._since_s
            self._look()

    def _need(self) -> None:
        """Send every file that any node needs, after all nodes have compared the list."""
        answers = [self._staged[rank] for rank in self.good]
        length = max(map(len, answers), default=0)
        needed = 0
        for answer in answers:
            needed |= int.from_bytes(answer.ljust(length, b"\0"), "little")
        self._needed = needed.to_bytes(length, "little")
        self._files = True
        self._stream()

    # ---- comparing -------------------------------------------------------------

    def _source_signed(self, signed: bytes | BaseException) -> None:
        if isinstance(signed, BaseException):
            self._fail_source(signed)
        else:
            self._signed = signed
            self._look()

    def _compare(self) -> None:
        codes = [errors.EntriesFailed.exit_code] if self.bad else []
        for rank in self.good:
            if self._staged[rank] != self._signed:
                self.bad[rank] = "differs from the source"
                codes.append(errors.IntegrityError.exit_code)
        self.decided = not codes
        self._over(errors.worst(codes), "")

    # ---- showing ---------------------------------------------------------------

    def _show(self) -> None:
        """Start the collective operation that shows the files, or removes the names."""
        self.phase = SHOWING
        self._shows += 1
        # A new key avoids waiting for nodes that have not yet ended a failed operation.
        key = b"%d" % self._shows
        request = Request(key, READER, self.good, self._plan.job.encode())
        self._op = errors.require(self._node.member).request(request, self.now_s)

    def _hear_answer(self, answer: Answer) -> None:
        refused = {reply.rank: reply.refusal for reply in answer.said if reply.refusal}
        has_new_failures = refused.keys() - self.bad.keys() or self._lost_showing
        for rank, why in refused.items():
            self.bad.setdefault(rank, _LOST if why == LOST else why)
        self.decided = answer.decided
        if answer.decided is None:
            why = (
                "the outcome is unknown: the record of the decision cannot be read; run the same "
                "command again"
            )
            self._over(errors.StoppedEarly.exit_code, why)
        elif answer.decided:
            code = (
                errors.EntriesFailed.exit_code if self._partial else errors.StoppedEarly.exit_code
            )
            self._over(self._code_of_bad(code), "")
        elif self._stopped is not None:
            self._over(self._stopped, "")
        elif self._partial and has_new_failures and self.good:
            self._lost_showing = False
            self._show()
        else:
            self._over(errors.StoppedEarly.exit_code, "")

    def _code_of_bad(self, code: int) -> int:
        return code if self.bad else errors.EXIT_OK

    # ---- the end ---------------------------------------------------------------

    def _over(self, code: int, reason: str) -> None:
        if self.phase == OVER:
            return
        self.phase = OVER
        self.code = code
        self.reason = reason
        self._held = None
        self._finish()

    def _finish(self) -> None:
        for rank in range(self._ranks):
            self._send(rank, messages.Finish(self.code))
