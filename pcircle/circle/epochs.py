"""Epochs: when what the ranks have done is on disk, said for all of them at once.

A journal may claim only what a crash can't take back, and that is nobody's
own knowledge: what one rank did may rest on bytes that another node still
holds in its memory. So time is cut into numbered epochs by rounds of the
tree. A round seals epoch n: each rank first counts what it does from now on
to epoch n + 1, then brings to disk what it has done so far, then answers. When
all have answered, rank 0 commits n, and every rank hears of it.

Why that is right: work is counted to the epoch that its rank is in when the
work is *done*. Work of epoch n was done before its rank was sealed for n, so
the sync that followed covers it, and n is committed after all these syncs. A
result that is made of others' is counted to the latest epoch among them; it is
no matter on which rank it is made.

A job that stops early ends with one more round, so that what it did is not
lost if there is time for it. An abort may come as late as the gathering of the
accounts; rank 0 then holds its own back until that round is over.

A missing answer delays a commit, it is never filled in, and rounds do not
overlap: one that was open when the accounts came to be gathered is given up,
and answers to it are known by their number. What waits for a commit
(verification does) can urge: the next round then comes as soon as the ranks
that wait have nothing else to do, but rounds never take more than half of the
time.
"""

from __future__ import annotations

from typing import Any

from pcircle.circle.instructions import Commit, Instruction, Seal
from pcircle.circle.messages import COMMIT, EPOCH, URGE, Down, Message, Up
from pcircle.circle.topology import Tree

Outgoing = list[tuple[int, Message]]


class EpochRounds:
    """One rank's part of the rounds; rank 0 opens one every `period_s` (None: never).

    `sealed` and `committed` are the last epochs that were, `awaited` how many
    items of this rank are held until a commit.
    """

    def __init__(self, tree: Tree, period_s: float | None) -> None:
        self.sealed = 0
        self.committed = 0
        self.awaited = 0
        self._tree = tree
        self._period_s = period_s
        self._open = False
        self._on_disk: int | None = None  # notices given by the end of the sync
        self._waiting: set[int] = set()  # children that have not answered
        self._latest = 0  # epoch that is awaited
        self._urged = False
        self._last = 0
        self._resting = False
        self._opened_s = 0.0
        self._rest_until_s = 0.0
        self._due_s: float | None = None
        self._orders: list[Instruction] = []

    def orders(self) -> list[Instruction]:
        """What is to be done here since the last call."""
        orders, self._orders = self._orders, []
        return orders

    def await_commit(self, epoch: int) -> None:
        """An item is held until `epoch` is committed."""
        self.awaited += 1
        self._latest = max(self._latest, epoch)

    def forget(self) -> None:
        """The job stops early: nothing is awaited any more."""
        self.awaited = self._latest = 0

    def handle(self, source: int, message: Down | Up[Any]) -> Outgoing:
        """A message of a round has come, or one that urges."""
        if isinstance(message, Up):
            if message.kind == URGE:
                return self._urge(message.number)
            if self._open and message.number == self.sealed:
                self._waiting.discard(source)
            return []
        if message.kind == EPOCH:
            return self._seal(message.number)
        return self._commit(message.number)

    def synced(self, epoch: int, noted: int) -> None:
        """What this rank did in `epoch` and before is on disk; it gave `noted` notices by now."""
        if epoch == self.sealed:
            self._on_disk = noted

    def advance(self, idle: bool, heard: int, now_s: float) -> Outgoing:
        """Answer, commit or open a round, as far as it is time.

        `idle`: there is no other work here; `heard`: the notices of this rank that rank 0 has
        received.
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
                out.append((self._tree.parent, Up(EPOCH, self.sealed)))
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
        """At rank 0, when all work has ended: whether no epoch is to come any more.

        A job that was aborted has one more, which begins when this is asked first.
        """
        if self._period_s is None or not aborted:
            return True
        if not self._last:
            self._last = self.sealed + 1
            self._due_s = now_s
        return self.committed >= self._last

    def rest(self) -> None:
        """The accounts are gathered: give up an open round, and have none but `are_over`'s."""
        self._resting = True
        self._open = False

    def _may_open(self) -> bool:
        return self.sealed < self._last if self._resting else self.sealed == self.committed

    def _urge(self, number: int) -> Outgoing:
        # Who was sealed later than the one who urges will bring it what it wants.
        if self._urged or number < self.sealed:
            return []
        self._urged = True
        return [] if self._tree.parent is None else [(self._tree.parent, Up(URGE, number))]

    def _seal(self, number: int) -> Outgoing:
        self.sealed = number
        self._open = True
        self._on_disk, self._urged = None, False
        self._waiting = set(self._tree.children)
        self._orders.append(Seal(number))
        return [(child, Down(EPOCH, number)) for child in self._tree.children]

    def _commit(self, number: int) -> Outgoing:
        self.committed = number
        self._orders.append(Commit(number))
        return [(child, Down(COMMIT, number)) for child in self._tree.children]

    def wakeup_s(self) -> float | None:
        """When rank 0 may open the next round."""
        closed = self._period_s is None or self._open or not self._may_open()
        return None if closed else self._due_s
