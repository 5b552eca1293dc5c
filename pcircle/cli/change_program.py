"""The programs of tools that change or remove entries: their options and reports.

These options select the actions: none (`--dry-run`, `--plan`), those of a plan (`--apply`), or none
if too many entries would be removed (`--max-delete`). Other options control the records of actions
(`-v`, `--json-lines`, `--list-out`), the rate (`--ops-limit`) and the duration (`--stop-after`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from pcircle.cli.program import TreeConsole, TreeProgram
from pcircle.cli.results import list_end, open_output
from pcircle.core.encoding import show
from pcircle.core.errors import Interrupted, StoppedEarly, Terminated, UsageError, worst
from pcircle.core.units import MAX_DIGITS, invalid, is_whole, plural
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.change_task import MaxDelete
from pcircle.jobs.failures import LogFile
from pcircle.jobs.plan_file import LoadedPlan, head, read_plan, tail
from pcircle.runtime import Outcome
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.cli.options import CommonOptions
    from pcircle.fs.lists import Lists
    from pcircle.runtime.task import TimeLimit

_INTERRUPTED = (Interrupted.exit_code, Terminated.exit_code)


class ChangeConsole(TreeConsole):
    """The console of a tool that changes entries."""

    has_bytes = False

    def remarks(self, total: Any, code: int) -> Iterable[str]:
        left = total.found - total.settled
        if left > 0 and code in (StoppedEarly.exit_code, *_INTERRUPTED):
            yield f"at least {plural(left, 'entry is', 'entries are')} left"

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        """Finish the output; only a complete plan receives its last line."""
        if not outcome.code:
            total: Any = self.counters_type.total(outcome.counts)
            outcome = self.with_plan_ended(outcome, total.found + total.left_out)
        return super().end(outcome)

    def with_plan_ended(
        self, outcome: Outcome[dict[int, int]], found: int
    ) -> Outcome[dict[int, int]]:
        """Add the last line of the plan, with the number of entries found; return the outcome."""
        reason = self.end_plan(tail(self.planned, found))
        if not reason:
            return outcome
        code = worst((outcome.code, StoppedEarly.exit_code))
        return msgspec.structs.replace(outcome, code=code, reasons=(*outcome.reasons, reason))


class ChangeProgram(TreeProgram):
    """The program of a tool that changes entries. `said` is the word that `-v` prints."""

    said = "changed"

    def __init__(self, options: CommonOptions, paths: Sequence[bytes], **more: Any) -> None:
        self.applied: LoadedPlan | None = None
        if options.apply is not None:
            refuse_with_apply(options, paths)
            paths = [b"."]  # the plan contains the paths
        super().__init__(options, paths, **more)
        self.limit: TimeLimit | None = options.time_limit()
        self._written: tuple[int, int] | None = None
        written = (options.list_out, options.json_lines, options.error_log, options.plan)
        named = [name for name in (*written, options.files_from, options.apply) if name is not None]
        for name in written:
            if name is not None and named.count(name) > 1:
                raise UsageError(f"'{show(os.fsencode(name))}' is used by two options")

    def read_plan(self) -> LoadedPlan:
        """Read the plan that will be carried out. Raises UsageError."""
        self.applied = read_plan(self.options.apply or "", self.name)
        return self.applied

    @property
    def known_paths(self) -> Sequence[bytes]:
        return () if self.options.apply is not None else super().known_paths

    def can_lose_ranks(self) -> bool:
        return self.options.dry or self.options.plan is not None

    def directory(self) -> bytes:
        return super().directory() if self.applied is None else self.applied.directory

    def listing(self, roots: tuple[Root, ...]) -> Lists | None:
        return super().listing(roots) if self.applied is None else self.applied.lists

    @property
    def lists_whole(self) -> bool | None:
        """Without -r, a slash after a directory does not include its contents."""
        return True if self.options.recursive else None

    @property
    def lists_strictly(self) -> bool:
        """Like rm and chmod, reject a slash after the name of a file."""
        return True

    @property
    def lists_completely(self) -> bool:
        """Refuse truncated lists: a truncated name could be that of another entry."""
        return True

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options, applied = self.options, self.applied
        end = list_end(options, roots)
        plans = options.plan is not None
        dry = options.dry or plans
        said = "" if not options.verbose else f"would be {self.said}" if dry else self.said
        most = options.max_delete
        if applied is not None and most is not None:
            reason = most.exceeded(applied.tail.entries, applied.tail.found)
            if reason:
                raise StoppedEarly(reason)
        return {
            "dry": dry,
            "acts": ActionOutput(
                options.json_lines is not None, end, said, options.plan is not None
            ),
            "ranks": ranks,
            "max_delete": None if applied is not None else most,
            "applies": applied is not None,
            "marks": () if applied is None else applied.marks,
        }

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        options = self.options
        if options.json_lines is not None:
            self.actions: LogFile | None = LogFile(open_output(options.json_lines, "--json-lines"))
        if options.list_out is not None:
            self.listed: LogFile | None = LogFile(open_output(options.list_out, "--list-out"))
        if options.plan is not None:
            from pcircle.jobs.plan_output import PlanFile  # few runs have one

            self.planned: PlanFile | None = PlanFile(options.plan, "--plan", "plan")
            self.planned.append(head(self.name, roots, self.directory()))
            status = os.stat(os.fsencode(options.plan))
            self._written = status.st_dev, status.st_ino

    def opened(self) -> dict[str, Any]:
        return {"written": self._written}


def refuse_twice(option: str, roots: Sequence[Root]) -> None:
    """Raise UsageError if an entry lies below two roots: `option` would count it twice."""
    places = sorted(
        (os.path.join(os.path.realpath(root.holder), root.name or root.within, b""), root.shown)
        for root in roots
    )
    # In sorted order, the paths below a root follow it directly.
    for (outer, above), (inner, below) in pairwise(places):
        if inner == outer:
            raise UsageError(f"{option}: '{show(below)}' is given twice")
        if inner.startswith(outer):
            text = f"{option}: '{show(below)}' is inside '{show(above)}' and would be counted twice"
            raise UsageError(text)


def refuse_with_apply(options: CommonOptions, paths: Sequence[bytes]) -> None:
    """Raise UsageError for operands and options that `--apply` does not accept."""
    if paths:
        raise UsageError(f"--apply takes no PATH: extra operand '{show(paths[0])}'")
    if options.has_filters or options.files_from is not None or options.plan is not None:
        raise UsageError("--apply cannot be combined with filters or --plan")
    if options.strict_operands:
        raise UsageError("--strict-operands cannot be combined with --apply")


def max_delete_of(option: str, text: str) -> MaxDelete:
    """Parse a limit on removals. Raises UsageError."""
    is_share = text.endswith("%")
    digits, dot, more = text.removesuffix("%").partition(".")
    is_right = all(map(_is_digits, [digits, more] if dot else [digits])) and (is_share or not dot)
    most = float(f"{digits}.{more or 0}") if is_right else -1
    if not 0 <= most <= (100 if is_share else math.inf):
        raise invalid(option, text, "must be a number of entries or a percentage")
    return MaxDelete(text, most, is_share)


def _is_digits(text: str) -> bool:
    return is_whole(text) and len(text) <= MAX_DIGITS
