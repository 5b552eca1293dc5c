"""The program of fbcast: interprets the options, runs each rank's part of the job, and reports it.

The event loop of a rank reads the clock for the node and the conductor. Threads perform the file
I/O: one writes the stream, and on the reader a second thread reads the source. Messages therefore
continue to flow while a disk is slow, and a disk that hangs is detected.
"""

from __future__ import annotations

import argparse
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeAlias, TypeVar

import msgspec

from pcircle import __version__
from pcircle.cli import json_output as jsonout
from pcircle.cli.arguments import command, require_operands
from pcircle.cli.output import MessageStream
from pcircle.cli.report import ToolReport
from pcircle.cli.results import Results
from pcircle.collective import Records
from pcircle.collective.service import fresh_number
from pcircle.core.encoding import show
from pcircle.core.errors import Defect, PcircleError, StoppedEarly, UsageError, worst
from pcircle.core.units import format_duration, format_rate, format_size, plural
from pcircle.core.writing import CALLER, standard_error
from pcircle.fs.open_flags import CREATE_FILE
from pcircle.fs.safe_open import make_directory
from pcircle.runtime.crash_report import write_report
from pcircle.runtime.signals import Signals
from pcircle.threads.throttle import BURST_S, TokenBucket
from pcircle.threads.workers import PoolFuture, WorkerPool
from pcircle.tools.fbcast.conductor import Conductor
from pcircle.tools.fbcast.destination import Decisions, Destination
from pcircle.tools.fbcast.messages import BroadcastPlan, Finish, Message, StopRequest
from pcircle.tools.fbcast.node import READER, BlockingWorker, BroadcastNode, Disk, Then
from pcircle.tools.fbcast.options import BroadcastOptions
from pcircle.tools.fbcast.signatures import digest
from pcircle.tools.fbcast.stream import BroadcastTotals, Operand, SourceReader
from pcircle.transport.contract import Delivery, Transport
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start, warn_stale_launcher

_DONE = {"copy": "done", "remove": "removed", "check": "identical to the source"}
_SIGNALLED = (130, 143)
_PATIENCE_S = 0.5  # for a stuck thread at the end of the job
T = TypeVar("T")
Send: TypeAlias = Callable[[int, Message], None]
MakeConductor: TypeAlias = Callable[[BroadcastNode, Send, BlockingWorker], Conductor]


class BadNode(msgspec.Struct, frozen=True):
    """A node that failed, or that differs from the source."""

    rank: int
    host: str
    why: str


class NodeTime(msgspec.Struct, frozen=True):
    """The time of a node from the start of the stream or check to its answer, or None.

    A node answers a stream when all data is written.
    """

    rank: int
    host: str
    elapsed_s: float | None


class BroadcastReport(ToolReport, frozen=True):
    """The JSON document; `shown` is null if the outcome is in doubt."""

    action: str
    shown: bool | None
    nodes: int
    entries: int
    bytes: int
    sent_bytes: int
    chunks: int
    way: str
    elapsed_s: float
    reason: str
    bad_nodes: tuple[BadNode, ...]
    ranks: tuple[NodeTime, ...]


