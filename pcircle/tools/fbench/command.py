"""The program of fbench, which interprets the options, and the task of a benchmark.

Every rank is a client, and all clients begin a case at the same time. Work stealing would distort
the results, so the task posts each item to a particular rank.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.cli import pictures
from pcircle.cli.arguments import require_operands
from pcircle.cli.program import ToolProgram, run_tool
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.runtime import Context, Observer, Task
from pcircle.tools.fbench.cases import StopCase, remove
from pcircle.tools.fbench.options import BenchOptions
from pcircle.tools.fbench.papers import Papers
from pcircle.tools.fbench.plan import (
    BACKENDS,
    CASES,
    PAPER_CASES,
    BenchPlan,
    BenchResult,
    in_phases,
)
from pcircle.tools.fbench.report import BenchConsole
from pcircle.transport.launch import launched

PAPERS = "papers"  # a command if it precedes DIR; as the only operand it is DIR itself


class BenchProgram(ToolProgram):
    """The program of fbench."""

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
        decided: dict[str, Any] = options.planned(BenchPlan) | {
            "place": self._place,
            "cases": in_phases(options.cases, options.backends),
            "clients": len(nodes),
        }
        plan = BenchPlan(**decided)
        return msgspec.msgpack.encode(plan)

    def withdraw(self) -> None:
        self.tidy()

    def tidy(self) -> None:
        """Remove the temporary directory, and any files that a stopped job has left in it.

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
    """Run a parsed command line and return its exit code; raise UsageError if it is invalid."""
    if len(args.operands) == 2 and args.operands[0] in TREES:
        from pcircle.tools.fbench.trees import carry_out

        return carry_out(args.operands[0], args)
    for field in BenchOptions.TREES.fields:
        option = BenchOptions.declared[field]
        if option.is_given(args):
            raise UsageError(f"{option.name} applies only to fbench make and fbench corrupt")
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
    require_operands(list(map(os.fsencode, operands)), "DIR")
    options = BenchOptions.of(args, folder=os.fsencode(operands[0]))
    cases, files, blocks = (PAPER_CASES, 5, 100) if papers else (CASES, 4, 64)
    return options.replace(
        cases=options.cases or cases,
        backends=options.backends or BACKENDS,
        files=options.files or files,
        blocks=options.blocks or blocks,
        jobs=options.jobs or (1 if launched().kind == "none" else None),
    )


# ---- task ----------------------------------------------------------------------------------------

_AHEAD_S = 0.1


class BenchCase(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """An item that starts case `number` of the plan on all clients."""

    number: int


class Turn(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """An item for one client's part of a case, which begins at a given wall-clock time."""

    number: int
    begin_s: float


class CaseEnd(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """An item that notifies rank 0 that a client has finished a case."""

    number: int


Item: TypeAlias = BenchCase | Turn | CaseEnd


class BenchTask(Task[Item, BenchResult]):
    """Runs the cases in order, each on all ranks at the same time."""

    def __init__(self, plan: BenchPlan, rank: int, size: int) -> None:
        self._plan = plan
        self._client = Papers(plan, rank)
        self._rank, self._size = rank, size
        self._running = size

    def seed(self) -> Iterable[Item]:
        return [BenchCase(0)]

    def process(self, item: Item, context: Context[Item]) -> BenchResult:
        if isinstance(item, CaseEnd):
            self._running -= 1
            if not self._running and item.number + 1 < len(self._plan.cases):
                self._running = self._size
                context.spawn([BenchCase(item.number + 1)])
            return BenchResult()
        if isinstance(item, BenchCase):
            begin_s = time.time() + _AHEAD_S
            for rank in range(self._size):
                context.post(rank, [Turn(item.number, begin_s)])
            return BenchResult()
        time.sleep(max(0.0, min(_AHEAD_S, item.begin_s - time.time())))
        case = self._plan.cases[item.number]
        try:
            figures = tuple(self._client.measure(case, context.is_stopping))
            # One client's warnings suffice, because all clients use the same file system.
            warnings = tuple(self._client.take_warnings()) if not self._rank else ()
            return BenchResult(figures, warnings=warnings)
        except StopCase:
            return BenchResult()
        except OSError as error:
            return BenchResult(trouble=(f"{case.partition('/')[0]}: {error}",))
        finally:
            context.post(0, [CaseEnd(item.number)])

    def merge(self, a: BenchResult, b: BenchResult) -> BenchResult:
        return BenchResult(a.figures + b.figures, a.trouble + b.trouble, a.warnings + b.warnings)
