"""What a round of the tree of ranks takes when all are idle: the measure of a job's end.

The time is that of messages alone, worked out level by level.
"""

from __future__ import annotations

import numpy as np

from pcircle.scale.machine import Machine
from pcircle.scale.tree import Floats, Ints


class Rounds:
    """The rounds of a tree of `arity` over all ranks."""

    def __init__(self, ranks: int, arity: int, machine: Machine, rng: np.random.Generator) -> None:
        self._machine = machine
        self._rng = rng
        self._arity = arity
        self._levels: list[tuple[int, int]] = []
        begin, end = 0, 1
        while begin < ranks:
            self._levels.append((begin, min(end, ranks)))
            begin, end = end, arity * end + 1

    def round_s(self) -> float:
        """Down to all and up from all."""
        starts = [np.zeros(1)]
        for begin, end in self._levels[1:]:
            children = np.arange(begin, end)
            parents = (children - 1) // self._arity
            starts.append(starts[-1][parents - parents[0]] + self._travel_s(children, parents))
        ready = starts[-1]
        for (begin, end), own in zip(self._levels[:0:-1], starts[-2::-1], strict=True):
            ready = self._gathered(begin, end, ready, own)
        return float(ready[0])

    def _gathered(self, begin: int, end: int, ready: Floats, own: Floats) -> Floats:
        """When the parents of a level have handled what their children send, one by one."""
        children = np.arange(begin, end)
        parents = (children - 1) // self._arity
        arrivals = ready + self._travel_s(children, parents, handled=False)
        table = np.full((len(own), self._arity), -np.inf)
        table[parents - parents[0], (children - 1) % self._arity] = arrivals
        table.sort(axis=1)
        still = np.arange(self._arity, 0, -1) * self._machine.message_s
        done: Floats = np.maximum(own, (table + still).max(axis=1))
        return done

    def _travel_s(self, a: Ints, b: Ints, *, handled: bool = True) -> Floats:
        machine = self._machine
        near = a // machine.ranks_per_node == b // machine.ranks_per_node
        latency = np.where(near, machine.near_s, machine.far_s)
        times: Floats = latency * (1 + machine.jitter * self._rng.exponential(size=len(a)))
        return times + machine.message_s if handled else times