class BroadcastConsole:
    """Prints the outcome of a broadcast."""

    def __init__(self, options: BroadcastOptions) -> None:
        self._out = MessageStream(standard_error())
        self._options = options
        self._results = Results("fbcast", options.json, self._out.line)

    def refuse(self, why: str) -> None:
        """Print why the job was refused."""
        self._say(why)

    def status(self, totals: BroadcastTotals, elapsed_s: float) -> None:
        """Print the progress."""
        entries, took = plural(totals.entries, "entry", "entries"), format_duration(elapsed_s)
        self._say(f"{self._options.verb}: {entries}, {format_size(totals.bytes)} read after {took}")

    def tell(self, conductor: Conductor, totals: BroadcastTotals, elapsed_s: float) -> int:
        """Print the outcome, write the JSON document, and return the exit code."""
        options, verb = self._options, self._options.verb
        bad = tuple(
            BadNode(rank, self._host(conductor, rank), why)
            for rank, why in sorted(conductor.bad.items())
        )
        for node in bad:
            self._say(f"node {node.host}: {node.why}")
        if conductor.reason:
            self._say(conductor.reason)
        if not options.quiet:
            for kind, count in sorted(totals.skipped.items()):
                self._say(f"{plural(count, kind, kind + 's')} skipped")
        if options.verbose:
            for rank in conductor.good:
                self._say(f"node {self._host(conductor, rank)}: {_DONE[verb]}")
        ranks = tuple(
            NodeTime(rank, self._host(conductor, rank), conductor.times_s.get(rank))
            for rank in conductor.good
        )
        if options.stats:
            for line in _table(ranks, conductor.stream_bytes).splitlines():
                self._out.line(line)
        if not options.quiet or conductor.code:
            self._say(self._summary(conductor, totals, elapsed_s))
        if conductor.code in _SIGNALLED:
            self._say(f"to try again, run: {command('fbcast', options.words)}")
        document = BroadcastReport(
            schema=1,
            tool="fbcast",
            version=__version__,
            exit_code=conductor.code,
            action=verb,
            shown=conductor.decided,
            nodes=len(conductor.good),
            entries=totals.entries,
            bytes=totals.bytes,
            sent_bytes=conductor.sent_bytes,
            chunks=conductor.chunks,
            way=conductor.way,
            elapsed_s=round(elapsed_s, 3),
            reason=conductor.reason,
            bad_nodes=bad,
            ranks=ranks,
        )
        self._results.document(document)
        return worst((conductor.code, self._results.code))

    def _host(self, conductor: Conductor, rank: int) -> str:
        host = conductor.hosts.get(rank, "")
        names = list(conductor.hosts.values())
        if not host:
            return f"of rank {rank}"
        return f"{host} (rank {rank})" if names.count(host) > 1 else host

    def _summary(self, conductor: Conductor, totals: BroadcastTotals, elapsed_s: float) -> str:
        verb, where = self._options.verb, show(self._options.target)
        good = plural(len(conductor.good), "node", "nodes")
        if conductor.completed:
            return f"completed the work of an earlier run on {good}; nothing was sent"
        if verb == "check":
            differ = plural(len(conductor.bad), "node differs", "nodes differ or failed")
            return f"{good} identical to the source" + (f"; {differ}" if conductor.bad else "")
        if conductor.decided is None:
            return f"it is not known whether {where} was changed"
        if not conductor.decided:
            return f"nothing was changed in {where} on any node"
        took = format_duration(elapsed_s)
        if verb == "remove":
            return f"removed from {where} on {good} in {took}"
        rate = format_rate(totals.bytes / max(elapsed_s, 1e-6))
        entries = plural(totals.entries, "entry", "entries")
        size = format_size(totals.bytes)
        return f"{entries}, {size} to {where} on {good} in {took}, {rate} each"

    def _say(self, text: str) -> None:
        self._out.line(f"fbcast: {text}")


def _table(ranks: Sequence[NodeTime], stream_bytes: int) -> str:
    """Return a table of the nodes: the data that each received, its time, and the rate."""
    from pcircle.cli import listing

    rows = []
    for node in ranks:
        elapsed_s = node.elapsed_s
        took = "-" if elapsed_s is None else format_duration(elapsed_s)
        rate = format_rate(stream_bytes / max(elapsed_s or 0, 1e-6)) if stream_bytes else "-"
        rows.append([str(node.rank), node.host, format_size(stream_bytes), took, rate])
    return listing.render(rows, align="rlrrr", header=["rank", "node", "bytes", "time", "rate"])


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


