"""The program of fbench: interprets the options, runs a benchmark and reports it, or makes trees.

Every rank is a client, and all clients begin a case at the same time. Work stealing would distort
the results, so the task posts each item to a particular rank. The report consists of tables with a
column for each backend, JSON, and a chart. `fbench make` and `fbench corrupt` use a single process.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import msgspec

from pcircle import __version__
from pcircle.circle import ProgressSums
from pcircle.cli import json_output as jsonout
from pcircle.cli import pictures
from pcircle.cli.arguments import require_operands
from pcircle.cli.listing import render
from pcircle.cli.output import MessageStream
from pcircle.cli.program import ToolProgram, run_tool
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError, worst
from pcircle.core.units import format_duration, format_size, plural
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.jobs.failures import LogFile, open_log
from pcircle.runtime import Context, Observer, Outcome, Task
from pcircle.tools.fbench.cases import Client, StopCase, remove
from pcircle.tools.fbench.options import BenchOptions
from pcircle.tools.fbench.plan import (
    BACKENDS,
    CASES,
    PAPER_CASES,
    TOGETHER,
    BenchFigure,
    BenchPlan,
    BenchResult,
    in_phases,
    together,
)
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
        return BenchConsole(msgspec.msgpack.decode(plan, type=BenchPlan), self._options)


def bench_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return its exit code; raise UsageError if it is invalid."""
    if len(args.operands) == 2 and args.operands[0] in _TAKEN:
        return _carry_out_on_tree(args.operands[0], args)
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
        self._client = Client(plan, rank)
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


# ---- report --------------------------------------------------------------------------------------

SCHEMA = 1

_TITLES = {
    "random": "random blocks",
    "stream": "consecutive blocks, all submitted at once",
    "overlap": "reading while computing",
    "metadata": "operations on names",
    "blocking": "how long a submission blocks its caller",
    "continuation": "reading, by the work after each block",
    "case1": "random blocks of 512 KiB, each thread waits for its own",
    "case2": "one file by one thread, all submitted at once",
    "case3": "throughput lost to computing 5 ms a block",
    "sweep": "waiting for 1 MiB, by the concurrent computation",
    "latency": "operations on names, one after the other",
    "submission": "how long a submission blocks its caller",
    "small": "blocks of 64 KiB, all submitted at once",
    "large": "blocks of 1 MiB, all submitted at once",
}


class BenchReport(msgspec.Struct, frozen=True):
    """The JSON document; figures of several clients are combined according to `UNITS`."""

    schema: int
    version: str
    exit_code: int
    directory: str
    clients: int
    threads: int | None
    files: int
    blocks: int
    block_bytes: int
    figures: list[dict[str, str | float]]
    trouble: list[str]
    warnings: list[str]


class BenchConsole(Observer[BenchResult]):
    """Prints the figures at the end of the benchmark."""

    def __init__(self, plan: BenchPlan, options: BenchOptions) -> None:
        self._plan = plan
        self._options = options
        self._began_s = time.monotonic()

    def status(self, sums: ProgressSums) -> None:
        took = format_duration(time.monotonic() - self._began_s)
        MessageStream(sys.stderr).line(f"fbench: running for {took}")

    def resume(self, stopped_s: float) -> None:
        self._began_s += stopped_s

    def conclude(self, outcome: Outcome[BenchResult]) -> int:
        code = super().conclude(outcome)
        measured = outcome.result or BenchResult()
        figures = together(measured.figures)
        output = MessageStream(sys.stderr)
        for trouble in sorted(set(measured.trouble)):
            output.line(f"fbench: {trouble}")
        if measured.trouble:
            code = worst((code, EntriesFailed.exit_code))
        if not self._options.quiet:
            for warning in measured.warnings:
                output.line(f"fbench: warning: {warning}")
        results = Results("fbench", self._options.json, output.line)
        if not self._options.quiet:
            results.text([_describe(figures).encode()])
        results.document(self._document(code, figures, measured))
        if (plot := self._options.plot) is not None:
            results.write(plot, partial(_draw, figures, plot))
        return worst((code, results.code))

    def _document(
        self, code: int, figures: Sequence[BenchFigure], measured: BenchResult
    ) -> BenchReport:
        plan = self._plan
        return BenchReport(
            SCHEMA,
            __version__,
            code,
            show(self._options.folder),
            plan.clients,
            plan.threads,
            plan.files,
            plan.blocks,
            plan.block_bytes,
            [msgspec.structs.asdict(figure) for figure in figures],
            sorted(set(measured.trouble)),
            list(measured.warnings),
        )


def _describe(figures: Sequence[BenchFigure]) -> str:
    """Return the figures as text: a table for each case with a column for each backend."""
    parts = []
    for case in dict.fromkeys(figure.case for figure in figures):
        of_case = [figure for figure in figures if figure.case == case]
        backends = list(dict.fromkeys(figure.backend for figure in of_case))
        rows = []
        for what, unit in dict.fromkeys((figure.what, figure.unit) for figure in of_case):
            values = {f.backend: f.value for f in of_case if (f.what, f.unit) == (what, unit)}
            cells = [_cell(values[b], unit) if b in values else "" for b in backends]
            rows.append([what if unit != "threads" else f"{what}, at once", *cells])
        table = render(rows, align="l" + "r" * len(backends), header=["", *backends])
        parts.append(f"{_TITLES[case]}\n{table}")
    return "\n".join(parts)


