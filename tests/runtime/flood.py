"""A task that sends far more notices to rank 0 than it does work, as if nothing were readable."""

from __future__ import annotations

import os

from pcircle.core.errors import IntegrityError
from pcircle.runtime import Context, Task


def _line_of(notice: str) -> bytes:
    return notice.encode() + b"\n"


class Flood(Task[int, int]):
    """Each of `items` sends `notices` notices, one at a time; with `stops` the last item aborts."""

    def __init__(self, items: str, notices: str, stops: str = "") -> None:
        self._items, self._each = int(items), int(notices)
        self._stops = stops
        self._told = 0  # by this rank
        self.line_of = _line_of

    def seed(self) -> range:
        return range(self._items)

    def process(self, item: int, context: Context[int]) -> int:
        for _ in range(self._each):
            context.note([f"{os.getpid()} {self._told} {'of a length as failures have it':>70}"])
            self._told += 1
        if self._stops and item == 0:  # rank 0 begins with the last and a thief takes the first
            raise IntegrityError("stopped in the middle")
        return self._each

    def merge(self, a: int, b: int) -> int:
        return a + b
