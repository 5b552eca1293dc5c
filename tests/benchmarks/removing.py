"""``python -m tests.benchmarks.removing DIR``: removals by frm, rm -rf, and perhaps rmz and drm.

Each run removes a tree of its own, whose creation is not timed. The start-up of each tool, the time
for a tree with one file, has a separate table: it is equal for trees of any size.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from . import measure
from .turns import START, Costs, Place, Tree, begun, show, trees


def rows(jobs: Sequence[int]) -> dict[str, list[str]]:
    """Return the commands by name."""
    found = {"rm -rf": ["rm", "-rf"]}
    if shutil.which("rmz"):
        found["rmz"] = ["rmz"]
    if shutil.which("drm") and shutil.which("mpirun"):
        found["drm -np 2"] = ["mpirun", "-np", "2", "drm"]
    frm = [sys.executable, "-m", "pcircle.tools.frm", "-q", "-r"]
    return found | {f"frm -j {number}": [*frm, "-j", str(number)] for number in jobs}


def measured(tree: Tree, commands: dict[str, list[str]], place: Place) -> Costs:
    """Return the costs of each command in each round."""

    def run(name: str) -> measure.Cost:
        tree.build(place.top)
        os.sync()
        cost = place.run(name, [*commands[name], place.top])
        if os.path.lexists(place.top):
            raise SystemExit(f"{name}: the tree is still there")
        return cost

    return place.compare(tree.name, list(commands), run)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; return the exit code."""
    with begun("removing", arguments, 600_000, "frm") as (place, files, jobs):
        for tree in (START, *trees(files)):
            show(f"{tree.name}: {tree.files:,} files", measured(tree, rows(jobs), place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
