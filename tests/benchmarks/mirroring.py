"""``python -m tests.benchmarks.mirroring DIR``: fmirror, rsync and dsync if it is installed.

Each tree has one target. In the first table the target is up to date. In the second some entries
have changed: each row updates the same ones, which are changed again each time. fmirror had its
full scan some seconds earlier, as in nightly use.

dsync sets the times of all entries, after which fmirror has to read the attributes of each file. So
it has a separate target.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence

from . import measure
from .turns import START, Costs, Place, Tree, begun, show, trees

_QUIET_S = 3.5  # younger changes may have been missed


def rows(jobs: Sequence[int]) -> dict[str, list[str]]:
    """Return the commands by name."""
    found = {
        "rsync -a": ["rsync", "-a", "--delete"],
        "rsync -aHAX": ["rsync", "-aHAX", "--delete"],
    }
    if shutil.which("dsync"):
        found["dsync -n 2"] = ["mpirun", "-np", "2", "dsync", "-D", "-q"]
    fmirror = [sys.executable, "-m", "pcircle.tools.fmirror", "-q", "--delete"]
    return found | {f"fmirror -j {number}": [*fmirror, "-j", str(number)] for number in jobs}


def unchanged(tree: Tree, commands: dict[str, list[str]], place: Place) -> Costs:
    """Return the costs of each command where nothing has changed."""
    lines = _prepare(tree, commands, place)
    costs = place.compare(tree.name, list(commands), lambda name: place.run(name, lines[name]))
    shutil.rmtree(place.top)
    return costs


def changed(tree: Tree, commands: dict[str, list[str]], place: Place) -> Costs:
    """Return each command's costs where one entry in a thousand was changed, added or removed."""
    lines = _prepare(tree, commands, place)
    round_number = 0

    def run(name: str) -> measure.Cost:
        nonlocal round_number
        round_number += 1
        _edit(place.top + "/a", round_number)
        cost = place.run(name, lines[name])
        for other in _makers(commands):  # the other target receives all changes
            if lines[other][-1] != lines[name][-1]:
                place.run(other, lines[other])
        return cost

    costs = place.compare(tree.name, list(commands), run)
    shutil.rmtree(place.top)
    return costs


def _makers(commands: dict[str, list[str]]) -> list[str]:
    """Return the rows that update targets: one of fmirror's for all except dsync."""
    ours = next(name for name in commands if name.startswith("fmirror"))
    return [ours, *(name for name in commands if name.startswith("dsync"))]


def _prepare(tree: Tree, commands: dict[str, list[str]], place: Place) -> dict[str, list[str]]:
    """Build a tree and the targets; return the command lines."""
    tree.build(place.top + "/a")
    lines = {}
    for name, command in commands.items():
        target = "/c/" if name.startswith("dsync") else "/b/"
        lines[name] = [*command, place.top + "/a/", place.top + target]
    for _ in range(2):
        for name in _makers(commands):
            place.run(name, lines[name])
        time.sleep(_QUIET_S)
    return lines


def _edit(top: str, number: int) -> None:
    """Change a file in every fifth directory, and replace its last new file by another one."""
    for place, (here, directories, files) in enumerate(os.walk(top)):
        if files and not directories and place % 5 == 0:
            with open(os.path.join(here, min(files)), "ab") as stream:
                stream.write(b"more")
            for name in files:
                if name.startswith("new"):
                    os.unlink(os.path.join(here, name))
            os.mknod(os.path.join(here, f"new {number}"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; return the exit code."""
    with begun("mirroring", arguments, 500_000, "fmirror") as (place, files, jobs):
        for tree in (START, *trees(files)):
            title = f"{tree.name}: {tree.files:,} files"
            show(f"{title}, nothing changed", unchanged(tree, rows(jobs), place))
        several = trees(files)[0]
        show(f"{several.name}: a file of a thousand changed", changed(several, rows(jobs), place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
