"""``python -m tests.benchmarks.listing DIR``: listings by fls, find -ls, ls -lR and perhaps bfs.

Trees of empty files are made once; rounds are interleaved, so that what else the machine does hits
all rows alike. CPU seconds stand beside the time, because on a machine with other work the time
alone says little.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence

from . import datasets, measure, tools
from .removing import Tree, table, trees

_TIMEOUT_S = 3600.0
_FIELDS = "%M %n %u %g %s %TY-%Tm-%Td %TT %Tz %p\\n"
"""What fls -l shows, for find -printf."""


def rows(jobs: Sequence[int]) -> dict[str, list[str]]:
    """The commands, by what they are called."""
    found = {"find -ls": ["find"], "find -printf": ["find"], "ls -lR": ["ls", "-lR"]}
    if shutil.which("bfs"):
        found["bfs -ls"] = ["bfs"]
    fls = [sys.executable, "-m", "pcircle.fls", "-q", "-R"]
    for number in jobs:
        found[f"fls -lR -j {number}"] = [*fls, "-l", "-j", str(number)]
    found[f"fls -R -j {jobs[-1]}"] = [*fls, "-j", str(jobs[-1])]
    found[f"fls csv -j {jobs[-1]}"] = [*fls, "--csv", "-", "-j", str(jobs[-1])]
    return found


def measured(
    tree: Tree, commands: dict[str, list[str]], place: str, runs: int, news: Callable[[str], None]
) -> dict[str, list[measure.Cost]]:
    """What each command took in each round, after one that does not count."""
    costs: dict[str, list[measure.Cost]] = {name: [] for name in commands}
    top, log = f"{place}/tree", f"{place}/log"
    tree.build(top)
    names = list(commands)
    for turn in range(runs + 1):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            argv = [*commands[name], top]
            argv += {"-ls": ["-ls"], "-printf": ["-printf", _FIELDS]}.get(name.split()[-1], [])
            cost = measure.run(argv, tools.environment(), log, _TIMEOUT_S)
            if cost.exit_code:
                raise SystemExit(f"{name}: {measure.last_words(log)}")
            if turn:
                costs[name].append(cost)
            news(f"{tree.name}: {name}: {cost.wall_s:.2f} s")
    datasets.remove(top)
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it all; returns the exit code. Leaves nothing in DIR."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.listing")
    parser.add_argument("dir", metavar="DIR", help="a folder on the file system to measure")
    parser.add_argument("--files", type=int, default=500_000, help="of each tree")
    parser.add_argument("--runs", type=int, default=3, help="counted rounds")
    parser.add_argument("--jobs", default="1,2", help="of fls, by comma")
    typed = parser.parse_args(arguments)
    commands = rows([int(word) for word in typed.jobs.split(",")])
    place = tempfile.mkdtemp(prefix="listing-", dir=typed.dir)

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
