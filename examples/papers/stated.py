"""Numbers of the papers, each with the place that states it."""

from __future__ import annotations

import msgspec


class Stated(msgspec.Struct, frozen=True):
    """A number that a paper states; `source` is a section, figure or table."""

    value: float
    source: str
