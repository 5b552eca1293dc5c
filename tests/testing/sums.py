"""Small tasks, and the results of `testing.check` for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pcircle import testing
from pcircle.runtime import Context, Task

SIZE = 24
TOTAL = SIZE * (SIZE - 1) // 2

Range = tuple[int, int]


class Sum(Task[Range, int]):
    """The sum of some numbers: a range is halved until it has one."""

    def seed(self) -> list[Range]:
        return [(0, SIZE)]

    def process(self, item: Range, context: Context[Range]) -> int:
        first, last = item
        if last - first == 1:
            return first
        middle = (first + last) // 2
        context.spawn([(first, middle), (middle, last)])
        return 0

    def merge(self, a: int, b: int) -> int:
        return a + b


class Listed(Task[int, list[int]]):
    """Numbers in the order of their arrival."""

    def seed(self) -> range:
        return range(12)

    def process(self, item: int, context: Context[int]) -> list[int]:
        return [item]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return a + b


def found(make: Callable[[], Task[Any, Any]], text: str, **more: Any) -> testing.Violation:
    """Return the violation that `check` raises, which must contain this text."""
    with pytest.raises(testing.Violation, match=re.escape(text)) as raised:
        testing.check(make, **{"seeds": range(60), **more})
    return raised.value
