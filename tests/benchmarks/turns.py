"""Commands that take turns on trees of empty files: common parts of several benchmarks.

Rounds are interleaved and rotated, so that other load affects all rows alike; the first round does
not count. CPU seconds are printed with the time, because on a busy machine the time alone has
little meaning.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from . import datasets, measure, tools

_TIMEOUT_S = 3600.0

Costs = dict[str, list[measure.Cost]]
"""The costs of each command in each round that counts."""


class Tree(NamedTuple):
    """A tree of empty files, with a given number per directory."""

    name: str
    files: int
    per_directory: int

    def build(self, top: str) -> None:
        """Create the tree, with up to a thousand directories in each parent."""
        for number in range(0, self.files, self.per_directory):
            index = number // self.per_directory
            folder = f"{top}/{index // 1000}/{index}"
            os.makedirs(folder)
            fd = os.open(folder, os.O_RDONLY)
            try:
                for file in range(number, min(self.files, number + self.per_directory)):
                    os.mknod(f"file{file:07d}", dir_fd=fd)
            finally:
                os.close(fd)


START = Tree("start", 1, 1)


def trees(files: int) -> list[Tree]:
    """Return the trees: with equally many entries each."""
    return [
        Tree("200 files a directory", files, 200),
        Tree("4 files a directory", files * 4 // 5, 4),
        Tree("one flat directory", files, files),
    ]


class Place(NamedTuple):
    """The directory in which the commands work, and the number of runs."""

    top: str  # of the tree
    log: str
    runs: int

    def run(self, name: str, argv: Sequence[str]) -> measure.Cost:
        """Run a command. SystemExit if it fails."""
        cost = measure.run(argv, tools.environment(), self.log, _TIMEOUT_S)
        if cost.exit_code:
            raise SystemExit(f"{name}: {measure.last_words(self.log)}")
        return cost

    def compare(
        self, title: str, names: Sequence[str], run: Callable[[str], measure.Cost]
    ) -> Costs:
        """Return the costs of each command; `run` runs one of them."""
        costs: Costs = {name: [] for name in names}
        for turn in range(self.runs + 1):
            for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
                cost = run(name)
                if turn:
                    costs[name].append(cost)
                print(f"{title}: {name}: {cost.wall_s:.2f} s", file=sys.stderr, flush=True)
        return costs


def show(title: str, costs: Costs) -> None:
    """Print medians, and their ratios to the medians of the first row."""
    width = max(14, *(len(name) + 1 for name in costs))
    print(f"\n{title}\n{'':{width}}{'s':>8}{'ratio':>8}{'cpu s':>8}")
    first = 0.0
    for name, row_costs in costs.items():
        wall_s = statistics.median(cost.wall_s for cost in row_costs)
        cpu_s = statistics.median(cost.user_s + cost.system_s for cost in row_costs)
        first = first or wall_s
        print(f"{name:{width}}{wall_s:8.2f}{wall_s / first:8.2f}{cpu_s:8.2f}", flush=True)


@contextmanager
def begun(
    name: str, arguments: Sequence[str] | None, files: int, ours: str, runs: int = 3
) -> Iterator[tuple[Place, int, list[int]]]:
    """Return the empty directory in DIR of the command line, the files of a tree, and the jobs."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks.{name}")
    parser.add_argument("dir", metavar="DIR", help="a folder on the file system to measure")
    parser.add_argument("--files", type=int, default=files, help="of each tree")
    parser.add_argument("--runs", type=int, default=runs, help="counted rounds")
    parser.add_argument("--jobs", default="1,2", help=f"of {ours}, by comma")
    args: Any = parser.parse_args(arguments)
    folder = tempfile.mkdtemp(prefix=f"{name}-", dir=args.dir)
    try:
        place = Place(f"{folder}/tree", f"{folder}/log", args.runs)
        yield place, args.files, [int(word) for word in args.jobs.split(",")]
    finally:
        datasets.remove(folder)
