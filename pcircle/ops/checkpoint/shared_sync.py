"""Flushes that one rank performs on behalf of all ranks of a node.

The kernel flushes a file system or a file as a whole, whichever process requests it. A rank can
therefore skip its flush if another rank of the job began one after this rank's request and
completed it. The ranks of a node count their flushes on a `pcircle.ops.checkpoint.shared_board`. A
rank that waits for the lock usually finds that the flush before it began late enough. All ranks are
sealed at about the same time, so the first one waits briefly for the others and flushes for all.

A flush that a dead rank had begun never counts as completed. Neither does a flush that failed; the
rank that sees the failure stops the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pcircle.ops.checkpoint.shared_board import SharedBoard

# Delay within which an idle rank learns that it is sealed.
GATHER_S = 0.025


class SyncCounts(NamedTuple):
    """Number of flushes begun, number of the last flush that ended, and number of ranks."""

    begun: int = 0
    ended: int = 0
    ranks: int = 0

    def covers(self, seen: int) -> bool:
        """Return whether a flush has ended that began after `seen` flushes had begun."""
        return self.ended > seen

    def started(self) -> SyncCounts:
        """Return the counts after the start of a flush."""
        return self._replace(begun=self.begun + 1)

    def finished(self) -> SyncCounts:
        """Return the counts after the end of the flush."""
        return self._replace(ended=self.begun)


class SharedSync:
    """Shared flushes of the object `name` in the job with this `token`.

    The first of several ranks waits `gather_s` for the others.
    """

    def __init__(self, token: bytes, name: str, gather_s: float = GATHER_S) -> None:
        """OSError if sharing is impossible."""
        self._gather_s = gather_s
        self._board = SharedBoard(token, name, len(SyncCounts()))
        with self._board.locked() as numbers:
            counts = SyncCounts(*numbers.read())
            numbers.write(counts._replace(ranks=counts.ranks + 1))

    @property
    def counts(self) -> SyncCounts:
        """The counts of all ranks so far."""
        return SyncCounts(*self._board.read())

    def sync(self, flush: Callable[[], None]) -> None:
        """Ensure that data written before this call is on disk; `flush` writes it if necessary."""
        seen = self.counts.begun
        with self._board.locked() as numbers:
            counts = SyncCounts(*numbers.read())
            if counts.covers(seen):
                return
            if counts.ranks > 1:
                time.sleep(self._gather_s)
            counts = counts.started()
            numbers.write(
                counts
            )  # first, so that data written during the flush is not covered by it
            flush()
            numbers.write(counts.finished())

    def close(self) -> None:
        """Release the shared memory."""
        self._board.close()
