"""``python -m tests.benchmarks.changing DIR``: changes by fchmod and fchown, chmod -R and chown -R.

All commands of a tree work on the same one, in turns: what one makes of it is what the next one
changes again, so each run changes every entry. Runs are interleaved, so that what else the machine
does hits all rows alike. The start of each tool is a table of its own, as of `removing`, and so is
a run that finds nothing to change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle

from . import datasets, measure, tools
from .removing import Tree, table, trees

_TIMEOUT_S = 3600.0
_MODES = ("go=", "go=rX")
_OWNERS = ("1", "2")


def rows(ours: str, peer: str, jobs: Sequence[int]) -> dict[str, list[str]]:
    """The commands, by what they are called; the word to set is to come, and the tree."""
    module = "pcircle.fchmod" + ("" if ours == "fchmod" else f".{ours}")
    command = [sys.executable, "-m", module, "-q", "-R"]
    found = {f"{peer} -R": [peer, "-R"]}
    return found | {f"{ours} -j {number}": [*command, "-j", str(number)] for number in jobs}


def measured(
    tree: Tree,
    commands: dict[str, list[str]],
    words: Sequence[str],
    place: str,
    runs: int,
    news: Callable[[str], None],
) -> dict[str, list[measure.Cost]]:
    """What each command took in each round, after one that does not count."""
    costs: dict[str, list[measure.Cost]] = {name: [] for name in commands}
    names, turns = list(commands), cycle(words)
    top = f"{place}/tree"
    tree.build(top)
    for turn in range(runs + 1):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            command = [*commands[name], next(turns), top]
            log = f"{place}/log"
            cost = measure.run(command, tools.environment(), log, _TIMEOUT_S)
            if cost.exit_code:
                raise SystemExit(f"{name}: {measure.last_words(log)}")
            if turn:
                costs[name].append(cost)
            news(f"{tree.name}: {name}: {cost.wall_s:.2f} s")
    datasets.remove(top)
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it all; returns the exit code. Leaves nothing in DIR."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.changing")
    parser.add_argument("dir", metavar="DIR", help="a folder on the file system to measure")
    parser.add_argument("--files", type=int, default=600_000, help="of each tree")
    parser.add_argument("--runs", type=int, default=3, help="counted rounds")
    parser.add_argument("--jobs", default="1,2", help="of ours, by comma")
    typed = parser.parse_args(arguments)
    jobs = [int(word) for word in typed.jobs.split(",")]
    place = tempfile.mkdtemp(prefix="changing-", dir=typed.dir)

    def news(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def shown(tree: Tree, ours: str, peer: str, words: Sequence[str]) -> None:
        found = measured(tree, rows(ours, peer, jobs), words, place, typed.runs, news)
        print(f"\n{table(tree, found)}", flush=True)

    try:
        for tree in (Tree("start", 1, 1), *trees(typed.files)):
            shown(tree, "fchmod", "chmod", _MODES)
        unchanged = trees(typed.files)[0]._replace(name="nothing to change")
        shown(unchanged, "fchmod", "chmod", ["a+r"])
        shown(trees(typed.files)[0], "fchown", "chown", _OWNERS)
    finally:
        datasets.remove(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
