"""`--bwlimit` and `--ops-limit`: the costs of items; see `pcircle.ops.copy.entry.limits`."""

from __future__ import annotations

from collections.abc import Callable

from pcircle.ops.copy.entry.limits import RateLimits
from pcircle.ops.copy.tree.items import Chunk, Item, Large, Links
from pcircle.ops.copy.tree.plan import Plan


class ItemLimits(RateLimits):
    """One rank's share of the limits of a copy, with the costs of its items."""

    def begin(self, item: Item, stop: Callable[[], bool]) -> None:
        """Wait until an item may start. Names in a batch wait one by one."""
        self.is_stopping = stop
        if isinstance(item, Chunk):
            self.operations(2)
        elif isinstance(item, Links):
            self.operations(self.entry)
        elif isinstance(item, Large):
            self.operations(self.entry + 2)  # it is looked up again, and renamed


def limits_of(plan: Plan, size: int) -> ItemLimits | None:
    """Return a rank's share of the limits, or None."""
    if plan.bytes_per_s is None and plan.operations_per_s is None:
        return None
    return ItemLimits(plan, plan.bytes_per_s, plan.operations_per_s, size)
