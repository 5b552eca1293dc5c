"""What the options of fprof mean, and running it with them."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pcircle.errors import UsageError
from pcircle.fprof.cli import DIMENSIONS
from pcircle.fprof.console import Console
from pcircle.fprof.plan import Plan, resolve
from pcircle.fprof.task import ProfileTask
from pcircle.fprof.wishes import Wishes
from pcircle.fs.directories import working_directory
from pcircle.fs.globs import rules_of
from pcircle.runtime import Observer, Program, Task, run_program
from pcircle.transport.launch import TransportOption
from pcircle.ui import jsonout
from pcircle.ui.errorlog import LogFile, open_log
from pcircle.ui.names import show
from pcircle.ui.output import Output
from pcircle.ui.progress import Mode
from pcircle.ui.values import interval_s, number, number_of_jobs
from pcircle.units import parse_size

_MOST_TOP = 10_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be profiled and told. `filters` are as of `pcircle.fs.globs.rules_of`."""

    paths: tuple[bytes, ...]
    wishes: Wishes = Wishes()
    filters: tuple[tuple[str, bytes], ...] = ()
    null: bool = False
    one_file_system: bool = False
    threads: int = 16
    jobs: int | None = None
    transport: TransportOption = "auto"
    quiet: bool = False
    verbose: int = 0
    progress: Mode = "auto"
    interval_s: float = 10.0
    json: str | None = None
    error_log: str | None = None


class ProfileProgram(Program):
    """fprof, for the runtime."""

    name = "fprof"

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
        roots, volumes = resolve(options.paths)
        plan = Plan(
            roots=roots,
            volumes=volumes,
            directory=working_directory(),
            one_node=len(set(nodes)) == 1,
            rules=rules_of(options.filters, show, null=options.null),
            one_file_system=options.one_file_system,
            facets=tuple(sorted(options.wishes.facets())),
            top=max(1, options.wishes.top),
            edges=options.wishes.edges,
            threads=options.threads,
        )
        if options.error_log is not None:  # last of all: a refused run leaves the old one alone
            self._log = LogFile(open_log(options.error_log))
        return msgspec.msgpack.encode(plan)

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        task = ProfileTask(msgspec.msgpack.decode(plan, type=Plan), rank, size)
        self.close = task.close
        return task

    def observer(self, plan: bytes) -> Observer[Any]:
        options = self._options
        return Console(
            msgspec.msgpack.decode(plan, type=Plan),
            options.wishes,
            quiet=options.quiet,
            verbose=options.verbose,
            progress_mode=options.progress,
            interval_s=options.interval_s,
            json=options.json,
            log=self._log,
        )


def profile_typed(typed: argparse.Namespace) -> int:
    """Carry out a parsed command line; returns the exit code. UsageError if it makes no sense."""
    if not all(typed.operands):
        raise UsageError("an empty name is no file's")
    if not typed.operands:
        raise UsageError("nothing to profile: PATH is missing")
    return _run(
        Options(
            paths=tuple(map(os.fsencode, typed.operands)),
            wishes=_wishes(typed),
            filters=tuple((kind, os.fsencode(text)) for kind, text in typed.filters or ()),
            null=typed.null,
            one_file_system=typed.one_file_system,
            threads=16 if typed.threads is None else _count("--threads", typed.threads, 1024),
            jobs=None if typed.jobs is None else number_of_jobs(typed.jobs),
            transport=typed.transport,
            quiet=typed.quiet,
            verbose=typed.verbose,
            progress=typed.progress,
            interval_s=interval_s("--interval", typed.interval),
            json=typed.json,
            error_log=typed.error_log,
        )
    )


def _wishes(typed: argparse.Namespace) -> Wishes:
    """What is to be told."""
    by = [word for text in typed.by or () for word in text.split(",")]
    for word in by:
        if word not in DIMENSIONS:
            raise UsageError(f"--by: '{word}' is none of {', '.join(DIMENSIONS)}")
    kind, edges = _bins(typed.bins)
    return Wishes(
        bins=kind,
        edges=edges,
        by=tuple(dict.fromkeys(by)),
        top=0 if typed.top is None else _count("--top", typed.top, _MOST_TOP),
    )


def _bins(text: str | None) -> tuple[str, tuple[int, ...]]:
    if text is None or text in ("log2", "pow4"):
        return text or "", ()
    edges = {int(number("--bins", word, parse_size)) for word in text.split(",")}
    return "", tuple(sorted(edges))


def _count(option: str, text: str, most: int) -> int:
    if not text.isdecimal() or not 0 < int(text) <= most:
        raise UsageError(f"{option}: '{text}' is not a number from 1 to {most:,}")
    return int(text)


def _run(options: Options) -> int:
    program = ProfileProgram(options)
    try:
        return run_program(program, options.jobs, options.transport)
    finally:
        # A worker that is stuck may go on some day, and must not find numbers used anew.
        if not any(thread.name.startswith("aio-") for thread in threading.enumerate()):
            program.close()


def profile(paths: Sequence[str | bytes], **choices: Any) -> int:
    """Profile as the command does, from a program; returns the exit code.

    `choices` are fields of `Options`. UsageError for what would be refused
    before it began on this rank.
    """
    sys.stdout.flush()
    return _run(Options(paths=tuple(map(os.fsencode, paths)), **choices))
