"""Rounds on the tree of ranks: progress, the accounts at the end of a job, and epochs.

Rounds travel down the tree as `TreeBroadcast` messages and return as merged `TreeReduction`
messages.

Progress and accounts. Unlike termination waves, these rounds can have deadlines: a rank that is
stuck in a system call must block neither the display of progress nor the end of an aborted job. If
a child does not answer a progress round in time, its parent uses the child's last value, marked as
stale. In the final round of an aborted job, the parent lists the child as silent. A job that ends
normally waits for all accounts, because all are needed and there is no hurry. The deeper a rank is
in the tree, the less time it gives its children, so that it can still answer its own parent in
time.

Epochs: agreement of all ranks on which work is on disk. A journal may record only work that a crash
cannot undo. No rank can know this alone, because its work may depend on bytes that another node
still holds in memory. So rounds divide time into numbered epochs. A round seals epoch n: each rank
first assigns its subsequent work to epoch n + 1, then flushes its earlier work to disk, then
answers. When all ranks have answered, rank 0 commits n and broadcasts the commit.

Correctness: work belongs to the epoch of its rank at the time when the work is *done*. Work of
epoch n is done before its rank is sealed for n, so the sync that follows covers it, and n is
committed after all these syncs. A merged result belongs to the latest epoch of its parts, whichever
rank merges them.

A job that stops early ends with one more epoch, if time permits, so that its work is not lost. If
an abort arrives while the accounts are being gathered, rank 0 withholds its own account until that
epoch's round is complete.

The answer to a round of an epoch is never assumed: a commit waits until the last one arrives. These
rounds do not overlap. A round that is open when the accounts are gathered is abandoned; its late
answers are recognised by their number. If items of a rank wait for a commit, as in verification,
and nothing else is left to do, the rank urges rank 0 to open the next round early. An urged round
still waits as long as the previous round took, or for the period if that is shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Generic, TypeAlias

from pcircle.circle.instructions import CommitEpoch, SealEpoch, ShowProgress
from pcircle.circle.messages import (
    COMMIT,
    EPOCH,
    GATHER,
    PROGRESS,
    URGE,
    FinalAccount,
    Message,
    MessageCounts,
    ProgressSums,
    R,
    TreeBroadcast,
    TreeReduction,
)
from pcircle.circle.topology import TreePosition
from pcircle.core.errors import require, worst

Outgoing = list[tuple[int, Message]]
Order: TypeAlias = SealEpoch | CommitEpoch

MAX_REASONS = 100
MAX_SILENT = 1000
"""The maximum numbers of reasons and of silent ranks that an account lists."""


def earlier(a: float | None, b: float | None) -> float | None:
    """Return the earlier of two times; None means never."""
    if a is None or b is None:
        return b if a is None else a
    return a if a < b else b


def merge_accounts(
    a: FinalAccount[R], b: FinalAccount[R], merge: Callable[[R, R], R]
) -> FinalAccount[R]:
    """Return the account of two disjoint sets of ranks. `merge` merges their values."""
    if a.value is None or b.value is None:
        value = a.value if b.value is None else b.value
    else:
        value = merge(a.value, b.value)
    reasons = a.reasons + tuple(reason for reason in b.reasons if reason not in a.reasons)
    silent = a.silent + b.silent
    return FinalAccount(
        reports=a.reports + b.reports,
        value=value,
        code=worst((a.code, b.code)),
        reasons=reasons[:MAX_REASONS],
        silent=silent[:MAX_SILENT],
        open_joins=a.open_joins + b.open_joins,
        more_reasons=a.more_reasons + b.more_reasons + max(0, len(reasons) - MAX_REASONS),
        more_silent=a.more_silent + b.more_silent + max(0, len(silent) - MAX_SILENT),
    )


class ProgressRounds:
    """Periodic sums of the ranks' counters. For late answers, older values count, marked as stale.

    `measure` returns this rank's own counters. If `period_s` is not None, rank 0 opens rounds
    periodically. `sums` is the result of the latest round.
    """

    def __init__(
        self, tree: TreePosition, period_s: float | None, measure: Callable[[], ProgressSums]
    ) -> None:
        self.sums: ProgressSums | None = None
        self.rounds: int = 0
        self._shown: ProgressSums | None = None
        self._tree = tree
        self._period_s = inf if period_s is None else period_s
        self._measure = measure
        self._patience_s = (period_s or 1.0) * 0.8 * tree.patience()
        self._number = 0
        self._waiting: set[int] = set()
        self._last: dict[int, ProgressSums] = {}
        self._deadline_s: float | None = None  # of the open round
        self._due_s: float | None = 0.0 if period_s is not None and tree.parent is None else None

    def handle(
        self, source: int, message: TreeBroadcast | TreeReduction[R], now_s: float
    ) -> Outgoing:
        """Open a round, or process a child's answer, even if it is too late for its round."""
        if isinstance(message, TreeBroadcast):
            return self._open(message.number, now_s)
        self._last[source] = require(message.sums)
        if message.number == self._number:
            self._waiting.discard(source)
        return self.advance(now_s)

    def ask(self, now_s: float) -> Outgoing:
        """On rank 0, start a round now, regardless of the period, unless one is open."""
        if self._deadline_s is not None:
            return []
        self.rounds += 1
        return self._open(self._number + 1, now_s)

    def _open(self, number: int, now_s: float) -> Outgoing:
        # A round that is still open here is abandoned, because the parent has abandoned it.
        self._number = number
        self._waiting = set(self._tree.children)
        self._deadline_s = now_s + self._patience_s
        out: Outgoing = [(child, TreeBroadcast(PROGRESS, number)) for child in self._tree.children]
        return out + self.advance(now_s)

    def advance(self, now_s: float) -> Outgoing:
        """Close the round if it is complete or overdue; open the next one if it is due."""
        if self._deadline_s is not None and (not self._waiting or now_s >= self._deadline_s):
            return self._close()
        if self._deadline_s is None and self._due_s is not None and now_s >= self._due_s:
            self._due_s = now_s + self._period_s
            self.rounds += 1
            return self._open(self._number + 1, now_s)
        return []

    def _close(self) -> Outgoing:
        self._deadline_s = None
        total = self._measure()
        for child in self._tree.children:
            last = self._last.get(child)
            if last is None:
                continue
            if child in self._waiting:
                last = ProgressSums(last.counts, last.weight, last.ranks, last.ranks)
            total = total + last
        if self._tree.parent is not None:
            return [(self._tree.parent, TreeReduction(PROGRESS, self._number, sums=total))]
        self.sums = total
        return []

    def news(self) -> list[ShowProgress]:
        """Return an instruction to display the sums, if they are new since the last call."""
        if self.sums is None or self.sums is self._shown:
            return []
        self._shown = self.sums
        return [ShowProgress(self.sums)]

    def wakeup_s(self) -> float | None:
        """Return the time of the next deadline or round, or None."""
        return self._deadline_s if self._deadline_s is not None else self._due_s


