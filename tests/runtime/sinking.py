"""A task whose results go to a sink, in a separate job: ``sinking JOBS PLACE ITEMS STOPS``.

Each item puts a hundred names into the sink. Rank 0 prints the results, one per line, and leaves
nothing below PLACE, which is created first if it is a directory name. With STOPS an item fails, and
nothing is printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from pcircle.core.errors import IntegrityError, StoppedEarly
from pcircle.runtime import Context, Observer, Outcome, Program, Task, run_program
from pcircle.walk.items import SINK_ITEMS, Gather, Merge, Seal
from pcircle.walk.segments import Sink, remove, result

EACH = 100
RANGE_BYTES = 4000

Item = int | Gather[int] | Seal | Merge


def name(number: int) -> bytes:
    """Return a name in one of many directories, to spread an item's names over the order."""
    return b"%03d/%d/file %d" % (number * 7919 % 997, number % 3, number)


def _unwritable(error: OSError) -> StoppedEarly:
    return StoppedEarly(f"it can't be written: {error.strerror}")


class Naming(Task[Item, int]):
    """Count the items, and those of the sink by kind: merges count 1,000,000."""

    def __init__(self, place: bytes, rank: int, size: int, items: int, stops: bool) -> None:
        self._items, self._stops = items, stops
        self._sink = Sink(place, rank, size, int, _unwritable, RANGE_BYTES)

    def seed(self) -> list[Item]:
        return [Gather(tuple(range(self._items)))]

    def process(self, item: Item, context: Context[Any]) -> Any:
        if isinstance(item, SINK_ITEMS):
            done = self._sink.process(item, context)
            return 1_000_000 if isinstance(item, Merge) else done
        if self._stops and item == self._items // 2:
            raise IntegrityError("stopped in the middle")
        with self._sink.part() as part:
            for number in range(item * EACH, (item + 1) * EACH):
                part.add(name(number), name(number) + b"\n")
        return 1

    def join(self, item: Item, own: Any, merged: int, context: Context[Any]) -> int:
        if not isinstance(item, SINK_ITEMS):
            raise TypeError(item)
        merges = merged // 1_000_000
        if merges:
            print(f"{merges} merges", file=sys.stderr)
        return self._sink.join(item, own, merged, context)

    def merge(self, a: int, b: int) -> int:
        return a + b


class _Printer(Observer[int]):
    def __init__(self, place: bytes, size: int) -> None:
        self._place, self._size = place, size

    def conclude(self, outcome: Outcome[int]) -> int:
        if not outcome.code:
            print(f"{outcome.result} items", file=sys.stderr)
            for text in result(self._place, self._size):
                sys.stdout.buffer.write(text)
            sys.stdout.flush()
        remove(self._place, self._size)
        if os.path.exists(self._place):
            os.unlink(self._place)
        return super().conclude(outcome)


class Sinking(Program):
    def __init__(self, place: str, items: int, stops: bool) -> None:
        self._place = os.fsencode(place)
        self._items, self._stops = items, stops
        self._shared = os.path.basename(place) == "place"
        self._size = 0

    def prepare(self, nodes: Sequence[int]) -> bytes:
        if self._shared:
            open(self._place, "xb").close()
        return b""

    def task(self, plan: bytes, rank: int, size: int) -> Naming:
        self._size = size
        return Naming(self._place, rank, size, self._items, self._stops)

    def observer(self, plan: bytes) -> _Printer:
        return _Printer(self._place, self._size)


def main(jobs: str, place: str, items: str, stops: str) -> int:
    return run_program(Sinking(place, int(items), bool(int(stops))), int(jobs) or None, "auto")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
