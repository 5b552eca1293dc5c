"""One flush for all ranks of a node, as far as one can do for several.

The idea: the kernel flushes a file system, or a file, as a whole, whoever asks. So a rank need not,
if another one of its job has begun to after this one wanted it, and has ended. The ranks of a node
count their flushes (`pcircle.checkpoint.node`): who waits for the lock finds mostly that the one
before was begun late enough. Ranks are sealed at about the same time, so the first one may wait for
the others a little while, and flush for all.

What a rank that dies had begun never counts as ended. A flush that failed does not either: the rank
that has it stops the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pcircle.checkpoint.node import Board

# So late may an idle rank hear that it is sealed.
GATHER_S = 0.025


class Syncs(NamedTuple):
    """How many flushes were begun, one after the other, and the number of the last that ended.

    `ranks` have come to share them.
    """

    begun: int = 0
    ended: int = 0
    ranks: int = 0

    def cover(self, seen: int) -> bool:
        """Whether one has ended that was not yet begun when `seen` were."""
        return self.ended > seen

    def began(self) -> Syncs:
        """One more has begun."""
        return self._replace(begun=self.begun + 1)

    def done(self) -> Syncs:
        """It has ended."""
        return self._replace(ended=self.begun)


class SharedSync:
    """The flushes of what the job with this `token` calls `what`.

    The first of several ranks waits for the others for `gather_s`.
    """

    def __init__(self, token: bytes, what: str, gather_s: float = GATHER_S) -> None:
        """OSError if nothing can be shared."""
        self._gather_s = gather_s
        self._board = Board(token, what, len(Syncs()))
        with self._board.locked() as numbers:
            syncs = Syncs(*numbers.read())
            numbers.write(syncs._replace(ranks=syncs.ranks + 1))

    @property
    def syncs(self) -> Syncs:
        """Those of all ranks until now."""
        return Syncs(*self._board.read())

    def sync(self, flush: Callable[[], None]) -> None:
        """What was written before this call is on disk after it: `flush` does that, if need be."""
        seen = self.syncs.begun
        with self._board.locked() as numbers:
            syncs = Syncs(*numbers.read())
            if syncs.cover(seen):
                return
            if syncs.ranks > 1:
                time.sleep(self._gather_s)
            syncs = syncs.began()
            numbers.write(syncs)  # before: who writes meanwhile must not rely on this one
            flush()
            numbers.write(syncs.done())

    def close(self) -> None:
        """Let go."""
        self._board.close()
