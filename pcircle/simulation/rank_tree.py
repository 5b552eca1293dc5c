"""The tree of ranks, and the duration of one of its rounds when all ranks are idle.

A round is the unit in which the end of a job is measured. Only messages take time, and the duration
is computed level by level for all ranks at once.
"""

from __future__ import annotations

import numpy as np

from pcircle.simulation.machine import Machine
from pcircle.simulation.tree import Floats, Ints


class RankTree:
    """The tree of `pcircle.circle.topology`, for nodes with the same number of ranks.

    The first ranks of all nodes form a tree, and each of them is the root of a tree of the ranks on
    its node.
    """

    def __init__(self, size: int, arity: int, per_node: int) -> None:
        self.size, self.arity, self.per_node = size, arity, per_node
        ranks = np.arange(size, dtype=np.int64)
        place = ranks % per_node
        inside = ranks - place + (place - 1) // arity
        across = (ranks // per_node - 1) // arity * per_node
        self.parents: Ints = np.where(place > 0, inside, across)
        self.parents[0] = -1

    def children(self, rank: int) -> list[int]:
        """Return the children of a rank, with children on other nodes first."""
        node, place = divmod(rank, self.per_node)
        first = rank - place
        near = self.arity * place + 1
        last = min(near + self.arity, self.per_node, self.size - first)
        on_node = list(range(first + near, first + last))
        if place:
            return on_node
        far = (self.arity * node + 1) * self.per_node
        last = min(far + self.arity * self.per_node, self.size)
        return [*range(far, last, self.per_node), *on_node]

    def levels(self) -> list[Ints]:
        """Return the ranks grouped by depth, starting with rank 0."""
        depth = np.zeros(self.size, dtype=np.int64)
        above = self.parents.copy()
        while (has_parent := above >= 0).any():
            depth += has_parent
            above = np.where(has_parent, self.parents[above], -1)
        return [np.flatnonzero(depth == level) for level in range(int(depth.max()) + 1)]


class Rounds:
    """Computes the duration of rounds on a tree of ranks."""

    def __init__(self, tree: RankTree, machine: Machine, rng: np.random.Generator) -> None:
        self._machine = machine
        self._rng = rng
        self._tree = tree
        self._levels = tree.levels()

    def round_s(self) -> float:
        """Return the duration of a round, down to all ranks and back up."""
        times = np.zeros(self._tree.size)
        for ranks in self._levels[1:]:
            parents = self._tree.parents[ranks]
            times[ranks] = times[parents] + self._travel_s(ranks, parents)
        for ranks in self._levels[:0:-1]:
            self._gather(ranks, times)
        return float(times[0])

    def _gather(self, ranks: Ints, times: Floats) -> None:
        """Make the parents of a level process the messages of their children one at a time."""
        parents = self._tree.parents[ranks]
        arrivals = times[ranks] + self._travel_s(ranks, parents, handled=False)
        order = np.lexsort((arrivals, parents))
        parents, arrivals = parents[order], arrivals[order]
        still = np.searchsorted(parents, parents, side="right") - np.arange(len(parents))
        np.maximum.at(times, parents, arrivals + still * self._machine.message_s)

    def _travel_s(self, a: Ints, b: Ints, *, handled: bool = True) -> Floats:
        machine = self._machine
        near = a // machine.ranks_per_node == b // machine.ranks_per_node
        latency = np.where(near, machine.near_s, machine.far_s)
        times: Floats = latency * (1 + machine.jitter * self._rng.exponential(size=len(a)))
        return times + machine.message_s if handled else times
