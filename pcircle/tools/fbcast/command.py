"""The program of fbcast, which interprets the options and runs each rank's part of the job."""

from __future__ import annotations

import argparse
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from pcircle.cli import json_output as jsonout
from pcircle.cli.arguments import require_operands
from pcircle.core.encoding import show
from pcircle.core.errors import Defect, PcircleError, UsageError
from pcircle.core.writing import CALLER
from pcircle.fs.open_flags import CREATE_FILE
from pcircle.fs.safe_open import make_directory
from pcircle.runtime.crash_report import write_report
from pcircle.runtime.signals import Signals
from pcircle.threads.throttle import BURST_S, TokenBucket
from pcircle.tools.fbcast.conductor import Conductor
from pcircle.tools.fbcast.destination import Decisions, Destination
from pcircle.tools.fbcast.loop import Loop, host_name, nodes_of
from pcircle.tools.fbcast.messages import BroadcastPlan, Message
from pcircle.tools.fbcast.node import BlockingWorker, BroadcastNode
from pcircle.tools.fbcast.options import BroadcastOptions
from pcircle.tools.fbcast.report import BroadcastConsole
from pcircle.tools.fbcast.signatures import digest
from pcircle.tools.fbcast.source_reader import Operand, SourceReader
from pcircle.transport.contract import Transport
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start, warn_stale_launcher

Send: TypeAlias = "Callable[[int, Message], None]"


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
            place = Destination(host_name(), transport.rank, decisions) if acts else None
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
