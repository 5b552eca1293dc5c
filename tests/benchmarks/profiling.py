"""``python -m tests.benchmarks.profiling DIR``: fprof and other tools that walk, as a table.

All commands run in turn in each round, so that a slow minute affects all; medians, and the ratio to
fprof with two processes in the same round, which is more portable than seconds. A tree of 500,000
files is built below DIR, preferably on a tmpfs, and removed; ``--tree`` selects an existing one,
which is not modified. Tools that are not installed are skipped and named.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

from pcircle.cli.listing import render

from . import measure
from .tools import dcp_launcher, environment

_TIMEOUT_S = 1800.0
_PER_DIRECTORY = 1000
OURS = "fprof -j 2"


class Command(NamedTuple):
    """A command and its name in the table."""

    name: str
    argv: list[str]


def _commands(tree: str, fprof: list[str], walk: list[str] | str, scratch: str) -> list[Command]:
    commands = [
        Command(OURS, [*fprof, "-q", "-j", "2", tree]),
        Command("fprof -j 1", [*fprof, "-q", "-j", "1", tree]),
        Command("fprof -j 2 --save", [*fprof, "-q", "-j", "2", "--save", f"{scratch}/kept", tree]),
        Command("du -s", ["du", "-s", tree]),
        Command("find -size +1G", ["find", tree, "-size", "+1G"]),
    ]
    if shutil.which("gdu"):
        commands.append(Command("gdu -n -p -s", ["gdu", "-n", "-p", "-s", tree]))
    if isinstance(walk, list):
        commands.append(Command("dwalk, 2 ranks", [*walk, tree]))
    return commands


@contextmanager
def _tree(given: str | None, folder: str, files: int, sizes: str) -> Iterator[str]:
    """Return the tree to walk."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="fprof-bench-", dir=folder) as made:
        dice = random.Random(3)
        for start in range(0, files, _PER_DIRECTORY):
            context = os.path.join(made, f"{start // (100 * _PER_DIRECTORY):03}", f"{start:09}")
            os.makedirs(context)
            fd = os.open(context, os.O_RDONLY)
            for number in range(start, min(files, start + _PER_DIRECTORY)):
                file = os.open(f"file-{number}", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
                if sizes == "mixed":
                    os.ftruncate(file, int(2 ** dice.uniform(0, 24)))
                os.close(file)
            os.close(fd)
        yield made


def _rows(commands: Sequence[Command], runs: int, log: str) -> list[list[str]]:
    """Run all commands several times, after a warm-up; return the rows of the table."""
    costs: dict[str, list[measure.Cost]] = {command.name: [] for command in commands}
    for number in range(runs + 1):
        for command in commands:
            cost = measure.run(command.argv, environment(), log, _TIMEOUT_S)
            if cost.exit_code:
                raise SystemExit(f"{command.name}: {cost.exit_code}: {measure.last_words(log)}")
            if number:
                costs[command.name].append(cost)
    ours = [cost.wall_s for cost in costs[OURS]]
    return [
        [
            name,
            f"{median(cost.wall_s for cost in found):.3f}",
            f"{min(cost.wall_s for cost in found):.3f}",
            f"{median(cost.user_s + cost.system_s for cost in found):.3f}",
            f"{median(cost.wall_s / o for cost, o in zip(found, ours, strict=True)):.2f}",
        ]
        for name, found in costs.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.profiling")
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--files", type=int, default=500_000)
    parser.add_argument("--sizes", choices=("empty", "mixed"), default="mixed")
    parser.add_argument("--tree", help="walk this one instead of one that is made")
    parser.add_argument("--fprof", help="the fprof to run; default: that of this checkout")
    parser.add_argument("--dwalk", default=shutil.which("dwalk"), help="mpiFileUtils' dwalk")
    parser.add_argument("--dcp", default=shutil.which("dcp"), help="its dcp, to find its mpirun")
    args = parser.parse_args(arguments)
    fprof = args.fprof.split() if args.fprof else [sys.executable, "-m", "pcircle.tools.fprof"]
    walk: list[str] | str = "not at hand"
    with tempfile.TemporaryDirectory(prefix="fprof-bench-", dir=args.folder) as scratch:
        if args.dwalk and args.dcp:
            launcher = dcp_launcher(args.dcp, None, scratch)
            walk = launcher
            if isinstance(launcher, list):
                walk = [*launcher, "-np", "2", args.dwalk, "-q"]
        if isinstance(walk, str):
            print(f"dwalk: {walk}")
        if not shutil.which("gdu"):
            print("gdu: not at hand")
        with _tree(args.tree, args.folder, args.files, args.sizes) as tree:
            commands = _commands(tree, fprof, walk, scratch)
            rows = _rows(commands, args.runs, os.path.join(scratch, "log"))
    header = ("command", "median s", "min s", "CPU s", "times fprof -j 2")
    print(render(rows, align="lrrrr", header=header), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
