"""Epochs: agreement of all ranks on which work is on disk.

A journal may record only work that a crash cannot undo. No rank can know this alone, because its
work may depend on bytes that another node still holds in memory. So rounds of messages down and up
the tree of ranks divide time into numbered epochs. A round seals epoch n: each rank first assigns
its subsequent work to epoch n + 1, then flushes its earlier work to disk, then answers. When all
ranks have answered, rank 0 commits n and broadcasts the commit.

Correctness: work belongs to the epoch of its rank at the time when the work is *done*. Work of
epoch n is done before its rank is sealed for n, so the sync that follows covers it, and n is
committed after all these syncs. A merged result belongs to the latest epoch of its parts, whichever
rank merges them.

A job that stops early ends with one more round, if time permits, so that its work is not lost. If
an abort arrives while the accounts are being gathered, rank 0 withholds its own account until that
round is complete.

An answer is never assumed: a commit waits until the last one arrives. Rounds do not overlap. A
round that is open when the accounts are gathered is abandoned; its late answers are recognised by
their number. If items of a rank wait for a commit, as in verification, and nothing else is left to
do, the rank urges rank 0 to open the next round early. An urged round still waits as long as the
previous round took, or for the period if that is shorter.
"""

from __future__ import annotations

from typing import TypeAlias

from pcircle.circle.instructions import CommitEpoch, SealEpoch
from pcircle.circle.messages import COMMIT, EPOCH, URGE, Message, R, TreeBroadcast, TreeReduction
from pcircle.circle.topology import TreePosition

Outgoing = list[tuple[int, Message]]
Order: TypeAlias = SealEpoch | CommitEpoch


class EpochRounds:
    """One rank's part of the rounds. If `period_s` is not None, rank 0 opens rounds periodically.

    `sealed` and `committed` are the last epochs sealed and committed, and `awaited` is the number
    of this rank's items that are held until a commit.
    """

    def __init__(self, tree: TreePosition, period_s: float | None) -> None:
        self.sealed: int = 0
        self.committed: int = 0
        self.awaited: int = 0
        self._tree = tree
        self._period_s = period_s
        self._open = False
        self._on_disk: int | None = None  # notices added by the end of the sync
        self._waiting: set[int] = set()  # children that have not answered
        self._latest = 0  # the latest epoch that is awaited
        self._urged = False
        self._last = 0
        self._is_finishing = False
        self._opened_s = 0.0
        self._rest_until_s = 0.0
        self._due_s: float | None = None
        self._orders: list[Order] = []

    def orders(self) -> list[Order]:
        """Return the instructions issued since the last call."""
        orders, self._orders = self._orders, []
        return orders

    def await_commit(self, epoch: int) -> None:
        """Record that an item is held until `epoch` is committed."""
        self.awaited += 1
        self._latest = max(self._latest, epoch)

    def forget(self) -> None:
        """Stop waiting for commits, because the job is stopping early."""
        self.awaited = self._latest = 0

    def handle(self, source: int, message: TreeBroadcast | TreeReduction[R]) -> Outgoing:
        """Process a message of a round, or one that urges the next round."""
        if isinstance(message, TreeReduction):
            if message.kind == URGE:
                return self._urge(message.number)
            if self._open and message.number == self.sealed:
                self._waiting.discard(source)
            return []
        if message.kind == EPOCH:
            return self._seal(message.number)
        return self._commit(message.number)

    def synced(self, epoch: int, notices: int) -> None:
        """Record that this rank's work up to `epoch` is on disk.

        `notices` is the number of notices that the rank has added so far.
        """
        if epoch == self.sealed:
            self._on_disk = notices

    def advance(self, idle: bool, heard: int, now_s: float) -> Outgoing:
        """Answer, commit or open a round if possible.

        `idle` is true if this rank has no other work, and `heard` is the number of its notices that
        rank 0 has received.
        """
        if self._period_s is None:
            return []
        out: Outgoing = []
        if idle and self.awaited and self._latest > self.sealed:
            out += self._urge(self.sealed)
        is_synced = self._on_disk is not None and heard >= self._on_disk
        if self._open and is_synced and not self._waiting:
            self._open = False
            if self._tree.parent is not None:
                out.append((self._tree.parent, TreeReduction(EPOCH, self.sealed)))
            else:
                out += self._commit(self.sealed)
                self._rest_until_s = now_s + (now_s - self._opened_s)
                self._due_s = now_s + (0.0 if self._last > self.sealed else self._period_s)
        if self._tree.parent is None and self._may_open():
            if self._due_s is None:
                self._due_s = now_s + self._period_s
            if self._urged:
                self._due_s = min(self._due_s, self._rest_until_s)
            if now_s >= self._due_s:
                self._opened_s = now_s
                out += self._seal(self.sealed + 1)
        return out

    def are_over(self, aborted: bool, now_s: float) -> bool:
        """Return whether no further epoch will follow. Called on rank 0 after all work has ended.

        An aborted job needs one more epoch, which this method requests when it is first called.
        """
        if self._period_s is None or not aborted:
            return True
        if not self._last:
            self._last = self.sealed + 1
            self._due_s = now_s
        return self.committed >= self._last

    def finish(self) -> None:
        """Abandon an open round; open no more except the one that `are_over` may request."""
        self._is_finishing = True
        self._open = False

    def _may_open(self) -> bool:
        return self.sealed < self._last if self._is_finishing else self.sealed == self.committed

    def _urge(self, number: int) -> Outgoing:
        # If this rank is sealed for a later epoch, the requested round has already begun.
        if self._urged or number < self.sealed:
            return []
        self._urged = True
        return (
            [] if self._tree.parent is None else [(self._tree.parent, TreeReduction(URGE, number))]
        )

    def _seal(self, number: int) -> Outgoing:
        self.sealed = number
        self._open = True
        self._on_disk, self._urged = None, False
        self._waiting = set(self._tree.children)
        self._orders.append(SealEpoch(number))
        return [(child, TreeBroadcast(EPOCH, number)) for child in self._tree.children]

    def _commit(self, number: int) -> Outgoing:
        self.committed = number
        self._orders.append(CommitEpoch(number))
        return [(child, TreeBroadcast(COMMIT, number)) for child in self._tree.children]

    def wakeup_s(self) -> float | None:
        """Return the time at which rank 0 may open the next round, or None."""
        closed = self._period_s is None or self._open or not self._may_open()
        return None if closed else self._due_s
