"""What the options of fsum mean, and running it with them."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pcircle.errors import UsageError
from pcircle.fs.directories import working_directory
from pcircle.fs.globs import rules_of
from pcircle.fsum.console import Console
from pcircle.fsum.plan import LARGE_BYTES, Plan, resolve
from pcircle.fsum.task import SumTask
from pcircle.runtime import Observer, Program, Task, run_program
from pcircle.signature import algorithm
from pcircle.transport.launch import TransportOption
from pcircle.ui import jsonout
from pcircle.ui.errorlog import LogFile, open_log
from pcircle.ui.names import show
from pcircle.ui.output import Output
from pcircle.ui.progress import Mode
from pcircle.ui.values import chunk_bytes, interval_s, number_of_jobs


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be signed, as asked for. `filters` are as of `pcircle.fs.globs.rules_of`."""

    paths: tuple[bytes, ...]
    algorithm: str = "xxh128"
    chunk_bytes: int | None = None
    filters: tuple[tuple[str, bytes], ...] = ()
    null: bool = False
    one_file_system: bool = False
    jobs: int | None = None
    transport: TransportOption = "auto"
    quiet: bool = False
    verbose: int = 0
    progress: Mode = "auto"
    interval_s: float = 10.0
    json: str | None = None
    error_log: str | None = None


class SumProgram(Program):
    """fsum, for the runtime."""

    name = "fsum"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._log: LogFile | None = None
        self.close: Callable[[], None] = lambda: None  # what this process's task holds

    def complain(self, text: str) -> None:
        Output(sys.stderr).line(f"{self.name}: {text}")

    def prepare(self, nodes: Sequence[int]) -> bytes:
        options = self._options
        if options.json is not None:
            jsonout.check(options.json)
        chunk = options.chunk_bytes
        plan = Plan(
            roots=resolve(options.paths),
            algorithm=options.algorithm,
            large_bytes=min(LARGE_BYTES, chunk or LARGE_BYTES),
            chunk_bytes=chunk,
            directory=working_directory(),
            one_node=len(set(nodes)) == 1,
            rules=rules_of(options.filters, show, null=options.null),
            one_file_system=options.one_file_system,
        )
        if options.error_log is not None:  # last of all: a refused run leaves the old one alone
            self._log = LogFile(open_log(options.error_log))
        return msgspec.msgpack.encode(plan)

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        task = SumTask(msgspec.msgpack.decode(plan, type=Plan), rank, size)
        self.close = task.close
        return task

    def observer(self, plan: bytes) -> Observer[Any]:
        options = self._options
        return Console(
            msgspec.msgpack.decode(plan, type=Plan),
            quiet=options.quiet,
            verbose=options.verbose,
            progress_mode=options.progress,
            interval_s=options.interval_s,
            json=options.json,
            log=self._log,
        )


def sum_typed(typed: argparse.Namespace) -> int:
    """Carry out a parsed command line; returns the exit code. UsageError if it makes no sense."""
    if not typed.operands:
        raise UsageError("nothing to sign: PATH is missing")
    if not all(typed.operands):
        raise UsageError("an empty name is no file's")
    options = Options(
        paths=tuple(map(os.fsencode, typed.operands)),
        algorithm=typed.algorithm,
        chunk_bytes=None if typed.chunksize is None else chunk_bytes(typed.chunksize),
        filters=tuple((kind, os.fsencode(text)) for kind, text in typed.filters or ()),
        null=typed.null,
        one_file_system=typed.one_file_system,
        jobs=None if typed.jobs is None else number_of_jobs(typed.jobs),
        transport=typed.transport,
        quiet=typed.quiet,
        verbose=typed.verbose,
        progress=typed.progress,
        interval_s=interval_s("--interval", typed.interval),
        json=typed.json,
        error_log=typed.error_log,
    )
    return _run(options)


def _run(options: Options) -> int:
    try:
        algorithm(options.algorithm)
    except ValueError as error:
        raise UsageError(f"--algorithm: {error}") from None
    program = SumProgram(options)
    try:
        return run_program(program, options.jobs, options.transport)
    finally:
        # A worker that is stuck may go on some day, and must not find numbers used anew.
        if not any(thread.name.startswith("aio-") for thread in threading.enumerate()):
            program.close()


def sign(paths: Sequence[str | bytes], **choices: Any) -> int:
    """Sign as the command does, from a program; returns the exit code.

    `choices` are fields of `Options`. UsageError for what would be refused
    before it began on this rank.
    """
    sys.stdout.flush()
    return _run(Options(paths=tuple(map(os.fsencode, paths)), **choices))
