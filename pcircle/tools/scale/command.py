"""The scaling simulator, which interprets the options and prints the predicted figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec

from pcircle.circle import EngineSettings
from pcircle.cli import json_output as jsonout
from pcircle.cli.listing import render
from pcircle.cli.output import MessageStream
from pcircle.cli.results import Results
from pcircle.core.errors import UsageError
from pcircle.core.units import format_count, format_duration, format_size
from pcircle.simulation.job import Figures, SimulatedTask, play
from pcircle.simulation.work_model import Machine
from pcircle.tools.scale.options import ScaleOptions

_HEADER = (
    "ranks",
    "time",
    "entries/s",
    "speed-up",
    "efficiency",
    "of ideal",
    "messages/entry",
    "traffic",
    "inbox",
    "end",
)


def table(task: SimulatedTask, jobs: Sequence[Figures]) -> str:
    """Return a line that describes the task, and a table with a row for each number of ranks."""
    first = jobs[0]
    summary = f"{format_count(first.entries)} entries in {format_count(first.items)} items"
    work, span = format_duration(first.work_s), format_duration(first.span_s)
    lines = f"{task.shape}: {summary}; work {work}, longest path {span}\n\n"
    return lines + render([_row(job) for job in jobs], align="r" * len(_HEADER), header=_HEADER)


def _row(job: Figures) -> tuple[str, ...]:
    return (
        f"{job.ranks:,}",
        format_duration(job.time_s),
        f"{job.entries / job.time_s:,.0f}",
        f"{job.work_s / job.time_s:,.1f}",
        f"{100 * job.efficiency:.1f}%",
        f"{100 * job.of_ideal:.1f}%",
        f"{job.messages_per_entry:.2g}",
        format_size(job.bytes),
        f"{job.max_inbox:,}",
        f"{1000 * job.stop_s:.1f} ms",
    )


MAX_ITEMS = 20_000_000
_ITEMS_PER_RANK = 100


class ScaleDocument(msgspec.Struct, frozen=True):
    """The JSON document of a simulation."""

    schema: int
    task: SimulatedTask
    machine: Machine
    settings: EngineSettings
    seed: int
    jobs: list[Figures]


def scale_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return its exit code; raise UsageError if it is invalid."""
    if args.operands:
        raise UsageError(f"extra operand '{args.operands[0]}'")
    options = ScaleOptions.of(args)
    task = _task(options)
    machine = Machine(**options.planned(Machine))
    settings, seed = options.settings, options.seed
    if options.json is not None:
        jsonout.check(options.json)
    tree = task.tree(seed)
    jobs = [play(task, count, machine, settings, seed, tree) for count in options.ranks]
    results = Results("pcircle scale", options.json, MessageStream(sys.stderr).line)
    results.document(ScaleDocument(1, task, machine, settings, seed, jobs))
    if options.json != "-":
        results.text([table(task, jobs).encode()])
    return results.code


def _task(options: ScaleOptions) -> SimulatedTask:
    shape, batch, times = options.shape, options.batch, options.times
    if shape != "files":
        items = options.items or _ITEMS_PER_RANK * max(options.ranks)
        _refuse_many(items, "lower --items or --ranks")
        return SimulatedTask(shape, 0, 0, batch, 0.0, items, options.item_s, times)
    entries = options.entries
    directories = options.directories or max(1, entries // 100)
    _refuse_many(directories + entries // batch, "lower --files and --dirs, or raise --batch")
    return SimulatedTask(shape, entries, directories, batch, options.entry_s, times=times)


def _refuse_many(items: int, advice: str) -> None:
    if items > MAX_ITEMS:
        raise UsageError(
            f"{items:,} items are too many to simulate (at most {MAX_ITEMS:,}): {advice}"
        )
