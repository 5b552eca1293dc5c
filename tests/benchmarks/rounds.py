"""Rounds: every tool once, in an order that rotates, the first round dropped.

Before a run, outside of its time, the last target is deleted and the file system flushed, so that
no tool pays for dirty data of the previous one. A row that fails in the warm-up is not tried again.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from . import datasets, measure
from .datasets import DataSet
from .measure import Cost
from .tools import Row


class Plan(NamedTuple):
    """The options of runs: `folder` for the targets, seconds, and the trailing sync."""

    folder: str
    runs: int
    timeout_s: float
    sync: bool


class Trial(NamedTuple):
    """One run: its cost, and an error in its result (None: the copy is correct)."""

    round: int
    cost: Cost
    fault: str | None


class Result(NamedTuple):
    """All counted runs of one row on one data set."""

    row: Row
    trials: tuple[Trial, ...]
    ratios: tuple[float, ...]

    @property
    def good(self) -> list[Cost]:
        return [trial.cost for trial in self.trials if trial.fault is None]

    @property
    def fault(self) -> str | None:
        return next((trial.fault for trial in self.trials if trial.fault), None)

    @property
    def median_ratio(self) -> float | None:
        return median(self.ratios) if self.ratios else None


def rotated(rows: Sequence[Row], by: int) -> list[Row]:
    """Return `rows` rotated to begin with the one at `by`."""
    start = by % len(rows)
    return [*rows[start:], *rows[:start]]


def _attempt(row: Row, data: DataSet, plan: Plan, env: dict[str, str], number: int) -> Trial:
    target = os.path.join(plan.folder, "copy")
    scratch = os.path.join(plan.folder, "scratch")
    log = os.path.join(plan.folder, "log")
    os.makedirs(scratch)
    flush = ["sync", "-f", plan.folder]
    subprocess.run(flush, check=True)
    try:
        cost = measure.run(row.command(data.tree, target, scratch), env, log, plan.timeout_s)
        words = measure.last_words(log)
        if plan.sync:
            cost = cost.plus(measure.run(flush, env, log, plan.timeout_s))
        if cost.timed_out:
            fault: str | None = f"killed after {plan.timeout_s:g} s"
        elif cost.exit_code:
            fault = f"exit {cost.exit_code}: {words}"
        else:
            fault = datasets.fault(data, target)
    finally:
        # The whole folder: a tool may leave files next to its target, too.
        datasets.remove(plan.folder)
        os.mkdir(plan.folder)
    return Trial(number, cost, fault)


def _ratios(trials: Sequence[Trial], reference: Sequence[Trial]) -> tuple[float, ...]:
    """Return the wall times relative to the reference, round by round, where both are correct."""
    base = {trial.round: trial.cost.wall_s for trial in reference if trial.fault is None}
    return tuple(
        trial.cost.wall_s / base[trial.round]
        for trial in trials
        if trial.fault is None and trial.round in base
    )


def compare(
    rows: Sequence[Row],
    data: DataSet,
    plan: Plan,
    env: dict[str, str],
    reference: str,
    report_line: Callable[[str], None],
) -> list[Result]:
    """Run all `rows` on `data`: a warm-up and `plan.runs` rounds; `report_line` gets each line."""
    trials: dict[str, list[Trial]] = {row.label: [] for row in rows}
    out: set[str] = set()
    for number in range(plan.runs + 1):
        for row in rotated(rows, number):
            if row.label in out:
                continue
            began = time.perf_counter()
            trial = _attempt(row, data, plan, env, number)
            report_line(
                f"{data.name} round {number}/{plan.runs}{'' if number else ' (warm-up)'} "
                f"{row.label}: {trial.cost.wall_s:.3f} s {trial.fault or 'ok'} "
                f"(with checks and deletion {time.perf_counter() - began:.1f} s)"
            )
            if number:
                trials[row.label].append(trial)
            elif trial.fault:
                out.add(row.label)
                trials[row.label].append(trial)
    base = trials.get(reference, [])
    return [Result(row, tuple(trials[row.label]), _ratios(trials[row.label], base)) for row in rows]
