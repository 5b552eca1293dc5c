"""The main loop of a rank, and its spill file.

The loop connects engine, transport and workers: messages and finished work become events for the
engine, and the engine's instructions become messages and submitted work. Nearly everything here
runs on the rank's main thread and must return soon, so operations that may take long run in the
pool.

`SpillFile` stores the middle of a long queue in one temporary file per rank. A segment is written
at the end of the file. A rank takes its own items last-in first-out, so the next segment to be
fetched is usually the last one in the file. Fetching that segment truncates the file. The file has
no name, so a killed job leaves nothing behind.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from math import inf
from random import Random
from typing import IO, TYPE_CHECKING, Any, Generic

import msgspec

from pcircle.circle.engine import GATHERING, WORKING, Engine
from pcircle.circle.instructions import (
    AbandonItem,
    CommitEpoch,
    CompleteItem,
    Conclude,
    DeliverNotices,
    DiscardSegments,
    EngineSettings,
    FetchSegment,
    SealEpoch,
    Send,
    ShowProgress,
    SpillSegment,
    StartItem,
    StopRank,
)
from pcircle.circle.messages import (
    BundleResults,
    FinalAccount,
    ItemResult,
    Message,
    NoticeBatch,
    NoticeReply,
    PinnedWork,
    TreeReduction,
    WorkTransfer,
)
from pcircle.core.errors import Defect, NoSpace, PcircleError, RankLost, StoppedEarly, worst
from pcircle.core.writing import discard, write_at
from pcircle.runtime.crash_report import CrashReporter
from pcircle.runtime.signals import CODES, Signals
from pcircle.runtime.task import (
    Context,
    I,
    Observer,
    Outcome,
    R,
    RankReport,
    Task,
    TimeLimit,
    wire_types,
)
from pcircle.runtime.wire import Codec, with_results
from pcircle.runtime.worker_channel import PerThreadTasks, WorkerChannel
from pcircle.threads.thread_tuning import Tuner, max_threads
from pcircle.threads.workers import PoolFuture, WorkerPool
from pcircle.transport._exit import print_error
from pcircle.transport.contract import Delivery, LostRank, Transport

if TYPE_CHECKING:
    from pcircle.runtime.summary import Summary


_LAST_CALLS_S = 5.0
_LONGEST_WAIT_S = 3600.0  # in one call of `poll`
_MAX_RECEIVERS = 256  # maximum number of blocks of receivers in a report


class Rank(Generic[I, R]):
    """One rank of a job, from its first item to the agreed exit code.

    `observer` and `limit` are given only on rank 0. `mishaps` reports defects; `pickled` is passed
    to `Codec`. Call `run` once.
    """

    _is_status_requested = False

    def __init__(
        self,
        transport: Transport,
        task: Task[I, R],
        settings: EngineSettings,
        observer: Observer[R] | None,
        early: Sequence[Delivery | LostRank] = (),
        limit: TimeLimit | None = None,
        mishaps: CrashReporter | None = None,
        pickled: Callable[[object], bytes] | None = None,
    ) -> None:
        self._transport, self._task, self._observer = transport, task, observer
        self._early, self._limit = list(early), limit
        self._crash_reporter = mishaps or CrashReporter()
        self._pickled = pickled
        self._pool = self._workers(task.threads or settings.workers)
        self._syncer = self._workers(1)  # a sync may take long, and work must continue
        self._spill = SpillFile()
        self._stopping = self._unheard = self._has_notices = self._refuses = False
        self._answers: list[Send] = []
        self._code: int | None = None
        self._message_bytes = 0
        self._sent_block = -(-transport.size // _MAX_RECEIVERS)
        self._sent: dict[int, list[int]] = {}  # number and bytes of messages, by block of receivers
        self._are_portable = type(task).portable is Task.portable  # results need no conversion
        self._contribution: R | None = None  # the result of `Task.finish`
        self._late: list[tuple[int, str]] = []  # failures while accounts are made
        self._sums_up = transport.size > settings.rank_rows  # reports are summed up
        self._engine: Engine[I, R] = Engine(
            transport.rank,
            transport.size,
            merge=self._merge,
            rng=self._random(),
            settings=settings,
            nodes=transport.nodes,
            measure=task.measure,
            report=self._report,
            contribution=lambda: self._contribution,
        )
        self._engine.workers = self._pool.threads
        max_count = min(max_threads(transport.nodes, transport.rank), task.max_threads)
        self._tuner = Tuner(task.work, self._pool, max_count) if task.threads is None else None
        self._parts = PerThreadTasks(task, self._pool)
        self._line = self._new_line()
        self._act: dict[type, Any] = {
            Send: self._send,
            StartItem: self._start,
            CompleteItem: self._complete,
            SpillSegment: self._keep,
            FetchSegment: self._fetch,
            DiscardSegments: self._discard,
            AbandonItem: self._abandon,
            DeliverNotices: self._notify,
            ShowProgress: self._show,
            SealEpoch: self._seal,
            CommitEpoch: self._commit,
            Conclude: self._conclude,
            StopRank: self._stop,
        }

    # These methods create the resources of a rank; `pcircle.testing` overrides them with
    # deterministic ones.

    def _workers(self, threads: int) -> WorkerPool:
        return WorkerPool(self._transport.wake, threads)

    def _random(self) -> Random:
        # The seed is a number: a string would import sha2.
        return Random(hash((os.getpid(), time.time_ns(), self._transport.rank)))

    @cached_property
    def _codec(self) -> Codec:
        # A job of one rank sends nothing, and decoders take milliseconds to build.
        return Codec(*wire_types(type(self._task)), self._task.notice_type, self._pickled)

    def _encode_notice(self, entry: tuple[object, bytes]) -> bytes:
        return self._codec.encode_notice(entry)

    def _new_line(self) -> WorkerChannel[I, R]:
        codec = self._task.line_of, self._encode_notice
        return WorkerChannel(
            self._pool, self._engine, self._perform, _now_s, self._is_stopping, *codec
        )

    def run(self, signals: Signals) -> int:
        """Work until all ranks agree to stop; return the exit code.

        Raises PcircleError if this rank fails before that; the other ranks must then be killed.
        """
        try:
            code = self._loop(signals)
        except PcircleError:
            raise
        except Exception as error:
            if problem := self._crash_reporter.package_problem(error):
                raise StoppedEarly(problem) from error
            raise Defect(self._crash_reporter.explain(error, "running the job")) from error
        finally:
            self._end()
        if self._unheard:
            # Silent ranks do not know that the job has ended, and the launcher may be waiting for
            # them.
            self._transport.abort(code)
        return code

    def _loop(self, signals: Signals) -> int:
        engine, transport = self._engine, self._transport
        if self._observer is not None:
            signals.handle_suspends()
        if transport.rank == 0:
            self._seed()
        else:
            _ = self._codec  # build it while rank 0 works, not while rank 0 waits for an answer
        while True:
            self._perform()
            self._settle_notices()
            if self._code is not None:
                return self._code
            arrivals = self._early or transport.poll(self._timeout_s())
            self._early = []
            for arrival in arrivals:
                self._arrived(arrival)
            self._pool.drain()
            self._syncer.drain()
            if signals.pending is not None and not self._stopping:
                engine.abort(CODES[signals.pending], signals.reason, _now_s())
            if self._observer is not None and (signals.asked or signals.suspended):
                self._attend(signals, self._observer)
            if self._limit is not None and self._left_s(self._limit) <= 0:
                engine.abort(StoppedEarly.exit_code, self._limit.reason, _now_s())
            if engine.reasons and not self._stopping:
                self._stopping = True
                self._line.let_go()
            if self._tuner is not None:
                engine.workers = self._tuner.look(_now_s(), held=engine.outbox.had_waiters())
            engine.tick(_now_s())

    # ---- events ----------------------------------------------------------------

    def _attend(self, signals: Signals, observer: Observer[R]) -> None:
        """On rank 0: suspend the process or show progress, as a signal requested."""
        if signals.suspended:
            observer.suspend()
            observer.resume(signals.suspend())
        if signals.asked:
            signals.asked = False
            self._is_status_requested = True
            self._engine.show_progress(_now_s())

    def _seed(self) -> None:
        try:
            self._engine.seed(list(self._task.seed()), _now_s())
        except Exception as error:
            self._fail(error, "seeding the job")

    def _left_s(self, limit: TimeLimit) -> float:
        """Return the remaining time of the job; infinite if it is already ending."""
        return inf if self._stopping or self._engine.phase > WORKING else limit.at_s - _now_s()

    def _timeout_s(self) -> float | None:
        due_s = self._engine.wakeup_s()
        wait_s = None if due_s is None else max(0.0, due_s - _now_s())
        if self._tuner is not None and self._pool.in_flight:
            window_s = self._tuner.window_s
            wait_s = window_s if wait_s is None else min(wait_s, window_s)
        if self._limit is not None and (left_s := self._left_s(self._limit)) < inf:
            wait_s = max(0.0, left_s if wait_s is None else min(wait_s, left_s))
        # The kernel counts milliseconds in 31 bits.
        return None if wait_s is None else min(wait_s, _LONGEST_WAIT_S)

    def _arrived(self, arrival: Delivery | LostRank) -> None:
        if isinstance(arrival, LostRank):
            # Rank 0 knows the cause of a rank's death; other ranks only saw a connection close.
            cause = arrival.reason if self._transport.rank == 0 else ""
            self._engine.rank_lost(arrival.rank, cause, _now_s())
            return
        try:
            message = self._read(arrival.source, arrival.payload)
            self._engine.receive(arrival.source, message, _now_s())
        except Exception as error:
            self._fail(error, f"handling a message of rank {arrival.source}")
        # Execute the instructions after each message, so that replies do not wait for later
        # messages.
        self._perform()

    def _read(self, source: int, payload: bytes) -> Message:
        """Decode a message; abort the job if a value does not have the declared type."""
        try:
            return self._codec.message(payload)
        except msgspec.ValidationError as error:
            name = type(self._task).__name__
            text = f"{name} spawns, returns or notes a value of an undeclared type: {error}"
            self._fail(TypeError(text), f"handling a message of rank {source}")
            return NoticeBatch(()) if msgspec.msgpack.decode(payload)[0] == "m" else PinnedWork(())

    def _ended(self, ticket: int, item: I, phase: str, future: PoolFuture[object]) -> None:
        error = future.error()
        if error is not None:
            self._fail(error, f"{phase} {item!r}")
            # The job is being aborted, so the value is dropped, but the engine must know that the
            # item ended.
            self._engine.finished(ticket, None, _now_s())
        else:
            try:
                self._engine.finished(ticket, future.result(), _now_s())
            except Exception as mishap:
                self._fail(mishap, f"merging the result of {item!r}")
        self._perform()

    def _fail(self, error: BaseException, doing: str) -> None:
        code, reason = self._explain(error, doing)
        self._engine.abort(code, reason, _now_s())
        if reason in self._engine.reasons:
            return
        # This rank's account has already been sent without the reason. If the job is ending for a
        # different reason, a failed commit is not reported: when resumed, it repeats that work.
        if not (isinstance(error, NoSpace) and self._engine.reasons):
            self._crash_reporter.late(self._transport.rank, reason, self._engine.code)

    def _explain(self, error: BaseException, doing: str) -> tuple[int, str]:
        """Return the exit code and the reason to report for an exception."""
        if isinstance(error, PcircleError):
            return error.exit_code, str(error)
        if problem := self._crash_reporter.package_problem(error):
            return StoppedEarly.exit_code, problem
        return Defect.exit_code, self._crash_reporter.explain(error, doing)

    def _merge(self, a: R, b: R) -> R:
        try:
            return self._task.merge(a, b)
        except Exception as error:
            if self._engine.phase < GATHERING:
                raise  # the caller stops the job
            self._late.append(self._explain(error, "merging the results of ranks"))
            return a

    def _amended(self, account: FinalAccount[R]) -> FinalAccount[R]:
        """Return the account that this rank sends, with the reports of many ranks summed up.

        It includes failures that occurred while the account was made, too late for an abort.
        """
        if self._sums_up and len(account.reports) > 1:
            reports = (self._summed_up(account.reports),)
            account = msgspec.structs.replace(account, reports=reports)
        code = worst((account.code, *(code for code, _ in self._late)))
        reasons = account.reasons + tuple(reason for _, reason in self._late)
        return msgspec.structs.replace(account, code=code, reasons=reasons)

    # ---- instructions ----------------------------------------------------------

    def _perform(self) -> None:
        while instructions := self._engine.take():
            for instruction in instructions:
                self._act[type(instruction)](instruction)

    def _settle_notices(self) -> None:
        """On rank 0: flush the recorded notices of all ranks, then acknowledge them."""
        if self._has_notices:
            self._has_notices = False
            if self._observer is not None and not self._refuses:
                try:
                    self._observer.sync()
                except Exception as error:
                    self._refuses = True
                    self._fail(error, "recording notices")
            answers, self._answers = self._answers, []
            for answer in answers:
                self._deliver(msgspec.structs.replace(answer, message=NoticeReply(self._refuses)))
            self._perform()
        notices = self._engine.notices
        if not (self._refuses or notices.is_refused):
            self._engine.outbox.recorded(notices.heard)

    def _send(self, send: Send) -> None:
        if isinstance(send.message, NoticeReply):
            self._answers.append(send)  # sent as soon as the notices are on disk
        else:
            self._deliver(send)

    def _deliver(self, send: Send) -> None:
        message = send.message
        if isinstance(message, TreeReduction) and message.account is not None:
            message = msgspec.structs.replace(message, account=self._amended(message.account))
        try:
            if not self._are_portable:
                message = with_results(message, self._task.portable)
            payload = self._codec.encode(message)
        except Exception as error:
            payload = self._encode_failed(message, error)
        self._message_bytes += len(payload)
        block = send.dest // self._sent_block
        sent = self._sent.get(block) or self._sent.setdefault(block, [0, 0])
        sent[0] += 1
        sent[1] += len(payload)
        self._transport.send(send.dest, payload)

    def _encode_failed(self, message: Message, error: Exception) -> bytes:
        """Return a payload to send instead of a message that cannot be encoded; end the job."""
        if isinstance(message, TreeReduction) and message.account is not None:
            self._late.append(self._explain(error, "sending a result to another rank"))
            account = self._amended(msgspec.structs.replace(message.account, value=None))
            return self._codec.encode(msgspec.structs.replace(message, account=account))
        what = "a result" if isinstance(message, ItemResult | BundleResults) else "items"
        if isinstance(message, WorkTransfer) and message.moved:
            what = "items, or results of other items,"
        self._fail(error, f"sending {what} to another rank")
        # It counts for termination detection, like the original.
        return self._codec.encode(PinnedWork(()))

    def _is_stopping(self) -> bool:
        return self._stopping

    def _start(self, start: StartItem[I]) -> None:
        future = self._pool.submit(self._process, start.item, Context(start.ticket, self._line))
        future.then(partial(self._ended, start.ticket, start.item, "processing"))

    def _process(self, item: I, context: Context[I]) -> object:
        # An item that is still queued in the pool need not run if the job is stopping.
        if self._stopping:
            return None
        part = self._parts.context()
        try:
            return part.process(item, context)
        except PcircleError:
            part.send_reports(context)
            raise

    def _complete(self, complete: CompleteItem[I]) -> None:
        item = complete.item
        context: Context[I] = Context(complete.ticket, self._line)
        future: PoolFuture[object] = self._pool.submit(
            self._join, item, complete.own, complete.merged, context
        )
        future.then(partial(self._ended, complete.ticket, item, "joining"))

    def _join(self, item: I, own: object, merged: R, context: Context[I]) -> R:
        part = self._parts.context()
        try:
            return part.join(item, own, merged, context)
        except PcircleError:
            part.send_reports(context)
            raise

    def _keep(self, spill: SpillSegment[I]) -> None:
        try:
            self._spill.keep(spill.segment, self._codec.pack(spill.parcels))
        except OSError as error:
            reason = f"cannot write the queue to the temporary directory: {error}"
            self._engine.abort(StoppedEarly.exit_code, reason, _now_s())

    def _fetch(self, fetch: FetchSegment) -> None:
        if self._engine.reasons or self._stopping:
            return  # the segment is not needed, and writing it may have failed
        try:
            data = self._spill.fetch(fetch.segment)
        except OSError as error:
            reason = f"cannot read the queue from the temporary directory: {error}"
            self._engine.abort(StoppedEarly.exit_code, reason, _now_s())
            return
        self._engine.fetched(fetch.segment, self._codec.unpack(data), _now_s())

    def _discard(self, discard: DiscardSegments) -> None:
        self._spill.close()

    def _abandon(self, abandon: AbandonItem[I]) -> None:
        future = self._pool.submit(self._undo, abandon.item, abandon.own)
        future.then(partial(self._abandoned, abandon.item))

    def _undo(self, item: I, own: object) -> None:
        self._parts.context().abandon(item, own)

    def _abandoned(self, item: I, future: PoolFuture[None]) -> None:
        error = future.error()
        if error is not None:
            self._fail(error, f"abandoning {item!r}")

    def _seal(self, seal: SealEpoch) -> None:
        self._task.seal(seal.epoch)
        future = self._syncer.submit(self._task.sync, seal.epoch)
        future.then(partial(self._synced, seal.epoch))

    def _synced(self, epoch: int, future: PoolFuture[None]) -> None:
        error = future.error()
        if error is not None:
            self._fail(error, f"syncing epoch {epoch}")
        else:
            self._engine.synced(epoch, _now_s())
        self._perform()

    def _commit(self, commit: CommitEpoch) -> None:
        future = self._syncer.submit(self._task.commit, commit.epoch)
        future.then(partial(self._committed, commit.epoch))

    def _committed(self, epoch: int, future: PoolFuture[None]) -> None:
        error = future.error()
        if error is not None:
            self._fail(error, f"committing epoch {epoch}")
        self._perform()

    def _notify(self, notify: DeliverNotices) -> None:
        if self._observer is not None:
            try:
                values, lines = zip(*notify.values, strict=True)
                if log := b"".join(lines):
                    self._observer.log(log)
                self._observer.notice(notify.source, values)
            except Exception as error:
                self._refuses = True
                self._fail(error, "sending notices")
            self._has_notices = True

    def _show(self, show: ShowProgress) -> None:
        if self._observer is not None:
            try:
                self._observer.show(show.sums)
                if self._is_status_requested:
                    self._is_status_requested = False
                    self._observer.status(show.sums)
            except Exception as error:
                self._fail(error, "showing progress")

    def _conclude(self, conclude: Conclude[R]) -> None:
        account = self._amended(conclude.account)
        code = account.code
        # Another rank may know of a loss of which this rank has not been notified yet.
        lost = self._engine.lost | set(map(RankLost.rank_in, account.reasons))
        silent = tuple(rank for rank in account.silent if rank not in lost)
        self._unheard = bool(silent or account.more_silent)
        if account.silent:
            code = worst((code, StoppedEarly.exit_code))
        result = account.value if conclude.result is None else conclude.result
        if account.value is not None and conclude.result is not None:
            result = self._merge(conclude.result, account.value)
        reports: tuple[RankReport, ...] = ()
        summary = None
        if self._sums_up:
            from pcircle.runtime.summary import merged, unpacked

            summary = merged(unpacked(account.reports))
        else:
            decode = msgspec.msgpack.Decoder(RankReport).decode
            reports = tuple(sorted(map(decode, account.reports), key=_by_rank))
        reasons = (*_without_echoes(account.reasons), *_left_out(account))
        outcome = Outcome(code, reasons, silent, reports, result, summary)
        self._engine.conclude(self._tell(outcome), _now_s())

    def _stop(self, stop: StopRank) -> None:
        self._code = stop.code
        self._unheard = self._unheard or not (stop.agreed or self._engine.lost)
        if not stop.agreed and self._observer is not None:
            self._code = self._tell(Outcome(stop.code, self._engine.reasons, (), (), None))

    def _tell(self, outcome: Outcome[R]) -> int:
        """Let the observer report the outcome; return the job's exit code."""
        if self._observer is None:
            return outcome.code
        try:
            return self._observer.conclude(outcome)
        except Exception as error:
            # The other ranks must still be stopped, and only this message explains the failure.
            code, reason = self._explain(error, "concluding the job")
            print_error(reason)
            return worst((outcome.code, code))

    # ---- the end ---------------------------------------------------------------

    def _end(self) -> None:
        self._spill.close()
        self._stopping = True
        self._line.let_go()
        self._syncer.close(_LAST_CALLS_S)
        # Workers undo abandoned items. A worker that is hanging ends with the process.
        if self._pool.close(_LAST_CALLS_S):
            # The items that ended last may have failed, or may have to be abandoned.
            self._pool.drain()
            self._pool.close(_LAST_CALLS_S)
            self._pool.drain()

    def _report(self) -> bytes:
        activity = self._engine.activity
        usage = resource.getrusage(resource.RUSAGE_SELF)
        counts: tuple[int, ...] = ()
        try:
            if not self._engine.reasons:
                self._contribution = self._task.finish()
        except Exception as error:
            self._late.append(self._explain(error, "finishing the work"))
        try:
            counts = self._task.measure().counts
        except Exception as error:
            self._late.append(self._explain(error, "counting what was done"))
        report = RankReport(
            rank=self._transport.rank,
            node=self._transport.nodes[self._transport.rank],
            counts=counts,
            items=activity.items,
            spawned=activity.spawned,
            steals_asked=activity.asked,
            steals_got=activity.got,
            parcels_got=activity.parcels_got,
            messages=activity.messages,
            message_bytes=self._message_bytes,
            spilled=activity.spilled,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_rss_bytes=_peak_rss_bytes(),
            threads=self._tuner.settled if self._tuner else self._pool.threads,
            rates=self._tuner.rates if self._tuner else (),
            sent=tuple(
                (block * self._sent_block, messages, size_bytes)
                for block, (messages, size_bytes) in sorted(self._sent.items())
            ),
            sent_block=self._sent_block,
        )
        if not self._sums_up:
            return self._encoded(report)
        from pcircle.runtime.summary import Summary

        figures = report.figures()
        try:
            figures = {**self._task.figures(counts), **figures}
        except Exception as error:
            self._late.append(self._explain(error, "reporting results"))
        return self._encoded(Summary.of(report.rank, counts, figures))

    def _summed_up(self, reports: Sequence[bytes]) -> bytes:
        """Return the merged report of many ranks."""
        from pcircle.runtime.summary import merged, unpacked

        return self._encoded(merged(unpacked(reports)))

    def _encoded(self, report: RankReport | Summary) -> bytes:
        try:
            return msgspec.msgpack.encode(report)
        except OverflowError as error:  # a count exceeds 64 bits
            self._late.append(self._explain(error, "reporting results"))
            return msgspec.msgpack.encode(msgspec.structs.replace(report, counts=()))


