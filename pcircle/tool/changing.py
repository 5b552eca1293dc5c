"""Tools that change or remove what they find: what they are all asked, beside what a walk is.

Whether anything is done at all (`--dry-run`), how each action is reported (`-v`, `--json-lines`,
`--list-out`), how fast (`--ops-limit`) and how long (`--stop-after`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any

from pcircle.errors import UsageError
from pcircle.tool.actions import Actions, Lines, Wanted
from pcircle.tool.failures import Failure
from pcircle.tool.times import limit_of, stop_of
from pcircle.tool.trees import TreePlan, TreeTask
from pcircle.tool.treetool import TreeConsole, TreeProgram
from pcircle.ui.errorlog import LogFile, open_log
from pcircle.ui.values import invalid, number, parse_number
from pcircle.walk.roots import Root
from pcircle.workers.throttle import Throttle

_BURST_S = 0.1


class ChangePlan(TreePlan, frozen=True, kw_only=True):
    """With `dry` nothing is done. `acts` is how actions are reported.

    The `ranks` have equal shares of `operations_per_s`.
    """

    dry: bool = False
    acts: Wanted = Wanted()
    ranks: int = 1
    operations_per_s: float | None = None


class ChangeTask(TreeTask):
    """A rank's part, or a thread's. `acts` reports actions, if that is wanted."""

    notice_type = Failure | Lines
    plan: ChangePlan
    acts: Actions | None = None
    tool: str

    def begin(self) -> None:
        """See `TreeTask`."""
        plan = self.plan
        first = self.first
        if plan.acts.any:
            earlier = None if first is None else first.acts
            shown = tuple(root.shown for root in plan.roots)
            self.acts = Actions(
                self.tool, plan.acts, self.rank, earlier, planned=plan.dry, shown=shown
            )
        self._throttle: Throttle | None = None
        if plan.operations_per_s is not None and not plan.dry:
            self._throttle = (
                Throttle(plan.operations_per_s / plan.ranks, _BURST_S)
                if first is None
                else first._throttle
            )

    def due(self, count: int, stop: Callable[[], bool]) -> None:
        """Wait until so many operations may be done."""
        if self._throttle is not None:
            self._throttle.take(count, stop)


class ChangeConsole(TreeConsole):
    """As `TreeConsole`; `-v` lists the actions, and statistics take one more."""

    def __init__(self, program: TreeProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self.verbose = max(0, self.verbose - 1)


class ChangeProgram(TreeProgram):
    """A tool that changes what it finds, for the runtime."""

    def __init__(self, typed: argparse.Namespace, paths: Sequence[bytes], **more: Any) -> None:
        super().__init__(typed, paths, **more)
        self.typed = typed
        self.limit = limit_of(stop_of(typed.stop_after, typed.stop_at))
        self._rate = _rate(typed.ops_limit)
        others = (typed.json_lines, typed.files_from, typed.error_log)
        if typed.list_out is not None and typed.list_out in others:
            raise UsageError(f"--list-out: '{typed.list_out}' is used by another option")

    said = "changed"
    """The word before an entry's path, with `-v`."""

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        """See `TreeProgram`."""
        typed = self.typed
        end = b""
        if typed.list_out is not None:
            if len(roots) != 1 or roots[0].name:
                raise UsageError("--list-out requires one PATH, a directory")
            end = b"\0" if typed.null else b"\n"
        said = "" if not typed.verbose else f"would be {self.said}" if typed.dry_run else self.said
        wanted = Wanted(typed.json_lines is not None, end, said)
        return {
            "dry": typed.dry_run,
            "acts": wanted,
            "ranks": ranks,
            "operations_per_s": self._rate,
        }

    def begin(self) -> None:
        """See `TreeProgram`."""
        super().begin()
        typed = self.typed
        if typed.json_lines is not None:
            self.actions = LogFile(open_log(typed.json_lines, "--json-lines"))
        if typed.list_out is not None:
            self.listed = LogFile(open_log(typed.list_out, "--list-out"))


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    rate = number("--ops-limit", text, parse_number)
    if not 0 < rate < math.inf:
        raise invalid("--ops-limit", text, "rate must be positive and finite")
    return rate
