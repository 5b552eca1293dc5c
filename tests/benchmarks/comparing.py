"""``python -m tests.benchmarks.comparing DIR``: comparisons by fdiff, diff, rsync and perhaps dcmp.

Trees of empty files are compared by status, and three gigabytes by content.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence

from . import datasets, measure
from .turns import START, Costs, Place, begun, show, trees

_BLOCK = random.Random(1).randbytes(1 << 20)
_LARGE_BLOCKS, _MIDDLE, _SMALL, _SMALL_BYTES = 1000, 600, 12_000, 64 << 10


def rows(jobs: Sequence[int], top: str, *, contents: bool) -> dict[str, list[str]]:
    """Return the commands by name."""
    sides = [f"{top}/a", f"{top}/b"]
    slashed = [f"{side}/" for side in sides]
    found = {"rsync -naH": ["rsync", "-naH", *["-c"] * contents, *slashed]}
    if contents:
        found["diff -rq"] = ["diff", "-rq", *sides]
    if shutil.which("dcmp"):
        found["dcmp -n 2"] = ["mpirun", "-np", "2", "dcmp", *["-l"] * (not contents), *sides]
    fdiff = [sys.executable, "-m", "pcircle.tools.fdiff", *["-c"] * contents, *sides]
    for number in jobs:
        found[f"fdiff -j {number}"] = [*fdiff, "-j", str(number)]
    return found


def fill(top: str) -> None:
    """Create a file of a gigabyte, medium files and small ones: three gigabytes in total."""
    os.makedirs(top)
    with open(f"{top}/large", "wb") as stream:
        for _ in range(_LARGE_BLOCKS):
            stream.write(_BLOCK)
    for number in range(_MIDDLE + _SMALL):
        folder = f"{top}/{number % 80}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/{number}", "wb") as stream:
            stream.write(_BLOCK * 2 if number < _MIDDLE else _BLOCK[:_SMALL_BYTES])


def measured(name: str, commands: dict[str, list[str]], place: Place) -> Costs:
    """Return the costs of each command in each round, on an existing tree and its copy."""
    subprocess.run(["cp", "-a", f"{place.top}/a", f"{place.top}/b"], check=True)

    def run(row: str) -> measure.Cost:
        return place.run(row, commands[row])

    costs = place.compare(name, list(commands), run)
    datasets.remove(place.top)
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; return the exit code."""
    with begun("comparing", arguments, 500_000, "fdiff") as (place, files, jobs):
        for tree in (START, *trees(files)):
            tree.build(f"{place.top}/a")
            costs = measured(tree.name, rows(jobs, place.top, contents=False), place)
            show(f"{tree.name}: {tree.files:,} files", costs)
        fill(f"{place.top}/a")
        costs = measured("content", rows(jobs, place.top, contents=True), place)
        show("content: 3 GB on each side", costs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
