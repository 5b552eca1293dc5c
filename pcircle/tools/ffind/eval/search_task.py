"""The part of a search task that evaluates entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from pcircle.fs.stats import Stats
from pcircle.jobs.change_task import ChangeTask
from pcircle.jobs.tree_task import TreeItem
from pcircle.runtime import Context
from pcircle.tools.ffind.eval.actions import FindActions
from pcircle.tools.ffind.eval.checks import EvaluationContext
from pcircle.tools.ffind.eval.commands import Commands
from pcircle.tools.ffind.eval.compiler import reads_links, tests_access_time
from pcircle.tools.ffind.eval.entry import Status
from pcircle.tools.ffind.eval.output import FindOutput
from pcircle.tools.ffind.language.nodes import ExpressionNode
from pcircle.tools.ffind.plan import FindPlan


class SearchHalt(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """Skip the remaining work, because the search has ended early."""


class Prefetch(Protocol):
    """Looks up names before they are evaluated, as `StatPrefetch` does."""

    @property
    def is_known(self) -> bool: ...
    def look(self, directory_fd: int, names: Sequence[bytes], /) -> Sequence[Status | None]: ...
    def done(self, count: int, /) -> None: ...
    def close(self) -> None: ...


class SearchTask(ChangeTask):
    """The state of one rank or thread in a search, without the walk.

    `context` is that of the current item. `halted` and `sent_halt` are valid for the first thread
    of a rank: the search has ended on this rank, and the other ranks are notified.
    """

    plan: FindPlan
    first: SearchTask | None
    output: FindOutput
    commands: Commands
    actions: FindActions
    evaluation: EvaluationContext
    stats: Stats
    prefetch: Prefetch
    context: Context[TreeItem] | None
    halted: bool
    sent_halt: bool

    @property
    def rank_part(self) -> SearchTask:
        """Return the task of the rank's first thread."""
        return self if self.first is None else self.first

    @property
    def updates_directories(self) -> bool:
        """Return whether tests use access times of directories, which the walk updates."""
        return any(tests_access_time(node, "d") for node in self._expressions)

    @property
    def updates_links(self) -> bool:
        """Return whether tests use access times of links, which other tests may update."""
        expressions = self._expressions
        return any(tests_access_time(node, "l") for node in expressions) and any(
            map(reads_links, expressions)
        )

    @property
    def _expressions(self) -> list[ExpressionNode]:
        plan = self.plan
        return [plan.expression] if plan.exclude is None else [plan.expression, plan.exclude]

    def flush(self, *, all_: bool = False) -> None:
        """Send the pending output."""
        if self.context is not None:
            for notice in self.output.take(all_=all_):
                self.context.note([notice])

    def halt(self, context: Context[Any]) -> None:
        """Notify all other ranks if the search has ended on this rank."""
        first = self.rank_part
        if first.halted and not first.sent_halt:
            first.sent_halt = True
            for rank in range(self.plan.ranks):
                if rank != self.rank:
                    context.post(rank, [SearchHalt()])
