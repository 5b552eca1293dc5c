"""``python -m tests.benchmarks.listing DIR``: listings by fls, find -ls, ls -lR and perhaps bfs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from . import datasets, measure
from .turns import START, Costs, Place, Tree, begun, show, trees

_FIELDS = "%M %n %u %g %s %TY-%Tm-%Td %TT %Tz %p\\n"
"""The fields of fls -l, in the format of find -printf."""


def rows(jobs: Sequence[int], top: str) -> dict[str, list[str]]:
    """Return the commands by name."""
    found = {
        "find -ls": ["find", top, "-ls"],
        "find -printf": ["find", top, "-printf", _FIELDS],
        "ls -lR": ["ls", "-lR", top],
    }
    if shutil.which("bfs"):
        found["bfs -ls"] = ["bfs", top, "-ls"]
    fls = [sys.executable, "-m", "pcircle.tools.fls", "-q", "-R", top]
    for number in jobs:
        found[f"fls -lR -j {number}"] = [*fls, "-l", "-j", str(number)]
    found[f"fls -R -j {jobs[-1]}"] = [*fls, "-j", str(jobs[-1])]
    found[f"fls csv -j {jobs[-1]}"] = [*fls, "--csv", "-", "-j", str(jobs[-1])]
    return found


def measured(tree: Tree, commands: dict[str, list[str]], place: Place) -> Costs:
    """Return the costs of each command in each round."""
    tree.build(place.top)

    def run(name: str) -> measure.Cost:
        return place.run(name, commands[name])

    costs = place.compare(tree.name, list(commands), run)
    datasets.remove(place.top)
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; return the exit code."""
    with begun("listing", arguments, 500_000, "fls") as (place, files, jobs):
        for tree in (START, *trees(files)):
            costs = measured(tree, rows(jobs, place.top), place)
            show(f"{tree.name}: {tree.files:,} files", costs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
