"""Programs of tools that change or remove entries: their options and reports.

The options select whether entries are changed at all (`--dry-run`, `--plan`), by an earlier plan
(`--apply`), or not at all if there are too many (`--max-delete`); how actions are reported (`-v`,
`--json-lines`, `--list-out`), how fast (`--ops-limit`) and how long (`--stop-after`) the job runs.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.filters import attributes_of
from pcircle.cli.options import rate_of
from pcircle.cli.report import plural
from pcircle.cli.results import list_end, open_output
from pcircle.cli.times import limit_of, stop_of
from pcircle.cli.tree_program import TreeConsole, TreeProgram
from pcircle.core.errors import Interrupted, StoppedEarly, Terminated, UsageError, worst
from pcircle.core.guards import require
from pcircle.core.names import show
from pcircle.core.values import invalid
from pcircle.fs.directories import device_and_inode, inode_alone
from pcircle.jobs.action_log import Actions, Lines, Wanted
from pcircle.jobs.error_log import LogFile
from pcircle.jobs.failures import Failure
from pcircle.jobs.plan_file import Planned, head, read_plan, tail
from pcircle.jobs.tree_task import Phase, TreeCounters, TreePlan, TreeTask
from pcircle.runtime import Context, Outcome, PartedTask
from pcircle.threads.throttle import BURST_S, Throttle
from pcircle.walk.attributes import ANY
from pcircle.walk.items import Accesses, Batch, Portion, Tree
from pcircle.walk.roots import Root
from pcircle.walk.walker import Walker

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.jobs.access_times import AccessTimes

_INTERRUPTED = (Interrupted.exit_code, Terminated.exit_code)
_REMOVED, _FOUND = -1, -2  # counts among the results of items, by slot
_MAX_DIGITS = 30


class MaxDelete(msgspec.Struct, frozen=True, array_like=True):
    """The largest number of entries to remove, or their largest percentage of all entries."""

    text: str
    number: float
    is_share: bool

    def exceeded(self, removed: int, found: int) -> str:
        """Return the reason if `removed` of `found` entries are too many, else an empty text."""
        if removed <= (found * self.number / 100 if self.is_share else self.number):
            return ""
        of = f" of {found:,}" if self.is_share else ""
        entries = plural(removed, "entry", "entries")
        return f"--max-delete {self.text}: {entries}{of} would be removed; nothing was"


class ChangePlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a job that changes entries.

    With `dry` no entry is changed, and with `acts.plan` the changes are written to a plan. `acts`
    is the requested output. All `ranks` have equal shares of `operations_per_s`. With `applies` a
    plan is carried out, and `marks` has the marks of its roots that are not directories. `written`
    has device and inode of the plan that is written, which the job must not change.
    """

    dry: bool = False
    acts: Wanted = Wanted()
    ranks: int = 1
    operations_per_s: float | None = None
    max_delete: MaxDelete | None = None
    applies: bool = False
    marks: tuple[bytes, ...] = ()
    written: tuple[int, int] | None = None


class ChangeCounters(TreeCounters):
    """Counts of entries that remain unchanged: excluded by filters, or `kept` for other reasons."""

    left_out: int
    kept: int


