"""What is measured: figures, and how those of several clients become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

How: TypeAlias = Literal["sum", "mean"]

UNITS: dict[str, How] = {"B/s": "sum", "op/s": "sum", "us": "mean", "%": "mean", "threads": "mean"}
"""Units, and how figures of several clients in them become one."""


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
    return [
        Figure(*key, sum(values) / (1 if UNITS[key[3]] == "sum" else len(values)))
        for key, values in groups.items()
    ]
