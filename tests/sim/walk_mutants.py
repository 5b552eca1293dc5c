"""Walkers with one premise taken away, each of which the search must find."""

from __future__ import annotations

from typing import Any

from pcircle.runtime import Context
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.walker import Walker


def complete(
    walker: Walker[Any], opened: Open[Any], above: Open[Any], context: ItemContext[Any]
) -> None:
    """Complete a directory in place."""
    visitor = walker._visitor
    context.opens.remove(opened)
    part = visitor.lost(opened) if opened.failed else visitor.leave(opened, context)
    above.part = visitor.merge(above.part, part)


class WithShiftedSlots(Walker[Any]):
    """The result of an item counts in the directory that was entered next."""

    def join(self, opens: list[Open[Any]], slots: dict[int, Any], context: Context[Any]) -> Any:
        moved: dict[int, Any] = {}
        for slot, part in slots.items():
            to = min(slot + 1, len(opens) - 1) if slot else 0
            moved[to] = self._visitor.merge(moved[to], part) if to in moved else part
        return super().join(opens, moved, context)


class WithLostSlots(Walker[Any]):
    """The last of the returned slots is dropped."""

    def join(self, opens: list[Open[Any]], slots: dict[int, Any], context: Context[Any]) -> Any:
        return super().join(opens, dict(list(slots.items())[:-1]), context)


class WithoutStops(Walker[Any]):
    """A directory for which nothing was handed out is completed, whether the job stops or not."""

    def _settle(self, opened: Open[Any], above: Open[Any], context: ItemContext[Any]) -> None:
        if opened.waits:
            super()._settle(opened, above, context)
            return
        complete(self, opened, above, context)


class WithHastyStops(Walker[Any]):
    """When the job stops, a directory is completed without the results that it waits for."""

    def _settle(self, opened: Open[Any], above: Open[Any], context: ItemContext[Any]) -> None:
        if not context.stopping:
            super()._settle(opened, above, context)
            return
        complete(self, opened, above, context)


class WithEarlyEnds(Walker[Any]):
    """A directory is complete in place when its own names are, whatever it waits for."""

    def _settle(self, opened: Open[Any], above: Open[Any], context: ItemContext[Any]) -> None:
        if context.stopping:
            super()._settle(opened, above, context)
            return
        complete(self, opened, above, context)
