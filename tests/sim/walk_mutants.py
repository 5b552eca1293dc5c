"""Walkers with one premise taken away, each of which the search must find."""

from __future__ import annotations

from typing import Any

from pcircle.runtime import Here
from pcircle.walk.opened import Gathering, Open
from pcircle.walk.walker import Walker


def complete(
    walker: Walker[Any], opened: Open[Any], above: Open[Any], here: Gathering[Any]
) -> None:
    """Complete a directory in place."""
    visitor = walker._visitor
    here.opens.remove(opened)
    part = visitor.lost(opened) if opened.failed else visitor.leave(opened, here)
    above.part = visitor.merge(above.part, part)


class WithShiftedSlots(Walker[Any]):
    """What came of an item counts in the directory that was entered next."""

    def join(self, opens: list[Open[Any]], slots: dict[int, Any], here: Here[Any]) -> Any:
        moved: dict[int, Any] = {}
        for slot, part in slots.items():
            to = min(slot + 1, len(opens) - 1) if slot else 0
            moved[to] = self._visitor.merge(moved[to], part) if to in moved else part
        return super().join(opens, moved, here)


class WithLostSlots(Walker[Any]):
    """Of what came back the last slot is dropped."""

    def join(self, opens: list[Open[Any]], slots: dict[int, Any], here: Here[Any]) -> Any:
        return super().join(opens, dict(list(slots.items())[:-1]), here)


class WithoutStops(Walker[Any]):
    """A directory for which nothing was handed out is completed, whether the job stops or not."""

    def _settle(self, opened: Open[Any], above: Open[Any], here: Gathering[Any]) -> None:
        if opened.waits:
            super()._settle(opened, above, here)
            return
        complete(self, opened, above, here)


class WithHastyStops(Walker[Any]):
    """When the job stops, what a directory waits for will not come: so it is completed."""

    def _settle(self, opened: Open[Any], above: Open[Any], here: Gathering[Any]) -> None:
        if not here.stopping:
            super()._settle(opened, above, here)
            return
        complete(self, opened, above, here)


class WithEarlyEnds(Walker[Any]):
    """A directory is complete in place when its own names are, whatever it waits for."""

    def _settle(self, opened: Open[Any], above: Open[Any], here: Gathering[Any]) -> None:
        if here.stopping:
            super()._settle(opened, above, here)
            return
        complete(self, opened, above, here)
