"""What all tools are to the runtime, and how they are run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from pcircle.errors import UsageError
from pcircle.runtime import Program, run_program
from pcircle.transport.launch import TransportOption, choose
from pcircle.ui.errorlog import LogFile, open_log
from pcircle.ui.output import Output
from pcircle.workers.starting import are_alive

O = TypeVar("O")  # noqa: E741 - options


def _nothing() -> None:
    """There is nothing to let go of."""


class ToolProgram(Program):
    """A tool, for the runtime. `close` lets go of what this process's task holds.

    `log` is the error log, on rank 0.
    """

    def __init__(self) -> None:
        self.close: Callable[[], None] = _nothing
        self.log: LogFile | None = None

    def begin_log(self, path: str | None) -> None:
        """Open the error log, last of all: a refused run leaves the old one alone. UsageError."""
        if path is not None:
            self.log = LogFile(open_log(path))

    def complain(self, text: str) -> None:
        """Say on standard error why the job ends."""
        Output(sys.stderr).line(f"{self.name}: {text}")


class Ranks(Protocol):
    """What options say of the ranks, as of `run_program`."""

    @property
    def jobs(self) -> int | None: ...
    @property
    def transport(self) -> TransportOption: ...


def is_local(ranks: Ranks) -> bool:
    """Whether the ranks are children of this process, and no launcher's."""
    return choose(ranks.transport, ranks.jobs, os.environ).kind == "local"


def run_tool(program: ToolProgram, ranks: Ranks) -> int:
    """Run a tool on its ranks; returns its exit code."""
    limit_s = getattr(ranks, "op_timeout_s", None)
    if limit_s is not None:
        from pcircle.runtime.supervised import supervised

        return supervised(program.name, limit_s, partial(_run, program, ranks))
    return _run(program, ranks)


def _run(program: ToolProgram, ranks: Ranks) -> int:
    try:
        return run_program(program, ranks.jobs, ranks.transport)
    finally:
        # A worker that is stuck may go on some day, and must not find descriptors used anew.
        if not are_alive():
            program.close()


def called(
    run: Callable[[O], int],
    kind: Callable[..., O],
    paths: Sequence[str | bytes],
    choices: Mapping[str, Any],
) -> int:
    """Run a tool as its command does, from a program: with options of this `kind`.

    Returns the exit code. UsageError for what would be refused before it began on this rank.
    """
    if choices.get("op_timeout_s") is not None:
        raise UsageError("op_timeout is for the command, which ends with its process")
    sys.stdout.flush()  # what the program has printed comes first
    return run(kind(paths=tuple(map(os.fsencode, paths)), **choices))