class GatherRound(Generic[R]):
    """The round that collects the ranks' accounts.

    `account` returns this rank's own account, and is called when the rank is idle and its children
    have answered. `merge` merges the accounts' values. The parameter `counted` returns the numbers
    of messages that this rank has sent and received. The property `counted` adds the numbers of the
    ranks below. A child that is `lost`, or that does not answer within `patience_s` after `hurry`,
    is listed as silent. The state of the ranks below it is then unknown too.
    """

    def __init__(
        self,
        tree: TreePosition,
        patience_s: float,
        account: Callable[[], FinalAccount[R]],
        merge: Callable[[R, R], R],
        counted: Callable[[], MessageCounts] = MessageCounts,
    ) -> None:
        self.total: FinalAccount[R] | None = None
        self._tree = tree
        self._account = account
        self._merge = merge
        self._counted = counted
        self._counted_below = MessageCounts()
        self._patience_s = patience_s * tree.patience()
        self._begun = False
        self._open = False
        self._waiting: set[int] = set()
        self._answers: list[FinalAccount[R]] = []
        self._deadline_s: float | None = None

    @property
    def closed(self) -> bool:
        """Return whether this rank has given its account."""
        return self._begun and not self._open

    @property
    def has_all(self) -> bool:
        """Return whether the round is open here and all children have answered."""
        return self._open and not self._waiting

    @property
    def counted(self) -> MessageCounts:
        """The messages of this rank now, and of the ranks below when they answered."""
        return self._counted() + self._counted_below

    def open(self) -> Outgoing:
        """Open the round on this rank and below."""
        self._begun = self._open = True
        self._waiting = set(self._tree.children)
        return [(child, TreeBroadcast(GATHER, 1)) for child in self._tree.children]

    def hurry(self, now_s: float) -> None:
        """Set a deadline, because the job was aborted."""
        if self._deadline_s is None:
            self._deadline_s = now_s + self._patience_s

    def handle(self, source: int, message: TreeReduction[R]) -> None:
        """Record a child's account."""
        if self._open and source in self._waiting:
            self._waiting.discard(source)
            self._answers.append(require(message.account))
            self._counted_below += message.counted or MessageCounts()

    def advance(self, lost: set[int], idle: bool, now_s: float) -> Outgoing:
        """Close the round when no child and no work of this rank is pending, or at the deadline."""
        if not self._open:
            return []
        overdue = self._deadline_s is not None and now_s >= self._deadline_s
        if (not idle or self._waiting - lost) and not overdue:
            return []
        self._open = False
        total = self._account()
        for answer in self._answers:
            total = merge_accounts(total, answer, self._merge)
        silent = FinalAccount[R](silent=tuple(sorted(self._waiting)))
        total = merge_accounts(total, silent, self._merge)
        if self._tree.parent is not None:
            return [
                (self._tree.parent, TreeReduction(GATHER, 1, counted=self.counted, account=total))
            ]
        self.total = total
        return []

    def wakeup_s(self) -> float | None:
        """Return this rank's deadline, or None."""
        return self._deadline_s if self._open else None


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
