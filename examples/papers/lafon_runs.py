"""Runs the algorithms of LaFon et al. 2012, and pcircle's engine, by name.

A run has a number of *cores*. CP, DRQS, DEQS and PA-DRQS have one rank on each core and two ranks
on each node, as in the paper. H-DRQS and pcircle have one rank with two threads on each node. So
all have the same nodes and the same number of working threads, except for CP's master.
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
    """Walk the tree with the algorithm *name* on a number of cores."""
    if name in ("CP", "CP+"):
        return walk_centrally(tree, cores, keeps=name == "CP+", costs=costs)
    if name == "pcircle":
        return walk_by_engine(tree, cores // THREADS, THREADS, seed, costs)
    scheme = _SCHEMES[name]
    return walk(tree, cores // scheme.threads, scheme, seed, costs)


class Walk(msgspec.Struct, frozen=True):
    """A walk of a tree with a number of elements, grown from a seed."""

    name: str
    elements: int
    cores: int
    seed: int


def play_all(walks: Sequence[Walk], processes: int | None = None) -> list[Result]:
    """Play walks, by default on all processors; return the results in the order of the walks."""
    processes = processes or len(os.sched_getaffinity(0))
    if processes == 1:
        return [_play(one) for one in walks]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(_play, walks))


def _play(one: Walk) -> Result:
    return play(one.name, _grown(one.elements, one.seed), one.cores, one.seed)


_grown = lru_cache(maxsize=1)(grow)
