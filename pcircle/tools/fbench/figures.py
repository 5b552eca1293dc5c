"""What is measured: figures, and how those of several clients become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

How: TypeAlias = Literal["sum", "mean", "slowest"]

TOGETHER = "B/s together"
UNITS: dict[str, How] = {
    "B/s": "sum",
    TOGETHER: "slowest",
    "op/s": "sum",
    "us": "mean",
    "%": "mean",
    "threads": "mean",
}
"""Units, and how figures of several clients in them become one.

Of rates together the slowest one counts for each: all have begun at once, and they are as fast
together as what they have moved when the last is done.
"""


class Figure(msgspec.Struct, frozen=True, array_like=True):
    """A measured value: of which case, of what in it, by which backend, in a unit of `UNITS`."""

    case: str
    what: str
    backend: str
    unit: str
    value: float


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """What some clients have measured: their figures, and what went wrong."""

    figures: tuple[Figure, ...] = ()
    trouble: tuple[str, ...] = ()


def together(figures: Sequence[Figure]) -> list[Figure]:
    """The figures of all clients as one for each thing that was measured, in their order."""
    groups: dict[tuple[str, str, str, str], list[float]] = {}
    for each in figures:
        key = each.case, each.what, each.backend, each.unit
        groups.setdefault(key, []).append(each.value)
    return [Figure(*key, _one(UNITS[key[3]], values)) for key, values in groups.items()]


def _one(how: How, values: Sequence[float]) -> float:
    if how == "slowest":
        return min(values) * len(values)
    return sum(values) / (1 if how == "sum" else len(values))
