"""Rounds of the tree of ranks: how a job that has no more work finds its end, and what it takes.

When the result of the whole is known on rank 0, a wave of counters drains the
network, one round gathers what every rank has to tell, and half a round says
stop: see `pcircle.circle.termination`. All ranks are idle by then, so the time is
that of messages alone, worked out level by level.
"""

from __future__ import annotations

import numpy as np

from pcircle.scale.machine import Machine
from pcircle.scale.tree import Floats, Ints

DRAIN_WAVES = 1
ROUNDS = DRAIN_WAVES + 1 + 0.5


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

    def down_s(self) -> float:
        """From the root to the last leaf."""
        times = np.zeros(1)
        for begin, end in self._levels[1:]:
            children = np.arange(begin, end)
            parents = (children - 1) // self._arity
            times = times[parents - parents[0]] + self._travel_s(children, parents)
        return float(times.max())

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


def end_messages(ranks: int) -> int:
    """Messages of the rounds at the end: those of the drain, the accounts and the stop."""
    return (2 * DRAIN_WAVES + 2 + 1) * (ranks - 1)
