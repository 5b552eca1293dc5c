"""Jobs that change or remove the entries of trees.

A job may act at once, only plan (`dry`), or carry out an earlier plan (`applies`). If removals are
limited, it walks twice: the first walk only counts, and if the limit would be exceeded, nothing is
removed. The number of operations per second may also be limited.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from pcircle.core.errors import StoppedEarly
from pcircle.core.units import plural
from pcircle.fs.directories import device_and_inode, inode_alone
from pcircle.jobs.action_log import ActionLines, ActionLog, ActionOutput
from pcircle.jobs.failures import NOTHING_REMOVED, Failure
from pcircle.jobs.tree_task import (
    ItemState,
    TreeCounters,
    TreeItem,
    TreePlan,
    TreeTask,
    WalkPhase,
)
from pcircle.runtime import Context, PartedTask
from pcircle.threads.throttle import BURST_S, Throttle
from pcircle.walk.items import Accesses
from pcircle.walk.roots import Root
from pcircle.walk.walker import Walker

if TYPE_CHECKING:
    from pcircle.jobs.access_times import AccessTimes

_REMOVED, _FOUND = -1, -2  # the slots of counts among the results of items


class MaxDelete(msgspec.Struct, frozen=True, array_like=True):
    """The maximum number of entries to remove, or the maximum percentage of all entries."""

    text: str
    number: float
    is_share: bool

    def exceeded(self, removed: int, found: int) -> str:
        """Return the reason if `removed` of `found` entries are too many, or an empty string."""
        if removed <= (found * self.number / 100 if self.is_share else self.number):
            return ""
        of = f" of {found:,}" if self.is_share else ""
        entries = plural(removed, "entry", "entries")
        return f"--max-delete {self.text}: {entries}{of} {NOTHING_REMOVED}"


class ChangePlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a job that changes entries.

    With `dry`, no entry is changed; with `acts.plan`, the changes are written to a plan. `acts` is
    the requested output. The `ranks` have equal shares of `operations_per_s`. With `applies`, a
    plan is carried out, and `marks` contains the marks of its roots that are not directories.
    `written` is the device and inode of the plan file being written; the job must not change that
    file.
    """

    dry: bool = False
    acts: ActionOutput = ActionOutput()
    ranks: int = 1
    operations_per_s: float | None = None
    max_delete: MaxDelete | None = None
    applies: bool = False
    marks: tuple[bytes, ...] = ()
    written: tuple[int, int] | None = None


class ChangeCounters(TreeCounters):
    """Counts of unchanged entries: `left_out` by filters, or `kept` for other reasons."""

    left_out: int
    kept: int


ChangeItem: TypeAlias = TreeItem | WalkPhase | Accesses