def _cell(value: float, unit: str) -> str:
    if unit in ("B/s", TOGETHER):
        return f"{format_size(int(value))}/s"
    if unit == "op/s":
        return f"{value:,.0f} /s"
    if unit == "%":
        return f"{value:.1f} %"
    return f"{value:.1f} us" if unit == "us" else f"{value:.0f}"


def _draw(figures: Sequence[BenchFigure], path: str) -> None:
    """Draw a chart for each case and unit; raise OSError if the picture cannot be written."""
    shown = [figure for figure in figures if figure.unit != "threads"]
    charts = list(dict.fromkeys((figure.case, figure.unit) for figure in shown))
    picture = pictures.new_figure((8, 2.6 * max(1, len(charts))))
    for number, (case, unit) in enumerate(charts, 1):
        axes = picture.add_subplot(len(charts), 1, number)
        in_panel = [figure for figure in shown if (figure.case, figure.unit) == (case, unit)]
        names = list(dict.fromkeys(figure.what for figure in in_panel))
        backends = list(dict.fromkeys(figure.backend for figure in in_panel))
        wide = 1 / (len(backends) + 1)
        for place, backend in enumerate(backends):
            values = {figure.what: figure.value for figure in in_panel if figure.backend == backend}
            left = [at + place * wide for at in range(len(names))]
            axes.bar(left, [values.get(name, 0) for name in names], wide, label=backend)
        axes.set_xticks([at + (1 - 2 * wide) / 2 for at in range(len(names))], names)
        axes.set_title(_TITLES[case], fontsize="medium")
        axes.set_ylabel(unit)
        axes.legend(fontsize="small")
    pictures.save(picture, path)


# ---- test trees ----------------------------------------------------------------------------------

_TAKEN = {
    "make": ("seed", "shape", "record", "quiet"),
    "corrupt": ("seed", "made", "changes", "record", "quiet"),
}


def _carry_out_on_tree(word: str, args: argparse.Namespace) -> int:
    """Create or corrupt a tree, and return the exit code; raise UsageError for invalid options.

    If a launcher has started several ranks, only the first rank does the work.
    """
    from pcircle.tools.fbench.tree_maker import Shape, corrupt, make, prepare, read_record

    for field, option in BenchOptions.offered():
        if option.is_given(args) and field not in _TAKEN[word]:
            raise UsageError(f"fbench {word} does not take {option.name}")
    options = BenchOptions.of(args, folder=os.fsencode(args.operands[1]))
    if launched().rank:
        return 0
    folder, changes = options.folder, options.changes
    if word == "make":
        root_fd = prepare(folder)
        what, work = "made", partial(make, root_fd, options.seed, options.shape or Shape())
    elif options.made is None:
        raise UsageError("fbench corrupt requires --made, the record that fbench make wrote")
    else:
        made = read_record(options.made)
        root_fd = _open_tree(folder)
        what, work = "corrupted", partial(corrupt, root_fd, options.seed, changes, made)
    out = MessageStream(sys.stderr)
    record = _Record(options.record, folder, out)
    try:
        count = work(record.add)
    except OSError as error:
        name = f" '{show(os.fsencode(error.filename))}'" if error.filename else ""
        out.line(f"fbench: cannot {word}{name}: {error.strerror}")
        return EntriesFailed.exit_code
    finally:
        os.close(root_fd)
        record.close()
    if not options.quiet:
        nouns = ("entry", "entries") if word == "make" else ("file", "files")
        out.line(f"fbench: {plural(count, *nouns)} {what} in '{show(folder)}'")
    too_few = word == "corrupt" and count < changes
    if too_few:
        out.line(f"fbench: fewer than the {changes:,} requested files could be corrupted")
    return EntriesFailed.exit_code if too_few or record.failed else 0


def _open_tree(folder: bytes) -> int:
    try:
        return os.open(folder, OPEN_DIRECTORY_FOLLOW)
    except OSError as error:
        raise UsageError(f"cannot open '{show(folder)}': {error.strerror}") from None


class _Record:
    """The output for the record: FILE or standard output."""

    def __init__(self, name: str | None, folder: bytes, out: MessageStream) -> None:
        self._results = Results("fbench", None, out.line)
        self._log: LogFile | None = None
        self._encode = msgspec.json.Encoder().encode
        if name is not None:
            holder = os.path.realpath(os.path.dirname(os.fsencode(name)) or b".")
            if (holder + b"/").startswith(os.path.realpath(folder) + b"/"):
                raise UsageError("--record: the record would be inside the tree")
            self._log = LogFile(open_log(name, "--record"))

    @property
    def failed(self) -> bool:
        return self._results.failed

    def add(self, line: msgspec.Struct) -> None:
        text = self._encode(line) + b"\n"
        if self._log is None:
            self._results.text([text])
            if self._results.failed:
                raise OSError(errno.EIO, "the record cannot be written")
        else:
            self._log.append(text)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
