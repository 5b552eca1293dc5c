"""``python -m tests.benchmarks.removing DIR``: removals by frm, rm -rf and, where it is, rmz.

Each run removes a tree of its own, which is made before and not timed; rounds are interleaved, so
that what else the machine does hits all rows alike. The start of each tool, which is the time of a
tree with one file, is a table of its own: it is the same for trees of any size.

CPU seconds stand beside the time, because on a machine with other work the time alone says little.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import datasets, measure, tools

_TIMEOUT_S = 3600.0


class Tree(NamedTuple):
    """A tree of empty files, so many to a directory."""

    name: str
    files: int
    each: int

    def build(self, top: str) -> None:
        """Make it: a thousand directories to one above them, as far as there are so many."""
        for number in range(0, self.files, self.each):
            index = number // self.each
            folder = f"{top}/{index // 1000}/{index}"
            os.makedirs(folder)
            fd = os.open(folder, os.O_RDONLY)
            try:
                for file in range(number, min(self.files, number + self.each)):
                    os.mknod(f"file{file:07d}", dir_fd=fd)
            finally:
                os.close(fd)


def trees(files: int) -> list[Tree]:
    """The trees: with as many entries each."""
    return [
        Tree("200 files a directory", files, 200),
        Tree("4 files a directory", files * 4 // 5, 4),
        Tree("one flat directory", files, files),
    ]


def rows(jobs: Sequence[int]) -> dict[str, list[str]]:
    """The commands, by what they are called."""
    found = {"rm -rf": ["rm", "-rf"]}
    if shutil.which("rmz"):
        found["rmz"] = ["rmz"]
    frm = [sys.executable, "-m", "pcircle.frm", "-q", "-r"]
    return found | {f"frm -j {number}": [*frm, "-j", str(number)] for number in jobs}


def measured(
    tree: Tree, commands: dict[str, list[str]], place: str, runs: int, news: Callable[[str], None]
) -> dict[str, list[measure.Cost]]:
    """What each command took in each round, after one that does not count."""
    costs: dict[str, list[measure.Cost]] = {name: [] for name in commands}
    names = list(commands)
    for turn in range(runs + 1):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            top = f"{place}/tree"
            tree.build(top)
            os.sync()
            log = f"{place}/log"
            cost = measure.run([*commands[name], top], tools.environment(), log, _TIMEOUT_S)
            if cost.exit_code or os.path.lexists(top):
                raise SystemExit(f"{name}: {measure.last_words(log)}")
            if turn:
                costs[name].append(cost)
            news(f"{tree.name}: {name}: {cost.wall_s:.2f} s")
    return costs


def table(tree: Tree, costs: dict[str, list[measure.Cost]]) -> str:
    """Medians, and their ratios to those of the first row."""
    lines = [f"{tree.name}: {tree.files:,} files", f"{'':12}{'s':>8}{'ratio':>8}{'cpu s':>8}"]
    first = 0.0
    for name, some in costs.items():
        wall_s = statistics.median(cost.wall_s for cost in some)
        cpu_s = statistics.median(cost.user_s + cost.system_s for cost in some)
        first = first or wall_s
        lines.append(f"{name:12}{wall_s:8.2f}{wall_s / first:8.2f}{cpu_s:8.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it all; returns the exit code. Leaves nothing in DIR."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.removing")
    parser.add_argument("dir", metavar="DIR", help="a folder on the file system to measure")
    parser.add_argument("--files", type=int, default=600_000, help="of each tree")
    parser.add_argument("--runs", type=int, default=3, help="counted rounds")
    parser.add_argument("--jobs", default="1,2", help="of frm, by comma")
    typed = parser.parse_args(arguments)
    commands = rows([int(word) for word in typed.jobs.split(",")])
    place = tempfile.mkdtemp(prefix="removing-", dir=typed.dir)

    def news(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        for tree in (Tree("start", 1, 1), *trees(typed.files)):
            found = measured(tree, commands, place, typed.runs, news)
            print(f"\n{table(tree, found)}", flush=True)
    finally:
        datasets.remove(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
