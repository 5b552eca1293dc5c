"""``python -m tests.benchmarks.finding DIR``: searches by ffind, find, and bfs and dfind if there.

Each search is run by all in turn, in rounds that are interleaved, so that what else the machine
does hits all rows alike; one round does not count. CPU seconds stand beside the time, because on a
machine with other work the time alone says little. The start of each tool, which is the time of a
tree with one file, is a table of its own: it is the same for trees of any size.
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
from .removing import Tree

_TIMEOUT_S = 3600.0


class Search(NamedTuple):
    """A search: the words of find, and those of dfind, which has no brackets and `-o`."""

    words: tuple[str, ...]
    dfind: tuple[str, ...]


SEARCHES = {
    "all": Search((), ()),
    "-name": Search(("-name", "*7"), ("--name", "*7")),
    "-size": Search(("-type", "f", "-size", "+1k"), ("--type", "f", "--size", "+1024")),
    "-mtime, -printf": Search(("-mtime", "-1", "-printf", "%p %s\\n"), ()),
}


def trees(entries: int) -> list[Tree]:
    """The trees, with about as many entries each."""
    return [
        Tree("200 files a directory", entries, 200),
        Tree("4 files a directory", entries * 4 // 5, 4),
        Tree("one flat directory", entries, entries),
    ]


def rows(search: Search, top: str, jobs: Sequence[int]) -> dict[str, list[str]]:
    """The commands, by what they are called."""
    found = {"find": ["find", top, *search.words]}
    if shutil.which("bfs"):
        found["bfs -j2"] = ["bfs", "-j2", top, *search.words]
    if shutil.which("dfind") and shutil.which("mpirun") and search.dfind:
        found["dfind -np 2"] = ["mpirun", "-np", "2", "dfind", *search.dfind, "--print", top]
    ffind = [sys.executable, "-m", "pcircle.ffind", top]
    return found | {f"ffind -j{n}": [*ffind, "-j", str(n), *search.words] for n in jobs}


def measured(
    commands: dict[str, list[str]], place: str, runs: int, news: Callable[[str], None]
) -> dict[str, list[measure.Cost]]:
    """What each command took in each round, after one that does not count."""
    costs: dict[str, list[measure.Cost]] = {name: [] for name in commands}
    names = list(commands)
    for turn in range(runs + 1):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            log = f"{place}/log"
            cost = measure.run(commands[name], tools.environment(), log, _TIMEOUT_S)
            if cost.exit_code:
                raise SystemExit(f"{name}: {measure.last_words(log)}")
            if turn:
                costs[name].append(cost)
            news(f"{name}: {cost.wall_s:.2f} s")
    return costs


def table(title: str, costs: dict[str, list[measure.Cost]]) -> str:
    """Medians, and their ratios to those of the first row."""
    lines = [title, f"{'':14}{'s':>8}{'ratio':>8}{'cpu s':>8}"]
    first = 0.0
    for name, some in costs.items():
        wall_s = statistics.median(cost.wall_s for cost in some)
        cpu_s = statistics.median(cost.user_s + cost.system_s for cost in some)
        first = first or wall_s
        lines.append(f"{name:14}{wall_s:8.2f}{wall_s / first:8.2f}{cpu_s:8.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it all; returns the exit code. Leaves nothing in DIR."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.finding")
    parser.add_argument("dir", metavar="DIR", help="a folder on the file system to measure")
    parser.add_argument("--entries", type=int, default=500_000, help="of each tree")
    parser.add_argument("--runs", type=int, default=5, help="counted rounds")
    parser.add_argument("--jobs", default="1,2", help="of ffind, by comma")
    typed = parser.parse_args(arguments)
    jobs = [int(word) for word in typed.jobs.split(",")]
    place = tempfile.mkdtemp(prefix="finding-", dir=typed.dir)

    def news(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        for tree in (Tree("start", 1, 1), *trees(typed.entries)):
            top = f"{place}/tree"
            tree.build(top)
            for name, search in SEARCHES.items():
                found = measured(rows(search, top, jobs), place, typed.runs, news)
                print(f"\n{table(f'{tree.name}: {name}', found)}", flush=True)
                if tree.name == "start":
                    break
            shutil.rmtree(os.fsencode(top))
    finally:
        datasets.remove(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
