"""Running tasks: the loop between engine, transport and workers, and the library's front door."""

from __future__ import annotations

from pcircle.runtime.job import Program, Result, run, run_program
from pcircle.runtime.limit import TimeLimit
from pcircle.runtime.parted import PartedTask
from pcircle.runtime.task import Context, Observer, Outcome, RankReport, Task, Work

__all__ = [
    "Context",
    "Observer",
    "Outcome",
    "PartedTask",
    "Program",
    "RankReport",
    "Result",
    "Task",
    "TimeLimit",
    "Work",
    "run",
    "run_program",
]
