"""Rounds that must not wait forever: progress while the job runs, the accounts at its end.

Both go down the tree of ranks as a `Down` and come back as merged `Up`s. Unlike
a termination wave they have deadlines, because a rank that is stuck in a
system call must silence neither the progress of the rest nor the end of the
job. For progress a parent goes on with the last value that it had from the
missing child, marked stale. For the final accounts of an aborted job it names
the child as silent; a job that ends well waits for all of them, because none
may be left out and nobody is in a hurry. A parent's patience shrinks with its
depth, so that it answers its own parent while that one still listens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pcircle.circle.instructions import Instruction, Show
from pcircle.circle.messages import GATHER, PROGRESS, Account, Counted, Down, Message, Sums, Up
from pcircle.circle.topology import Tree
from pcircle.errors import worst
from pcircle.guards import require

Outgoing = list[tuple[int, Message]]

MAX_REASONS = 100
MAX_SILENT = 1000
"""How many of each an account names."""


def earlier(a: float | None, b: float | None) -> float | None:
    """The earlier of two times, of which either may be never."""
    if a is None or b is None:
        return b if a is None else a
    return a if a < b else b


def merge_accounts(
    a: Account[Any], b: Account[Any], merge: Callable[[Any, Any], Any]
) -> Account[Any]:
    """The account of two sets of ranks together; `merge` is that of their values."""
    if a.value is None or b.value is None:
        value = a.value if b.value is None else b.value
    else:
        value = merge(a.value, b.value)
    reasons = a.reasons + tuple(reason for reason in b.reasons if reason not in a.reasons)
    silent = a.silent + b.silent
    return Account(
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
    """Sums of counters, now and then, with what is missing marked stale.

    `measure` gives this rank's own counters. Rank 0 opens a round every
    `period_s` (None: never) and has the sums of the latest one in `sums`.
    """

    def __init__(self, tree: Tree, period_s: float | None, measure: Callable[[], Sums]) -> None:
        self.sums: Sums | None = None
        self.rounds = 0
        self._shown: Sums | None = None
        self._tree = tree
        self._period_s = period_s
        self._measure = measure
        self._patience_s = (period_s or 1.0) * 0.8 * tree.patience()
        self._number = 0
        self._waiting: set[int] = set()
        self._last: dict[int, Sums] = {}
        self._deadline_s: float | None = None  # of the open round
        self._due_s: float | None = 0.0 if period_s is not None and tree.parent is None else None

    def handle(self, source: int, message: Down | Up[Any], now_s: float) -> Outgoing:
        """A round opens, or a child answers, possibly too late for its round."""
        if isinstance(message, Down):
            return self._open(message.number, now_s)
        self._last[source] = require(message.sums)
        if message.number == self._number:
            self._waiting.discard(source)
        return self.advance(now_s)

    def ask(self, now_s: float) -> Outgoing:
        """On rank 0: have a round now, whatever the period; one that is open will do."""
        if self._deadline_s is not None:
            return []
        self.rounds += 1
        return self._open(self._number + 1, now_s)

    def _open(self, number: int, now_s: float) -> Outgoing:
        # A round that is still open here is given up: the parent has gone on.
        self._number = number
        self._waiting = set(self._tree.children)
        self._deadline_s = now_s + self._patience_s
        out: Outgoing = [(child, Down(PROGRESS, number)) for child in self._tree.children]
        return out + self.advance(now_s)

    def advance(self, now_s: float) -> Outgoing:
        """Close the open round if all have answered or time is up; open the next if due."""
        if self._deadline_s is not None and (not self._waiting or now_s >= self._deadline_s):
            return self._close()
        if self._deadline_s is None and self._due_s is not None and now_s >= self._due_s:
            self._due_s = now_s + require(self._period_s)
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
                last = Sums(last.counts, last.weight, last.ranks, last.ranks)
            total = total + last
        if self._tree.parent is not None:
            return [(self._tree.parent, Up(PROGRESS, self._number, sums=total))]
        self.sums = total
        return []

    def news(self) -> list[Instruction]:
        """What is to be shown since the last call."""
        if self.sums is None or self.sums is self._shown:
            return []
        self._shown = self.sums
        return [Show(self.sums)]

    def wakeup_s(self) -> float | None:
        """When `advance` has something to do although nothing arrives."""
        return self._deadline_s if self._deadline_s is not None else self._due_s


class GatherRound:
    """The one round that collects the ranks' accounts.

    `account` gives this rank's own when it is asked for, which is when its
    children's are there and it is idle; `merge` is that of their values. `counted`
    gives the messages that it has sent and received by then, of which rank 0
    has the sum in `counted_by_all`. A
    child that is `lost`, or that does not answer within `patience_s` of
    `hurry`, is named as silent; what lies below it is then unknown too.
    """

    def __init__(
        self,
        tree: Tree,
        patience_s: float,
        account: Callable[[], Account[Any]],
        merge: Callable[[Any, Any], Any],
        counted: Callable[[], Counted] = Counted,
    ) -> None:
        self.total: Account[Any] | None = None
        self._tree = tree
        self._account = account
        self._merge = merge
        self._counted = counted
        self._counted_below = Counted()
        self._patience_s = patience_s * tree.patience()
        self._begun = False
        self._open = False
        self._waiting: set[int] = set()
        self._answers: list[Account[Any]] = []
        self._deadline_s: float | None = None

    @property
    def closed(self) -> bool:
        """Whether this rank has given its account."""
        return self._begun and not self._open

    @property
    def has_all(self) -> bool:
        """Whether it is open here, and all children have answered."""
        return self._open and not self._waiting

    @property
    def counted(self) -> Counted:
        """Of this rank now, and of those below that have answered as they were then."""
        return self._counted() + self._counted_below

    def open(self) -> Outgoing:
        """Begin, here and below."""
        self._begun = self._open = True
        self._waiting = set(self._tree.children)
        return [(child, Down(GATHER, 1)) for child in self._tree.children]

    def hurry(self, now_s: float) -> None:
        """The job was aborted: from now on, patience has an end."""
        if self._deadline_s is None:
            self._deadline_s = now_s + self._patience_s

    def handle(self, source: int, message: Up[Any]) -> None:
        """A child's account has come."""
        if self._open and source in self._waiting:
            self._waiting.discard(source)
            self._answers.append(require(message.account))
            self._counted_below += message.counted or Counted()

    def advance(self, lost: set[int], idle: bool, now_s: float) -> Outgoing:
        """Close if neither a child nor this rank's own work is waited for, or no longer."""
        if not self._open:
            return []
        overdue = self._deadline_s is not None and now_s >= self._deadline_s
        if (not idle or self._waiting - lost) and not overdue:
            return []
        self._open = False
        total = self._account()
        for answer in self._answers:
            total = merge_accounts(total, answer, self._merge)
        silent = Account[Any](silent=tuple(sorted(self._waiting)))
        total = merge_accounts(total, silent, self._merge)
        if self._tree.parent is not None:
            return [(self._tree.parent, Up(GATHER, 1, counted=self.counted, account=total))]
        self.total = total
        return []

    def wakeup_s(self) -> float | None:
        """The end of this rank's patience."""
        return self._deadline_s if self._open else None
