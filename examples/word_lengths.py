"""Count words by their length: a task, and how it is tested (docs/testing-tasks.rst).

    python examples/word_lengths.py FILE...

A part of the words is an item; who has many halves them, so that others can take their share.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pcircle.runtime import Context, Task, run

Words = tuple[str, ...]
Counts = dict[int, int]

FEW = 2  # words that are counted at once; a real task has thousands


class Lengths(Task[Words, Counts]):
    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)

    def seed(self) -> list[Words]:
        return [self._words] if self._words else []

    def process(self, words: Words, context: Context[Words]) -> Counts:
        if len(words) > FEW:
            middle = len(words) // 2
            context.spawn([words[:middle], words[middle:]])
            return {}
        counts: Counts = {}
        for word in words:
            counts[len(word)] = counts.get(len(word), 0) + 1
        return counts

    def merge(self, a: Counts, b: Counts) -> Counts:
        return {length: a.get(length, 0) + b.get(length, 0) for length in {*a, *b}}


if __name__ == "__main__":
    end = run(Lengths([word for name in sys.argv[1:] for word in Path(name).read_text().split()]))
    if end.outcome is not None and end.outcome.result is not None:
        for length, count in sorted(end.outcome.result.items()):
            print(f"{count:8,} words of {length}")
