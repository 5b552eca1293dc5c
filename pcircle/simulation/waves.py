"""How a simulated job ends: waves on the tree of ranks, as in `pcircle.circle.termination`.

While there is work, waves of counters look for the end of unstructured work; one stands still
while somebody works. When rank 0 has the result of the whole, one round gathers what every rank has
to tell, and whether a message is left; if so, waves drain the network; half a round says stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TypeAlias

from pcircle.simulation.kinds import DRAIN, GATHER, QUIESCE, STOP

WORKING, ENDING, STOPPED = range(3)
_FIRST_PAUSE_S = 0.0005
_MAX_PAUSE_S = 0.05

Sums: TypeAlias = "tuple[int, int]"
"""Messages sent and received."""


class _Wave:
    """Waves of one kind, one after the other."""

    def __init__(self, size: int) -> None:
        self.is_open = [False] * size
        self.awaited = [0] * size  # children that have not reported
        self.sent = [0] * size  # of those that have
        self.got = [0] * size
        self.due_s = -inf  # the next one, at rank 0
        self.pause_s = _FIRST_PAUSE_S
        self.before: Sums | None = None


class Waves:
    """All waves of a job, on the tree of ranks.

    `parents` has one for each rank, and `children` says those of one. `send`
    has a source, a destination, a kind, a body (None: down, else sums) and when
    it leaves; `wake` asks for a call of `passive` for rank 0 later. `is_passive`
    and `counted` tell of each rank, by kind.
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
        self.phases = [WORKING] * size
        self.stopped = 0
        self.stopped_s = 0.0
        self._parents = parents
        self._children = children
        self._send = send
        self._wake = wake
        self._is_passive = is_passive
        self._counted = counted
        self._waves = {kind: _Wave(size) for kind in (QUIESCE, DRAIN, GATHER)}
        self._waves[DRAIN].due_s = inf  # not before the accounts tell that a message is left

    def passive(self, rank: int, at_s: float) -> None:
        """A rank may have become passive."""
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
        """Rank 0 has the result of the whole."""
        self.phases[0] = ENDING
        self._open(0, GATHER, at_s)
        self._report(0, GATHER, at_s)

    def handle(self, rank: int, kind: int, body: Sums | None, at_s: float) -> None:
        """A message of a wave has come, or the last one of all."""
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
        """Report if all below have, and the rank itself is passive."""
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
            self._open(0, kind, at_s)  # the one that is to confirm it
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