class ChangeTask(TreeTask, PartedTask[ChangeItem, dict[int, int]]):  # pyright: ignore[reportGeneralTypeIssues]
    """A rank's task in a job that changes entries, or the part of one thread.

    `acts` records actions, if requested. If `max_delete` is set, the job walks twice. The first
    walk has a visitor that only counts, and separate counters; its roots are numbered after those
    of the second walk.
    """

    notice_type: ClassVar[Any] = Failure | ActionLines
    counters_type: ClassVar[type[ChangeCounters]] = ChangeCounters
    plan: ChangePlan
    first: ChangeTask | None
    actions_type: ClassVar[type[ActionLog]] = ActionLog
    action_log: ActionLog | None = None
    tool: str

    def begin(self) -> None:
        plan, first = self.plan, self.first
        if plan.acts.any:
            earlier = None if first is None else first.action_log
            shown = tuple(root.shown for root in plan.roots)
            self.action_log = self.actions_type(
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
            from pcircle.jobs.access_times import AccessTimes  # few runs need access times

            identify = device_and_inode if plan.one_node else inode_alone
            self.access_times = AccessTimes(identify)

    def due(self, count: int, stop: Callable[[], bool]) -> bool:
        """Wait until `count` operations are permitted, and return whether there is a limit."""
        if self._throttle is None:
            return False
        self._throttle.take(count, stop)
        return True

    def removed(self, counters: ChangeCounters) -> int:
        """Return the number of entries to remove, as counted by the first walk."""
        return int(counters.completed)

    # ---- counting first --------------------------------------------------------

    @property
    def walks_twice(self) -> bool:
        """Return whether a first walk only counts."""
        return self.plan.max_delete is not None

    @property
    def tests_access_times(self) -> bool:
        """Return whether filters use access times."""
        chosen = self.plan.attribute_filter
        is_by_time = chosen.newer_than is not None or chosen.older_than is not None
        return chosen.by_time == "atime" and is_by_time

    def with_original_atime(self, status: os.stat_result) -> os.stat_result:
        """Return a status with the access time from before the first walk."""
        return status if self.access_times is None else self.access_times.restored(status)

    @property
    def reached(self) -> tuple[Root, ...]:
        """Return the roots of all walks."""
        return self.plan.roots * (1 + self.walks_twice)

    def seed(self) -> Iterable[Any]:
        return super().seed() if self.plan.max_delete is None else [WalkPhase()]

    def walker_of(self, item: TreeItem) -> Walker[int]:
        if item.root < len(self.plan.roots):
            return self._walker
        if self._counting is None:
            self._counted = self.counters_type()
            self._reported_counts = 0, 0
            self._counting = self.walker(self.visitor_type(self, self._counted))
        return self._counting

    def process(self, item: Any, context: Context[Any]) -> Any:
        if self.access_times is not None and isinstance(item, Accesses):
            self.access_times.receive(item)
            return {}
        if isinstance(item, WalkPhase):
            shift, change = len(self.plan.roots), msgspec.structs.replace
            begun = self.begun(self.counters_type())
            context.spawn([change(root_item, root=root_item.root + shift) for root_item in begun])
            return {_FOUND: shift}
        if self.access_times is not None and item.root < len(self.plan.roots):
            self.access_times.complete()
        own = super().process(item, context)
        self._send_access_times(item, context)
        return self._with_counts(own)

    def _send_access_times(self, item: TreeItem, context: Context[Accesses]) -> None:
        """Send an item's new access times to all other ranks before the first walk ends."""
        if self.access_times is None or item.root < len(self.plan.roots):
            return
        accesses = self.access_times.take_new()
        if accesses is not None:
            for rank in range(self.plan.ranks):
                if rank != self.rank:
                    context.post(rank, [accesses])

    def join(self, item: Any, own: Any, merged: Any, context: Context[Any]) -> Any:
        if isinstance(item, WalkPhase):
            return self._end_walk(own, merged, context)
        slots = {slot: part for slot, part in merged.items() if slot >= 0}
        counts = {slot: part for slot, part in merged.items() if slot < 0}
        if isinstance(own, list) and own[0].own is not None:
            counts = self.merge(counts, own[0].own)
        joined = self.merge(super().join(item, own, slots, context), counts)
        if new_counts := self._take_new_counts():
            joined = self.merge(joined, new_counts)
        self._send_access_times(item, context)  # if this posts items, the item is joined again
        return joined

    def _end_walk(
        self, own: dict[int, int] | None, merged: dict[int, int], context: Context[TreeItem]
    ) -> dict[int, int] | None:
        """End a walk; after the first walk, begin the second.

        Raises StoppedEarly if too many entries would be removed.
        """
        if own is None:
            return merged
        counted = self.merge(own, merged)
        limit = self.plan.max_delete
        removed, found = counted.get(_REMOVED, 0), counted[_FOUND]
        reason = "" if limit is None else limit.exceeded(removed, found)
        if reason:
            raise StoppedEarly(reason)
        context.spawn(list(self.begun(self.counters)))
        return None

    def _with_counts(self, own: ItemState) -> ItemState:
        """Add new counts of the first walk to an item's result, or to the state of its join."""
        if own is None or not (counts := self._take_new_counts()):
            return own
        if isinstance(own, list):
            own[0].own = counts
            return own
        return self.merge(own, counts)

    def _take_new_counts(self) -> dict[int, int]:
        """Return the counts of the first walk since the last call, by slot."""
        if self._counting is None:
            return {}
        now = self.removed(self._counted), self._counted.found + self._counted.left_out
        removed, found = now[0] - self._reported_counts[0], now[1] - self._reported_counts[1]
        self._reported_counts = now
        return {_REMOVED: removed, _FOUND: found} if removed or found else {}