class ChangeTask(TreeTask, PartedTask[Tree | Batch | Portion | Phase | Accesses, dict[int, int]]):
    """The part of one rank, or of one thread. `acts` records actions, if requested.

    With `max_delete` the job walks twice: the first walk has a visitor that only counts, and
    counters of its own. Its roots are numbered after the roots of the second walk.
    """

    notice_type = Failure | Lines
    counters_type = ChangeCounters
    plan: ChangePlan
    actions_type: ClassVar[type[Actions]] = Actions
    acts: Actions | None = None
    tool: str

    def begin(self) -> None:
        plan, first = self.plan, self.first
        if plan.acts.any:
            earlier = None if first is None else first.acts
            shown = tuple(root.shown for root in plan.roots)
            self.acts = self.actions_type(
                self.tool, plan.acts, self.rank, earlier, planned=plan.dry, shown=shown
            )
        self._throttle: Throttle | None = None
        if plan.operations_per_s is not None and not plan.dry:
            rate = plan.operations_per_s / plan.ranks
            self._throttle = Throttle(rate, BURST_S) if first is None else first._throttle
        self._counting: Walker[int] | None = None
        self.access_times: AccessTimes | None = None
        if first is not None:
            self.access_times = first.access_times
        elif self.walks_twice and self.tests_access_times:
            from pcircle.jobs.access_times import AccessTimes  # few runs need them

            identify = device_and_inode if plan.one_node else inode_alone
            self.access_times = AccessTimes(identify)

    def due(self, count: int, stop: Callable[[], bool]) -> None:
        """Wait until `count` operations are permitted."""
        if self._throttle is not None:
            self._throttle.take(count, stop)

    def removed(self, counters: Any) -> int:
        """Return the number of entries to remove, by the counters of the first walk."""
        return int(counters.completed)

    # ---- counting first --------------------------------------------------------

    @property
    def walks_twice(self) -> bool:
        """Return whether a first walk counts, which must not affect times that filters use."""
        return self.plan.max_delete is not None

    @property
    def tests_access_times(self) -> bool:
        """Return whether filters use access times."""
        wanted = self.plan.wanted
        is_by_time = wanted.newer is not None or wanted.older is not None
        return wanted.by_time == "atime" and is_by_time

    def as_counted(self, status: os.stat_result) -> os.stat_result:
        """Return a status with the access time that it had before all was counted."""
        return status if self.access_times is None else self.access_times.restored(status)

    @property
    def reached(self) -> tuple[Root, ...]:
        """Return the roots of all walks."""
        return self.plan.roots * (1 + self.walks_twice)

    def seed(self) -> Iterable[Any]:
        return super().seed() if self.plan.max_delete is None else [Phase()]

    def walker_of(self, item: Tree | Batch | Portion) -> Walker[int]:
        if item.root < len(self.plan.roots):
            return self._walker
        if self._counting is None:
            self._counted: Any = self.counters_type()
            self._told = 0, 0
            self._counting = self.walker(self.visitor_type(self, self._counted))
        return self._counting

    def process(self, item: Any, context: Context[Any]) -> Any:
        if isinstance(item, Accesses):
            require(self.access_times).receive(item)
            return {}
        if isinstance(item, Phase):
            shift, change = len(self.plan.roots), msgspec.structs.replace
            begun = self.begun(self.counters_type())
            context.spawn([change(each, root=each.root + shift) for each in begun])
            return {_FOUND: shift}
        if self.access_times is not None and item.root < len(self.plan.roots):
            self.access_times.complete()
        own = super().process(item, context)
        self._send_access_times(item, context)
        return self._with_counts(own)

    def _send_access_times(self, item: Any, context: Context[Any]) -> None:
        """Send an item's new access times to all other ranks; the first walk waits for this."""
        if self.access_times is None or item.root < len(self.plan.roots):
            return
        accesses = self.access_times.take_new()
        if accesses is not None:
            for rank in range(self.plan.ranks):
                if rank != self.rank:
                    context.post(rank, [accesses])

    def join(self, item: Any, own: Any, merged: Any, context: Context[Any]) -> Any:
        if isinstance(item, Phase):
            return self._enough(own, merged, context)
        slots = {slot: part for slot, part in merged.items() if slot >= 0}
        counts = {slot: part for slot, part in merged.items() if slot < 0}
        if isinstance(own, list) and own[0].own is not None:
            counts = self.merge(counts, own[0].own)
        joined = self._with_counts(super().join(item, own, slots, context))
        self._send_access_times(item, context)  # then it is joined again
        return self.merge(joined, counts)

    def _enough(self, own: Any, merged: Any, context: Context[Any]) -> Any:
        """End a walk; after the first walk begin the second. StoppedEarly."""
        if own is None:
            return merged
        counted = self.merge(own, merged)
        most = require(self.plan.max_delete)
        reason = most.exceeded(counted.get(_REMOVED, 0), counted[_FOUND])
        if reason:
            raise StoppedEarly(reason)
        context.spawn(list(self.begun(self.counters)))
        return None

    def _with_counts(self, own: Any) -> Any:
        """Add the counts of the first walk to an item's result, or to the state of its join."""
        if self._counting is None or own is None:
            return own
        now = self.removed(self._counted), self._counted.found + self._counted.left_out
        removed, found = now[0] - self._told[0], now[1] - self._told[1]
        self._told = now
        counts = {_REMOVED: removed, _FOUND: found}
        if isinstance(own, list):
            own[0].own = counts
            return own
        return self.merge(own, counts) if removed or found else own


