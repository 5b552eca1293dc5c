"""Formats the results as a table."""

from __future__ import annotations

from collections.abc import Sequence

from pcircle.cli.table import render
from pcircle.core.units import format_count, format_duration, format_size
from pcircle.simulation.job import Figures, Task

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


def table(task: Task, jobs: Sequence[Figures]) -> str:
    """Return a line that describes the task, and a row for each number of ranks."""
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
