"""Synthetic file systems for LaFon et al. 2012: directories with numbers of equal files.

LaFon, Misra and Bringhurst ("On distributed file tree walk of parallel file systems", SC12) publish
only the numbers of files (`examples.papers.lafon_paper`), not the shapes of the trees. So we chose
the shape. One element in twenty is a directory, and each directory is in a uniformly chosen earlier
one (the depth grows as log d). Files are distributed over directories with weights ``Exp(1)**2``.
With `huge` one directory contains that share of all files, the case that the paper calls harmful.

All files cost the same, so files have no names here, and a directory only has a number of files.
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
        """The number of directories."""
        return len(self.files)

    @property
    def elements(self) -> int:
        """The number of paths to visit: files and directories."""
        return sum(self.files) + len(self.files)


def grow(elements: int, seed: int, huge: float = 0.0) -> Tree:
    """Return a tree with a number of elements."""
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
    # The files of a directory end where its part of the summed weights ends, so rounding errors do
    # not add up.
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
