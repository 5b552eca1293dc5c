"""Tasks, the loop that runs them on each rank, and the functions that start a job."""

from __future__ import annotations

from pcircle.runtime.job import Program, Result, run, run_program
from pcircle.runtime.task import Context, Observer, Outcome, RankReport, Task, TimeLimit
from pcircle.runtime.worker_channel import PartedTask
from pcircle.threads.thread_tuning import Work

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