def broadcast_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return its exit code; raise UsageError if it is invalid."""
    options = _options(args)
    choice = choose(options.transport, options.jobs, launched())
    if choice.kind != "mpi":
        warn_stale_launcher("fbcast")
    body = partial(_run_rank, options)
    again = CALLER.get() is not None
    return start(choice, body, partial(_pickled, body), again=again)


def _pickled(body: object) -> bytes:
    import pickle  # needed only if the calling program has threads

    return pickle.dumps(body)


def _run_rank(options: BroadcastOptions, transport: Transport) -> int:
    return _RankJob(options, transport).run()


def _options(args: argparse.Namespace) -> BroadcastOptions:
    operands = [os.fsencode(operand) for operand in args.operands]
    require_operands(operands, "SRC", "DST", more=True)
    if not all(operands):
        raise UsageError("empty file name")
    return BroadcastOptions.of(
        args, sources=tuple(operands[:-1]), target=os.path.abspath(operands[-1])
    )


def _operands(options: BroadcastOptions) -> list[Operand]:
    """Return the path and name of each SRC; raise UsageError if a name is unusable or repeated."""
    found: list[Operand] = []
    for path in options.sources:
        name = os.path.basename(path.rstrip(b"/"))
        shown = show(path)
        if name in (b"", b".", b".."):
            raise UsageError(f"'{shown}' has no base name; name the directory itself")
        if name.startswith(b".fbcast-"):
            raise UsageError(f"'{shown}': names that begin with .fbcast- are reserved")
        if any(operand.name == name for operand in found):
            raise UsageError(f"two SRC operands have the same base name, '{show(name)}'")
        found.append(Operand(os.path.abspath(path), name))
    return found


def _folders(operands: list[Operand]) -> tuple[bool, ...]:
    """Return which operands are directories; raise UsageError if an operand cannot be copied."""
    folders = []
    for path, _ in operands:
        try:
            status = os.stat(path)
        except OSError as error:
            raise UsageError(f"{show(path)}: {error.strerror}") from None
        if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            raise UsageError(f"{show(path)}: not a regular file or directory")
        folders.append(stat.S_ISDIR(status.st_mode))
    return tuple(folders)


def _refuse_inside(operands: list[Operand], folders: tuple[bool, ...], target: bytes) -> None:
    """Raise UsageError if DST is inside a SRC, because the broadcast would read its own output."""
    fixed = min(target.partition(b"{host}")[0], target.partition(b"{rank}")[0], key=len)
    if fixed != target:
        fixed = os.path.dirname(fixed)
    inside = os.path.join(os.path.realpath(fixed), b"")
    for (path, _), folder in zip(operands, folders, strict=True):
        if folder and inside.startswith(os.path.join(os.path.realpath(path), b"")):
            raise UsageError(f"cannot copy '{show(path)}' into itself: {show(target)}")


class _RankJob:
    """The part of a job that runs on one rank."""

    def __init__(self, options: BroadcastOptions, transport: Transport) -> None:
        self._options = options
        self._transport = transport
        self._begun_s = time.monotonic()

    def run(self) -> int:
        """Run the job and return its exit code.

        If an unexpected exception occurs, write a crash report and raise Defect.
        """
        try:
            return self._run()
        except PcircleError:
            raise
        except Exception as error:
            raise Defect(f"internal error: {write_report(error, 'broadcasting')}") from error

    def _run(self) -> int:
        transport, options = self._transport, self._options
        with Signals(transport.wake) as signals:
            nodes = nodes_of(transport.nodes, per_rank=b"{rank}" in options.target)
            decisions = Decisions()
            acts = transport.rank in nodes
            place = Destination(os.uname().nodename, transport.rank, decisions) if acts else None
            loop = Loop(transport, place, decisions)
            if transport.rank:
                return loop.run(signals)
            return self._conduct(loop, nodes, signals)

    def _conduct(self, loop: Loop, nodes: tuple[int, ...], signals: Signals) -> int:
        options = self._options
        report = BroadcastConsole(options)
        plan, reader, refusal = self._prepare()

        def make(node: BroadcastNode, send: Send, read: BlockingWorker) -> Conductor:
            bucket, rate = None, options.bytes_per_s
            if rate is not None:
                bucket = TokenBucket(rate, rate * BURST_S, time.monotonic())
            ranks = self._transport.size
            arguments = (node, plan, nodes, ranks, reader, send, read, digest)
            return Conductor(*arguments, partial=options.partial, bucket=bucket)

        conductor = loop.conduct(make)

        def print_status() -> None:
            report.status(reader.totals, time.monotonic() - self._begun_s)

        loop.asked = print_status
        if refusal is not None:
            conductor.refuse(refusal.exit_code)
        try:
            code = loop.run(signals)
        finally:
            with suppress(OSError):
                os.unlink(os.path.join(plan.records, plan.proof))
        if refusal is not None:
            report.refuse(str(refusal))
            return code
        return report.tell(conductor, reader.totals, time.monotonic() - self._begun_s)

    def _prepare(self) -> tuple[BroadcastPlan, SourceReader, PcircleError | None]:
        """Return the plan and the reader, and the error if the job is refused before it starts."""
        options = self._options
        job = os.urandom(8).hex()
        proof = b"proof-" + job.encode()
        reader = SourceReader(())
        plan = BroadcastPlan(job, options.verb, options.target, ())
        try:
            if options.json is not None:
                jsonout.check(options.json)
            operands = _operands(options)
            folders = () if options.verb == "remove" else _folders(operands)
            if options.verb == "copy":
                _refuse_inside(operands, folders, options.target)
            if options.verb != "check":
                _prove(options.records, proof)
        except PcircleError as error:
            return plan, reader, error
        decided: dict[str, Any] = options.planned(BroadcastPlan) | {
            "job": job,
            "names": tuple(operand.name for operand in operands),
            "folders": folders,
            "proof": proof,
        }
        plan = BroadcastPlan(**decided)
        return plan, SourceReader(operands), None


def _prove(records: bytes, proof: bytes) -> None:
    """Create the directory of records, and a proof file by which nodes verify that they share it.

    Raise UsageError if that fails.
    """
    try:
        make_directory(records)
        os.close(os.open(os.path.join(records, proof), CREATE_FILE, 0o600))
    except OSError as error:
        why = error.strerror or str(error)
        text = (
            f"{show(records)}: {why}; use --record-dir to specify a directory that all nodes share"
        )
        raise UsageError(text) from None
