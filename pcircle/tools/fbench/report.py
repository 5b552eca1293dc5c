"""The report of a benchmark: tables with a column for each backend, JSON, and a chart."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial

import msgspec

from pcircle import __version__
from pcircle.circle import ProgressSums
from pcircle.cli import pictures
from pcircle.cli.listing import render
from pcircle.cli.output import MessageStream
from pcircle.cli.results import Results
from pcircle.core.errors import EntriesFailed, worst
from pcircle.core.units import format_duration, format_size
from pcircle.runtime import Observer, Outcome
from pcircle.tools.fbench.plan import TOGETHER, BenchFigure, BenchPlan, BenchResult, together

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

    def __init__(
        self, plan: BenchPlan, *, shown: str, quiet: bool, json: str | None, plot: str | None
    ) -> None:
        self._plan = plan
        self._shown = shown
        self._quiet = quiet
        self._json = json
        self._plot = plot
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
        if not self._quiet:
            for warning in measured.warnings:
                output.line(f"fbench: warning: {warning}")
        results = Results("fbench", self._json, output.line)
        if not self._quiet:
            results.text([describe(figures).encode()])
        results.document(self._document(code, figures, measured))
        if self._plot is not None:
            results.write(self._plot, partial(draw, figures, self._plot))
        return worst((code, results.code))

    def _document(
        self, code: int, figures: Sequence[BenchFigure], measured: BenchResult
    ) -> BenchReport:
        plan = self._plan
        return BenchReport(
            SCHEMA,
            __version__,
            code,
            self._shown,
            plan.clients,
            plan.threads,
            plan.files,
            plan.blocks,
            plan.block_bytes,
            [msgspec.structs.asdict(figure) for figure in figures],
            sorted(set(measured.trouble)),
            list(measured.warnings),
        )


def describe(figures: Sequence[BenchFigure]) -> str:
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


def draw(figures: Sequence[BenchFigure], path: str) -> None:
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
