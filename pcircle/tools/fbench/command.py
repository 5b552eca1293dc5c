"""Run fbench: parsed options to exit code."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.cli import pictures
from pcircle.cli.program import ToolProgram, run_tool
from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.core.units import parse_size
from pcircle.core.values import invalid, number, number_of_jobs, number_of_threads, positive
from pcircle.runtime import Observer, Task
from pcircle.tools.fbench.cases import remove
from pcircle.tools.fbench.plan import BACKENDS, CASES, PAPER_CASES, BenchPlan, in_phases
from pcircle.tools.fbench.report import BenchConsole
from pcircle.tools.fbench.task import BenchTask
from pcircle.transport.launch import TransportOption

PAPERS = "papers"  # a command only before DIR; as the single operand it is DIR itself
_MOST = 1 << 20
_MAX_BLOCK_BYTES = 1 << 30


class BenchOptions(msgspec.Struct, frozen=True):
    """The validated options of one fbench run. Numbers are as in `BenchPlan`."""

    folder: bytes
    cases: tuple[str, ...] = CASES
    backends: tuple[str, ...] = BACKENDS
    threads: int | None = None
    files: int = 4
    blocks: int = 64
    block_bytes: int = 1 << 20
    jobs: int | None = 1
    transport: TransportOption = "auto"
    quiet: bool = False
    json: str | None = None
    plot: str | None = None


class BenchProgram(ToolProgram):
    """The fbench program, as run by the runtime."""

    name = "fbench"

    def __init__(self, options: BenchOptions) -> None:
        super().__init__()
        self._options = options
        self._place: bytes | None = None  # on rank 0

    def prepare(self, nodes: Sequence[int]) -> bytes:
        options = self._options
        if options.json is not None:
            jsonout.check(options.json)
        if options.plot is not None:
            jsonout.check(options.plot)
            pictures.check(options.plot)
        try:
            folder = os.path.realpath(options.folder)
            self._place = tempfile.mkdtemp(prefix=b".fbench-", dir=folder)
        except OSError as error:
            text = f"cannot work in '{show(options.folder)}': {error.strerror}"
            raise UsageError(text) from None
        plan = BenchPlan(
            self._place,
            in_phases(options.cases, options.backends),
            options.backends,
            options.threads,
            options.files,
            options.blocks,
            options.block_bytes,
            len(nodes),
        )
        return msgspec.msgpack.encode(plan)

    def withdraw(self) -> None:
        self.tidy()

    def tidy(self) -> None:
        """Remove the temporary directory with any files that a stopped job left in it.

        Entries that cannot be removed remain.
        """
        if self._place is None:
            return
        with suppress(OSError):
            for name in os.listdir(self._place):
                remove(os.path.join(self._place, name))
        with suppress(OSError):
            os.rmdir(self._place)

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        return BenchTask(msgspec.msgpack.decode(plan, type=BenchPlan), rank, size)

    def observer(self, plan: bytes) -> Observer[Any]:
        options = self._options
        return BenchConsole(
            msgspec.msgpack.decode(plan, type=BenchPlan),
            shown=show(options.folder),
            quiet=options.quiet,
            json=options.json,
            plot=options.plot,
        )


TREES = ("make", "corrupt")


def bench_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return its exit code. Raise UsageError if it is invalid."""
    if len(args.operands) == 2 and args.operands[0] in TREES:
        from pcircle.tools.fbench.trees import carry_out

        return carry_out(args.operands[0], args)
    for name in ("seed", "shape", "record", "made", "changes"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} is for fbench make DIR and fbench corrupt DIR")
    options = _options(args)
    program = BenchProgram(options)
    try:
        return run_tool(program, options)
    finally:
        program.tidy()


def _options(args: argparse.Namespace) -> BenchOptions:
    operands = list(args.operands)
    papers = len(operands) > 1 and operands[0] == PAPERS
    if papers:
        del operands[0]
    if len(operands) != 1:
        if not operands:
            raise UsageError("missing operand DIR")
        raise UsageError(f"fbench takes one DIR: extra operand '{operands[1]}'")
    files, blocks = ("5", "100") if papers else ("4", "64")
    size = number("--block-size", args.block_size, parse_size)
    if not 1 <= size <= _MAX_BLOCK_BYTES:
        raise invalid("--block-size", args.block_size, "must be from 1 byte to 1 GiB")
    return BenchOptions(
        folder=os.fsencode(operands[0]),
        cases=tuple(dict.fromkeys(args.case or (PAPER_CASES if papers else CASES))),
        backends=tuple(dict.fromkeys(args.backend or BACKENDS)),
        threads=None if args.threads is None else number_of_threads(args.threads),
        files=positive("--files", files if args.files is None else args.files, _MOST),
        blocks=positive("--blocks", blocks if args.blocks is None else args.blocks, _MOST),
        block_bytes=int(size),
        jobs=_jobs(args),
        transport=args.transport,
        quiet=args.quiet,
        json=args.json,
        plot=args.plot,
    )


def _jobs(args: argparse.Namespace) -> int | None:
    if args.jobs is not None:
        return number_of_jobs(args.jobs)
    from pcircle.transport.launch import launched

    return 1 if launched().kind == "none" else None
