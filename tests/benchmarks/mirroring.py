"""``python -m tests.benchmarks.mirroring DIR``: fmirror, rsync and, where it is, dsync.

Of each tree there is one target, which all rows find as it should be: nothing has changed. Then
some entries have: rows of that table mend the same ones, each time made anew. fmirror has had its
complete run some seconds before, as it has every night.

dsync sets times of all that it finds, after which fmirror has to ask each file for its attributes.
So it has a target of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence

from . import measure
from .turns import START, Costs, Place, Tree, begun, show, trees

_QUIET_S = 3.5  # what is younger may have been changed unseen


def rows(jobs: Sequence[int]) -> dict[str, list[str]]:
    """The commands, by what they are called."""
    found = {
        "rsync -a": ["rsync", "-a", "--delete"],
        "rsync -aHAX": ["rsync", "-aHAX", "--delete"],
    }
    if shutil.which("dsync"):
        found["dsync -n 2"] = ["mpirun", "-np", "2", "dsync", "-D", "-q"]
    fmirror = [sys.executable, "-m", "pcircle.tools.fmirror", "-q", "--delete"]
    return found | {f"fmirror -j {number}": [*fmirror, "-j", str(number)] for number in jobs}


def unchanged(tree: Tree, commands: dict[str, list[str]], place: Place) -> Costs:
    """What each command took where nothing has changed."""
    lines = _begun(tree, commands, place)
    costs = place.compare(tree.name, list(commands), lambda name: place.run(name, lines[name]))
    shutil.rmtree(place.top)
    return costs


def changed(tree: Tree, commands: dict[str, list[str]], place: Place) -> Costs:
    """What each command took where one entry of a thousand has changed, is new, or is gone."""
    lines = _begun(tree, commands, place)
    round_number = 0

    def run(name: str) -> measure.Cost:
        nonlocal round_number
        round_number += 1
        _edit(place.top + "/a", round_number)
        cost = place.run(name, lines[name])
        for other in _makers(commands):  # the other target misses no change
            if lines[other][-1] != lines[name][-1]:
                place.run(other, lines[other])
        return cost

    costs = place.compare(tree.name, list(commands), run)
    shutil.rmtree(place.top)
    return costs


def _makers(commands: dict[str, list[str]]) -> list[str]:
    """Who makes the targets: one of fmirror's rows that of all but dsync."""
    ours = next(name for name in commands if name.startswith("fmirror"))
    return [ours, *(name for name in commands if name.startswith("dsync"))]


def _begun(tree: Tree, commands: dict[str, list[str]], place: Place) -> dict[str, list[str]]:
    """Build a tree and the targets; the command lines."""
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
    """Change a file in a directory of five, and put one beside it in place of the last one."""
    for place, (here, directories, files) in enumerate(os.walk(top)):
        if files and not directories and place % 5 == 0:
            with open(os.path.join(here, min(files)), "ab") as stream:
                stream.write(b"more")
            for name in files:
                if name.startswith("new"):
                    os.unlink(os.path.join(here, name))
            os.mknod(os.path.join(here, f"new {number}"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it all; returns the exit code."""
    with begun("mirroring", arguments, 500_000, "fmirror") as (place, files, jobs):
        for tree in (START, *trees(files)):
            title = f"{tree.name}: {tree.files:,} files"
            show(f"{title}, nothing changed", unchanged(tree, rows(jobs), place))
        several = trees(files)[0]
        show(f"{several.name}: a file of a thousand changed", changed(several, rows(jobs), place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