class ChangeConsole(TreeConsole):
    """A `TreeConsole` whose `-v` lists the actions; statistics need one more `-v`."""

    def __init__(self, program: TreeProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self.verbose = max(0, self.verbose - 1)

    has_bytes = False

    def remarks(self, total: Any, code: int) -> Iterable[str]:
        left = total.found - total.settled
        if left > 0 and code in (StoppedEarly.exit_code, *_INTERRUPTED):
            yield f"at least {plural(left, 'entry is', 'entries are')} left"

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        """End the console; only a complete plan gets its last line."""
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
    """The program of a tool that changes entries. `said` is the word for an action with `-v`."""

    said = "changed"

    def __init__(self, typed: argparse.Namespace, paths: Sequence[bytes], **more: Any) -> None:
        self.applied: Planned | None = None
        if typed.apply is not None:
            refuse_with_apply(typed, paths)
            paths = [b"."]  # the plan has the paths
        super().__init__(typed, paths, **more)
        self.typed = typed
        self.limit = limit_of(stop_of(typed.stop_after, typed.stop_at))
        self._rate = rate_of(typed.ops_limit)
        self._written: tuple[int, int] | None = None
        self._max_delete = _max_delete(typed.max_delete)
        written = (typed.list_out, typed.json_lines, typed.error_log, typed.plan)
        named = [name for name in (*written, typed.files_from, typed.apply) if name is not None]
        for name in written:
            if name is not None and named.count(name) > 1:
                raise UsageError(f"'{show(os.fsencode(name))}' is used by two options")
        if typed.plan is not None and typed.max_delete is not None:
            raise UsageError("--max-delete cannot be combined with --plan; add it to --apply")

    def read_plan(self) -> Planned:
        """Read the plan that will be carried out. UsageError."""
        self.applied = read_plan(self.typed.apply, self.name)
        return self.applied

    def outlives(self) -> bool:
        return bool(self.typed.dry_run or self.typed.plan is not None)

    def directory(self) -> bytes:
        return super().directory() if self.applied is None else self.applied.directory

    def listing(self, roots: tuple[Root, ...]) -> Lists | None:
        return super().listing(roots) if self.applied is None else self.applied.lists

    @property
    def lists_whole(self) -> bool | None:
        """Without -r, a slash after a directory does not include its contents."""
        return True if self.typed.recursive else None

    @property
    def lists_strictly(self) -> bool:
        """As for rm and chmod, a slash after the name of a file is an error."""
        return True

    @property
    def lists_completely(self) -> bool:
        """The beginning of a name would name another entry, which must not change."""
        return True

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        typed, applied = self.typed, self.applied
        end = list_end(typed, roots)
        dry = typed.dry_run or typed.plan is not None
        said = "" if not typed.verbose else f"would be {self.said}" if dry else self.said
        most = self._max_delete
        if applied is not None and most is not None:
            reason = most.exceeded(applied.tail.entries, applied.tail.found)
            if reason:
                raise StoppedEarly(reason)
        return {
            "dry": dry,
            "acts": Wanted(typed.json_lines is not None, end, said, typed.plan is not None),
            "ranks": ranks,
            "operations_per_s": self._rate,
            "max_delete": None if applied is not None else most,
            "applies": applied is not None,
            "marks": () if applied is None else applied.marks,
        }

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        typed = self.typed
        if typed.json_lines is not None:
            self.actions = LogFile(open_output(typed.json_lines, "--json-lines"))
        if typed.list_out is not None:
            self.listed = LogFile(open_output(typed.list_out, "--list-out"))
        if typed.plan is not None:
            from pcircle.jobs.plan_output import PlanFile  # few runs have one

            self.planned = PlanFile(typed.plan, "--plan", "plan")
            self.planned.append(head(self.name, roots, self.directory()))
            status = os.stat(os.fsencode(typed.plan))
            self._written = status.st_dev, status.st_ino

    def opened(self) -> dict[str, Any]:
        return {"written": self._written}


def refuse_twice(option: str, roots: Sequence[Root]) -> None:
    """Raise UsageError if an entry lies below two roots: `option` would count it twice."""
    places = sorted(
        (os.path.join(os.path.realpath(root.holder), root.name or root.within, b""), root.shown)
        for root in roots
    )
    # Paths that begin with a place follow it directly.
    for (outer, above), (inner, below) in pairwise(places):
        if inner == outer:
            raise UsageError(f"{option}: '{show(below)}' is given twice")
        if inner.startswith(outer):
            text = f"{option}: '{show(below)}' is in '{show(above)}', and would be counted twice"
            raise UsageError(text)


def refuse_with_apply(typed: argparse.Namespace, paths: Sequence[bytes]) -> None:
    """Raise UsageError for options that only affect the making of a plan."""
    if paths:
        raise UsageError(f"--apply takes no PATH: extra operand '{show(paths[0])}'")
    chosen = typed.filters or typed.files_from is not None or attributes_of(typed) != ANY
    if chosen or typed.plan is not None:
        raise UsageError("--apply cannot be combined with filters or --plan")
    if typed.strict_operands:
        raise UsageError("--strict-operands cannot be combined with --apply")


def _max_delete(text: str | None) -> MaxDelete | None:
    if text is None:
        return None
    is_share = text.endswith("%")
    digits, dot, more = text.removesuffix("%").partition(".")
    is_right = all(map(_is_digits, [digits, more] if dot else [digits])) and (is_share or not dot)
    most = float(f"{digits}.{more or 0}") if is_right else -1
    if not 0 <= most <= (100 if is_share else math.inf):
        raise invalid("--max-delete", text, "must be a number of entries, or a percentage")
    return MaxDelete(text, most, is_share)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
