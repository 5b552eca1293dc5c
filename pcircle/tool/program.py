"""What all tools are to the runtime, and how they are run."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from pcircle.errors import UsageError
from pcircle.names import show
from pcircle.runtime import Program, run_program
from pcircle.transport.launch import TransportOption, choose, launched
from pcircle.ui.errorlog import LogFile, open_log
from pcircle.ui.output import Output
from pcircle.workers.threads import has_live_workers

O = TypeVar("O")  # noqa: E741 - options


def _nothing() -> None:
    """There is nothing to let go of."""


class ToolProgram(Program):
    """A tool, for the runtime. `close` lets go of what this process's task holds.

    `log` is the error log, on rank 0. Who `reads_only` leaves nothing behind in what it reads.
    """

    reads_only: ClassVar[bool] = False
    plan_type: ClassVar[Any]

    def __init__(self) -> None:
        self.close: Callable[[], None] = _nothing
        self.log: LogFile | None = None

    def explain_unreadable(self, error: OSError) -> str:
        """See `Program`: with the name of the entry."""
        if error.filename is None or isinstance(error.filename, int):
            return super().explain_unreadable(error)
        return f"cannot read '{show(os.fsencode(error.filename))}': {error.strerror}"

    def begin_log(self, path: str | None) -> None:
        """Open the error log, last of all: a refused run leaves the old one alone. UsageError."""
        if path is not None:
            self.log = LogFile(open_log(path))

    def outlives(self) -> bool:
        """On rank 0, once the job is prepared: whether it is begun again where ranks are lost.

        What it has told is not told again, if it is told in whole lines as it is found.
        """
        return self.reads_only

    def prepare_again(self, plan: bytes, ranks: int) -> bytes:
        """On rank 0: the plan of the job that is begun again, with so many ranks."""
        decided = msgspec.msgpack.decode(plan, type=self.plan_type)
        if not hasattr(decided, "ranks"):
            return plan
        return msgspec.msgpack.encode(msgspec.structs.replace(decided, ranks=ranks))

    def share(self, ranks: int) -> None:
        """Before local ranks are forked: make what they are to have in common."""

    def complain(self, text: str) -> None:
        """Say on standard error why the job ends."""
        Output(sys.stderr).line(f"{self.name}: {text}")


class Ranks(Protocol):
    """What options say of the ranks, as of `run_program`."""

    @property
    def jobs(self) -> int | None: ...
    @property
    def transport(self) -> TransportOption: ...


def local_ranks(ranks: Ranks) -> int:
    """How many ranks are this process and its children; 0 if they are a launcher's."""
    choice = choose(ranks.transport, ranks.jobs, launched())
    return choice.size if choice.kind == "local" else 0


def run_tool(program: ToolProgram, ranks: Ranks) -> int:
    """Run a tool on its ranks; returns its exit code."""
    limit_s = getattr(ranks, "op_timeout_s", None)
    if limit_s is not None:
        from pcircle.runtime.supervised import supervised

        # A call on a file with a limit starts a thread, so none may come before ranks are forked:
        # those that are begun anew, as by a process that has threads, have no limit.
        importlib.import_module("pcircle.outliving.job")
        return supervised(program.name, limit_s, partial(_run, program, ranks))
    return _run(program, ranks)


def _run(program: ToolProgram, ranks: Ranks) -> int:
    try:
        if (size := local_ranks(ranks)) > 1:
            from pcircle.outliving.job import can_restart, run_restartable

            if can_restart():
                return run_restartable(program, size)
        return run_program(program, ranks.jobs, ranks.transport)
    finally:
        # A worker that is stuck may go on some day, and must not find descriptors used anew.
        if not has_live_workers():
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
