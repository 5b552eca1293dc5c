"""Figures: measured values, and how the values of several clients are combined."""

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
"""The units of figures, and how the figures of several clients are combined in each.

All clients start a phase together, so its combined rate is limited by the slowest client.
"""


class Figure(msgspec.Struct, frozen=True, array_like=True):
    """A value measured in a case with a backend, in a unit of `UNITS`."""

    case: str
    what: str
    backend: str
    unit: str
    value: float


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """The figures and failures of one or more clients."""

    figures: tuple[Figure, ...] = ()
    trouble: tuple[str, ...] = ()


def together(figures: Sequence[Figure]) -> list[Figure]:
    """Combine the figures of all clients, in the order of their first occurrence."""
    groups: dict[tuple[str, str, str, str], list[float]] = {}
    for figure in figures:
        key = figure.case, figure.what, figure.backend, figure.unit
        groups.setdefault(key, []).append(figure.value)
    return [Figure(*key, _one(UNITS[key[3]], values)) for key, values in groups.items()]


def _one(how: How, values: Sequence[float]) -> float:
    if how == "slowest":
        return min(values) * len(values)
    return sum(values) / (1 if how == "sum" else len(values))
