"""The algorithms of LaFon et al. 2012 by name, and pcircle's engine beside them.

A run has so many *cores*: CP, DRQS, DEQS and PA-DRQS have a rank on each, two ranks a node as in
the paper; H-DRQS and pcircle have one rank a node with two threads. So all have the same nodes and
the same number of threads that work, but for CP's master.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache

import msgspec

from examples.papers.lafon_central import walk_centrally
from examples.papers.lafon_cost import Costs, Result
from examples.papers.lafon_engine import walk_by_engine
from examples.papers.lafon_steal import DEQS, DRQS, H_DRQS, PA_DRQS, walk
from examples.papers.lafon_tree import Tree, grow

__all__ = ["DISTRIBUTED", "EVERY", "THREADS", "Walk", "play", "play_all"]

THREADS = 2
_SCHEMES = {"DRQS": DRQS, "DEQS": DEQS, "PA-DRQS": PA_DRQS, "H-DRQS": H_DRQS}
DISTRIBUTED = (*_SCHEMES, "pcircle")
EVERY = ("CP", "CP+", *DISTRIBUTED)


def play(name: str, tree: Tree, cores: int, seed: int, costs: Costs | None = None) -> Result:
    """Walk the tree with an algorithm, by its name, on so many cores."""
    if name in ("CP", "CP+"):
        return walk_centrally(tree, cores, keeps=name == "CP+", costs=costs)
    if name == "pcircle":
        return walk_by_engine(tree, cores // THREADS, THREADS, seed, costs)
    scheme = _SCHEMES[name]
    return walk(tree, cores // scheme.threads, scheme, seed, costs)


class Walk(msgspec.Struct, frozen=True):
    """A walk of the tree that has so many elements and grows from a seed."""

    name: str
    elements: int
    cores: int
    seed: int


def play_all(walks: Sequence[Walk], processes: int | None = None) -> list[Result]:
    """Play walks, by default on all processors; the results are in their order."""
    processes = processes or len(os.sched_getaffinity(0))
    if processes == 1:
        return [_play(one) for one in walks]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(_play, walks))


def _play(one: Walk) -> Result:
    return play(one.name, _grown(one.elements, one.seed), one.cores, one.seed)


_grown = lru_cache(maxsize=1)(grow)