def _without_echoes(reasons: Sequence[str]) -> tuple[str, ...]:
    """Return the reasons except those that another reason repeats and supplements with a cause."""
    return tuple(
        reason for reason in reasons if not any(r.startswith(f"{reason}:") for r in reasons)
    )


def _left_out(account: FinalAccount[R]) -> Iterator[str]:
    """Yield messages about reasons and silent ranks that an account could not list."""
    if account.more_reasons:
        yield f"up to {account.more_reasons} more reasons"
    if account.more_silent:
        yield f"{account.more_silent} more ranks did not respond at the end"


def _now_s() -> float:
    return time.monotonic()


def _peak_rss_bytes() -> int:
    """Return the peak memory size of this process."""
    # After a fork, ru_maxrss includes the size of the parent process.
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # procfs is not mounted
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _by_rank(report: RankReport) -> int:
    return report.rank


# ---- spill file ----------------------------------------------------------------------------------


class SpillFile:
    """Numbered segments of bytes on disk. Methods raise OSError if the file system fails."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._places: dict[int, tuple[int, int, int]] = {}  # descriptor, offset, size
        self._order: list[tuple[int, int]] = []  # segment numbers and offsets, in file order
        self._end = 0

    def keep(self, number: int, data: bytes) -> None:
        """Store a segment."""
        if self._file is None:
            import tempfile  # slow to import, and few queues spill

            self._file = tempfile.TemporaryFile(prefix="pcircle-queue-", buffering=0)  # noqa: SIM115
        fd = self._file.fileno()
        write_at(fd, data, self._end)
        self._places[number] = (fd, self._end, len(data))
        self._order.append((number, self._end))
        self._end += len(data)

    def fetch(self, number: int) -> bytes:
        """Read a segment back and discard it."""
        fd, offset, length = self._places[number]
        parts: list[bytes] = []
        while length:
            part = os.pread(fd, length, offset)
            if not part:
                raise OSError(f"the spilled segment {number} is truncated")
            parts.append(part)
            offset += len(part)
            length -= len(part)
        self.discard(number)
        return b"".join(parts)

    def discard(self, number: int) -> None:
        """Discard a segment, and truncate the file after the last segment that remains."""
        del self._places[number]
        end = self._end
        while self._order and self._order[-1][0] not in self._places:
            end = self._order.pop()[1]
        if end < self._end and self._file is not None:
            os.ftruncate(self._file.fileno(), end)
            self._end = end

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            discard(self._file)
            self._file = None
        self._places.clear()
        self._order.clear()
        self._end = 0
