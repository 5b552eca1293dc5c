"""The termination of a simulated job by waves on the tree of ranks, and the duration of rounds.

The waves are those of `pcircle.circle.termination`. While there is work, waves of counters detect
the end of unstructured work. A wave waits at each rank that is working. When rank 0 has the result
of the whole job, one round gathers the message counts of all ranks and so detects messages in
flight. If there are any, waves drain the network. Finally, the stop travels down the tree, which
takes half a round.

`round_duration_s` computes the duration of a round of the tree when all ranks are idle. The time
that a job takes to stop is measured in such rounds. Only messages take time, and the duration is
computed level by level for all ranks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TypeAlias

import numpy as np

from pcircle.simulation.tree import Floats, Ints
from pcircle.simulation.work_model import DRAIN, GATHER, QUIESCE, STOP, Machine

WORKING, ENDING, STOPPED = range(3)
_FIRST_PAUSE_S = 0.0005
_MAX_PAUSE_S = 0.05

Sums: TypeAlias = "tuple[int, int]"
"""The numbers of messages sent and received."""


class _Wave:
    """The state of consecutive waves of one kind."""

    def __init__(self, size: int) -> None:
        self.is_open = [False] * size
        self.awaited = [0] * size  # children that have not reported
        self.sent = [0] * size  # sums over the children that have reported
        self.got = [0] * size
        self.due_s = -inf  # start of the next wave, at rank 0
        self.pause_s = _FIRST_PAUSE_S
        self.before: Sums | None = None


class Waves:
    """All waves of a job, on the tree of ranks.

    `parents` contains the parent of each rank, and `children` returns the children of a rank.
    `send` takes a source, a destination, a kind, a body (None on the way down, sums on the way up)
    and the time of departure. `wake` requests a later call of `passive` for rank 0. `is_passive`
    and `counted` take a rank and a kind.
    """

    def __init__(
        self,
        parents: Sequence[int],
        children: Callable[[int], Sequence[int]],
        send: Callable[[int, int, int, Sums | None, float], None],
        wake: Callable[[float], None],
        is_passive: Callable[[int, int], bool],
        counted: Callable[[int, int], Sums],
    ) -> None:
        size = len(parents)
        self.phases: list[int] = [WORKING] * size
        self.stopped: int = 0
        self.stopped_s: float = 0.0
        self._parents = parents
        self._children = children
        self._send = send
        self._wake = wake
        self._is_passive = is_passive
        self._counted = counted
        self._waves = {kind: _Wave(size) for kind in (QUIESCE, DRAIN, GATHER)}
        self._waves[DRAIN].due_s = inf  # until the counts show a message in flight

    def passive(self, rank: int, at_s: float) -> None:
        """Handle a rank that may have become passive."""
        phase = self.phases[rank]
        if phase == WORKING:
            self._advance(rank, QUIESCE, at_s)
        elif phase == ENDING:
            self._report(rank, GATHER, at_s)
            self._advance(rank, DRAIN, at_s)

    def _advance(self, rank: int, kind: int, at_s: float) -> None:
        wave = self._waves[kind]
        if not rank and not wave.is_open[0] and at_s >= wave.due_s and self._is_passive(0, kind):
            self._open(0, kind, at_s)
        self._report(rank, kind, at_s)

    def complete(self, at_s: float) -> None:
        """Start the termination, because rank 0 has the result of the job."""
        self.phases[0] = ENDING
        self._open(0, GATHER, at_s)
        self._report(0, GATHER, at_s)

    def handle(self, rank: int, kind: int, body: Sums | None, at_s: float) -> None:
        """Process a message of a wave, or the final stop message."""
        phase = self.phases[rank]
        if kind == STOP:
            self._stop(rank, at_s)
            return
        if kind == QUIESCE and phase != WORKING:
            return
        if body is None:
            if kind != QUIESCE:
                self.phases[rank] = ENDING
            self._open(rank, kind, at_s)
        else:
            wave = self._waves[kind]
            wave.awaited[rank] -= 1
            wave.sent[rank] += body[0]
            wave.got[rank] += body[1]
        self._report(rank, kind, at_s)

    def _open(self, rank: int, kind: int, at_s: float) -> None:
        wave = self._waves[kind]
        children = self._children(rank)
        wave.is_open[rank] = True
        wave.awaited[rank] = len(children)
        wave.sent[rank] = wave.got[rank] = 0
        for child in children:
            self._send(rank, child, kind, None, at_s)

    def _report(self, rank: int, kind: int, at_s: float) -> None:
        """Report to the parent if all children have reported and the rank is passive."""
        wave = self._waves[kind]
        if not wave.is_open[rank] or wave.awaited[rank] or not self._is_passive(rank, kind):
            return
        wave.is_open[rank] = False
        sent, got = self._counted(rank, kind)
        sums = sent + wave.sent[rank], got + wave.got[rank]
        if rank:
            self._send(rank, self._parents[rank], kind, sums, at_s)
        else:
            self._closed(kind, wave, sums, at_s)

    def _closed(self, kind: int, wave: _Wave, sums: Sums, at_s: float) -> None:
        is_balanced = sums[0] == sums[1]
        if kind != QUIESCE and is_balanced:
            self._stop(0, at_s)
            return
        if kind == GATHER:
            self._waves[DRAIN].due_s = -inf
            self._advance(0, DRAIN, at_s)
            return
        is_new = sums != wave.before
        wave.before = sums
        if kind == QUIESCE and is_balanced and is_new:
            wave.pause_s = _FIRST_PAUSE_S
            self._open(0, kind, at_s)  # a second wave confirms the result
            self._report(0, kind, at_s)
            return
        wave.due_s = at_s + wave.pause_s
        wave.pause_s = min(_MAX_PAUSE_S, 2 * wave.pause_s)
        self._wake(wave.due_s)

    def _stop(self, rank: int, at_s: float) -> None:
        self.phases[rank] = STOPPED
        self.stopped += 1
        self.stopped_s = max(self.stopped_s, at_s)
        for child in self._children(rank):
            self._send(rank, child, STOP, None, at_s)


class RankTree:
    """The tree of `pcircle.circle.topology`, for nodes with the same number of ranks.

    The first ranks of all nodes form a tree, and each of them is the root of a tree of the ranks on
    its node.
    """

    def __init__(self, size: int, arity: int, per_node: int) -> None:
        self.size: int = size
        self.arity: int = arity
        self.per_node: int = per_node
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


def round_duration_s(tree: RankTree, machine: Machine, rng: np.random.Generator) -> float:
    """Return the duration of a round on a tree of ranks, down to all ranks and back up."""

    def travel_s(a: Ints, b: Ints) -> Floats:
        near = a // machine.ranks_per_node == b // machine.ranks_per_node
        latency = np.where(near, machine.near_s, machine.far_s)
        times: Floats = latency * (1 + machine.jitter * rng.exponential(size=len(a)))
        return times

    times, levels = np.zeros(tree.size), tree.levels()
    for ranks in levels[1:]:
        parents = tree.parents[ranks]
        times[ranks] = times[parents] + (travel_s(ranks, parents) + machine.message_s)
    for ranks in levels[:0:-1]:
        # The parents of a level process the messages of their children one at a time.
        parents = tree.parents[ranks]
        arrivals = times[ranks] + travel_s(ranks, parents)
        order = np.lexsort((arrivals, parents))
        parents, arrivals = parents[order], arrivals[order]
        still = np.searchsorted(parents, parents, side="right") - np.arange(len(parents))
        np.maximum.at(times, parents, arrivals + still * machine.message_s)
    return float(times[0])
