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
from pcircle.core.units import (
    format_count,
    format_duration,
    format_size,
    invalid,
    number,
    parse_number,
    positive,
)
from pcircle.simulation.job import Figures, SimulatedTask, play_tree
from pcircle.simulation.work_model import Machine

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


MAX_RANKS = 1 << 20
MAX_ITEMS = 20_000_000
_MAX_ENTRIES = 10**13
_LATENCY_US = {"ethernet": 40.0, "infiniband": 3.0}
_MAX_TIME = 1e9
_MAX_DIGITS = 2  # the maximum length of an exponent
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
    ranks = [_count("--ranks", count, MAX_RANKS) for count in args.ranks.split(",")]
    machine, settings = _machine(args), _settings(args.policies)
    task = _task(args, max(ranks))
    seed = _seed(args.seed)
    if args.json is not None:
        jsonout.check(args.json)
    tree = task.tree(seed)
    jobs = [play_tree(tree, task, count, machine, settings, seed) for count in ranks]
    results = Results("pcircle.scale", args.json, MessageStream(sys.stderr).line)
    results.document(ScaleDocument(1, task, machine, settings, seed, jobs))
    if args.json != "-":
        results.text([table(task, jobs).encode()])
    return results.code


def _task(args: argparse.Namespace, ranks: int) -> SimulatedTask:
    item_options = {"--items": args.items, "--item-ms": args.item_ms}
    file_options = {"--files": args.files, "--dirs": args.dirs}
    is_files = args.shape == "files"
    for option, value in (item_options if is_files else file_options).items():
        if value is not None:
            raise UsageError(f"{option} cannot be combined with --shape {args.shape}")
    batch = _count("--batch", args.batch, 10**6)
    if not is_files:
        items = _ITEMS_PER_RANK * ranks
        if args.items is not None:
            items = _count("--items", args.items, _MAX_ENTRIES)
        _refuse_many(items, "lower --items or --ranks")
        item_ms = "100" if args.item_ms is None else args.item_ms
        item_s = _time("--item-ms", item_ms, 1e-3)
        return SimulatedTask(args.shape, 0, 0, batch, 0.0, items, item_s, args.times)
    entries = _count("--files", "1e6" if args.files is None else args.files, _MAX_ENTRIES)
    directories = max(1, entries // 100)
    if args.dirs is not None:
        directories = _count("--dirs", args.dirs, _MAX_ENTRIES)
    _refuse_many(directories + entries // batch, "lower --files and --dirs, or raise --batch")
    entry_s = _time("--stat-us", args.stat_us, 1e-6)
    return SimulatedTask(args.shape, entries, directories, batch, entry_s, times=args.times)


def _refuse_many(items: int, advice: str) -> None:
    if items > MAX_ITEMS:
        raise UsageError(
            f"{items:,} items are too many to simulate (at most {MAX_ITEMS:,}): {advice}"
        )


def _machine(args: argparse.Namespace) -> Machine:
    far_us = str(_LATENCY_US[args.network]) if args.latency_us is None else args.latency_us
    return Machine(
        ranks_per_node=_count("--ranks-per-node", args.ranks_per_node, MAX_RANKS),
        far_s=_time("--latency-us", far_us, 1e-6),
        message_s=_time("--message-us", args.message_us, 1e-6),
        look_s=_time("--look-ms", args.look_ms, 1e-3, allow_zero=True),
    )


def _settings(policies: str) -> EngineSettings:
    if not policies:
        return EngineSettings()
    from pcircle.runtime.policies import with_policies

    settings = with_policies(EngineSettings(), policies, "--policies")
    if settings.termination != "counters":
        raise UsageError("--policies: the simulator detects the end by waves only")
    return settings


def _seed(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise invalid("--seed", text, "must be a whole number")
    return int(text)


def _count(option: str, text: str, max_count: int) -> int:
    """Parse an integer from 1 to `max_count`, which may be written as 1e9."""
    mantissa, separator, exponent = text.lower().partition("e")
    digits = mantissa.replace(".", "", 1)
    if not (
        separator and digits.isdecimal() and exponent.isdecimal() and len(exponent) <= _MAX_DIGITS
    ):
        return positive(option, text, max_count)
    value = float(text)
    if value < 1 or value != value // 1:
        raise invalid(option, text, "must be a positive integer")
    if value > max_count:
        raise invalid(option, text, f"must be at most {max_count:,}")
    return int(value)


def _time(option: str, text: str, unit_s: float, *, allow_zero: bool = False) -> float:
    value = number(option, text, parse_number)
    if not (0 < value <= _MAX_TIME or (allow_zero and value == 0)):
        raise invalid(
            option, text, "must not be negative" if allow_zero else "must be greater than 0"
        )
    return value * unit_s
