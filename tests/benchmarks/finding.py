"""``python -m tests.benchmarks.finding DIR``: searches by ffind, find, and perhaps bfs and dfind.

The start-up of each tool, the time for a tree with one file, has a separate table: it is equal for
trees of any size.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from . import datasets, measure
from .turns import START, Place, Tree, begun, show, trees


class Search(NamedTuple):
    """A search: the words of find, and those of dfind, which lacks brackets and `-o`."""

    words: tuple[str, ...]
    dfind: tuple[str, ...]


SEARCHES = {
    "all": Search((), ()),
    "-name": Search(("-name", "*7"), ("--name", "*7")),
    "-size": Search(("-type", "f", "-size", "+1k"), ("--type", "f", "--size", "+1024")),
    "-mtime, -printf": Search(("-mtime", "-1", "-printf", "%p %s\\n"), ()),
}


def rows(search: Search, top: str, jobs: Sequence[int]) -> dict[str, list[str]]:
    """Return the commands by name."""
    found = {"find": ["find", top, *search.words]}
    if shutil.which("bfs"):
        found |= _bfs([top, *search.words])
    if shutil.which("dfind") and shutil.which("mpirun") and search.dfind:
        found["dfind -np 2"] = ["mpirun", "-np", "2", "dfind", *search.dfind, "--print", top]
    ffind = [sys.executable, "-m", "pcircle.tools.ffind", top]
    return found | {f"ffind -j{n}": [*ffind, "-j", str(n), *search.words] for n in jobs}


def _bfs(words: list[str]) -> dict[str, list[str]]:
    """Return a bfs that has threads, since version 3, with two of them."""
    asked = subprocess.run(["bfs", "-j2", os.devnull], capture_output=True, check=False)
    if asked.returncode:
        return {"bfs": ["bfs", *words]}
    return {"bfs -j2": ["bfs", "-j2", *words]}


def measured(tree: Tree, jobs: Sequence[int], place: Place) -> None:
    """Run the searches in a tree, in the smallest only the first; print their times."""
    tree.build(place.top)
    for name, search in SEARCHES.items():
        commands = rows(search, place.top, jobs)

        def run(row: str, commands: dict[str, list[str]] = commands) -> measure.Cost:
            return place.run(row, commands[row])

        show(f"{tree.name}: {name}", place.compare(f"{tree.name}: {name}", list(commands), run))
        if tree == START:
            break
    datasets.remove(place.top)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; return the exit code."""
    with begun("finding", arguments, 500_000, "ffind", 5) as (place, files, jobs):
        for tree in (START, *trees(files)):
            measured(tree, jobs, place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
