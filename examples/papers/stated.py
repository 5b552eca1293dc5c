"""Numbers of the papers, each with the place that states it."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Stated(msgspec.Struct, Generic[T], frozen=True):
    """A number, or a table of numbers, of a paper; `source` is a figure, table or section."""

    value: T
    source: str
