"""The detector's waves, counted: a rank reports when it and all below it have been passive.

While somebody works a wave stands still, see `pcircle.circle.termination`; so waves cost few
messages, and what a simulation needs to know of them is how many.
"""

from __future__ import annotations

from collections.abc import Callable


class Waves:
    """Waves on the tree of ranks, one after the other; `is_passive` tells of each rank."""

    def __init__(self, size: int, arity: int, is_passive: Callable[[int], bool]) -> None:
        self.messages = 0
        self._size = size
        self._arity = arity
        self._is_passive = is_passive
        self._awaited = [0] * size  # children that have not reported
        self._is_owed = [False] * size  # and whether the rank itself has not
        self._is_open = False

    def passive(self, rank: int) -> None:
        """A rank has become passive."""
        if not rank and not self._is_open:
            self._open()
        elif self._is_owed[rank] and not self._awaited[rank]:
            self._report(rank)

    def _open(self) -> None:
        size, arity = self._size, self._arity
        self._is_open = True
        self.messages += size - 1
        self._is_owed = [True] * size
        for rank in range(size):
            first = arity * rank + 1
            if first >= size:
                break
            self._awaited[rank] = min(arity, size - first)
        for rank in range(size - 1, -1, -1):
            if self._is_owed[rank] and not self._awaited[rank] and self._is_passive(rank):
                self._report(rank)

    def _report(self, rank: int) -> None:
        self._is_owed[rank] = False
        while rank:
            self.messages += 1
            rank = (rank - 1) // self._arity
            self._awaited[rank] -= 1
            if self._awaited[rank] or not self._is_passive(rank):
                return
            self._is_owed[rank] = False
        self._is_open = False  # all have: the next one begins when rank 0 has run dry again
