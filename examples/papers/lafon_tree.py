"""Synthetic file systems for LaFon et al. 2012: directories with counts of equal files.

LaFon, Misra and Bringhurst ("On distributed file tree walk of parallel file systems", SC12) publish
no shapes of trees, only the numbers of files (`examples.papers.lafon_paper`). So the shape is
chosen by us: one element in twenty is a directory, each lies under a uniformly chosen earlier one
(the depth grows as log d), and files fall on directories with weights ``Exp(1)**2``. With `huge`
one directory holds that share of all files, the case that the paper says hurts.

All files cost the same, so a file has no name here: a directory is its number of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

__all__ = ["ELEMENTS_PER_DIRECTORY", "Tree", "grow"]

ELEMENTS_PER_DIRECTORY = 20


class Tree(msgspec.Struct, frozen=True):
    """The files and the subdirectories of each directory; directory 0 is the root."""

    files: list[int]
    subdirectories: list[Sequence[int]]

    @property
    def directories(self) -> int:
        """How many directories there are."""
        return len(self.files)

    @property
    def elements(self) -> int:
        """Paths to visit: files and directories."""
        return sum(self.files) + len(self.files)


def grow(elements: int, seed: int, huge: float = 0.0) -> Tree:
    """A tree of so many elements."""
    directories = max(1, elements // ELEMENTS_PER_DIRECTORY)
    total = elements - directories
    rng = Random(f"lafon tree {elements} {seed} {huge}")
    below: dict[int, list[int]] = {}
    for directory in range(1, directories):
        below.setdefault(int(rng.random() * directory), []).append(directory)
    subdirectories: list[Sequence[int]] = [below.get(each, ()) for each in range(directories)]
    weights = [rng.expovariate(1.0) ** 2 for _ in range(directories)]
    chosen = int(rng.random() * directories)
    in_huge = round(huge * total)
    # Each directory's files end where its part of the summed weights ends: no rounding is lost.
    scale = (total - in_huge) / sum(weights)
    files = []
    reached, before = 0.0, 0
    for weight in weights:
        reached += weight
        upto = int(reached * scale)
        files.append(upto - before)
        before = upto
    files[chosen] += total - before
    return Tree(files, subdirectories)
