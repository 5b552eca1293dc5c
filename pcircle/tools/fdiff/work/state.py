"""The state of a comparison task that its visitors use."""

from __future__ import annotations

from typing import ClassVar

from pcircle.fs.directories import Directories
from pcircle.fs.stats import Stats
from pcircle.jobs.tree_task import TreeTask
from pcircle.tools.fdiff.plan import DiffCounters, DiffPlan
from pcircle.tools.fdiff.reporter import DiffReporter


class ComparisonTask(TreeTask):
    """The state of one rank or thread in a comparison, excluding the walk.

    `stats` are the status tables of both sides, and `targets` are the open directories of B.
    """

    counters_type: ClassVar[type[DiffCounters]] = DiffCounters
    plan: DiffPlan
    first: ComparisonTask | None
    stats: tuple[Stats, Stats]
    reporter: DiffReporter
    targets: Directories
