"""The shutdown of a rank: draining messages, giving the final account, and the deadlines.

A job that ends well has no deadline. Its accounts are collected in one round of the tree, which
also sums the message counters. While these do not balance, waves follow until no message is in
flight (`pcircle.circle.termination` has the argument), and rank 0 withholds its own account: an
abort counts until rank 0 concludes. After an abort the waves come first, and everything has a
deadline: half of `EngineSettings.final_deadline_s` for the waves, a quarter for the accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic

from pcircle.circle.messages import DRAIN, FinalAccount, R
from pcircle.circle.rounds import GatherRound, Outgoing, earlier
from pcircle.circle.termination import DrainWaves
from pcircle.circle.topology import TreePosition


class Shutdown(Generic[R]):
    """One rank's part of the shutdown; for `account` and `merge` see `GatherRound`."""

    def __init__(
        self,
        tree: TreePosition,
        deadline_s: float,
        account: Callable[[], FinalAccount[R]],
        merge: Callable[[R, R], R],
    ) -> None:
        self.drain = DrainWaves(tree, DRAIN)
        self.gather = GatherRound(tree, deadline_s / 4, account, merge, lambda: self.drain.counted)
        self.began_well = False  # no abort was known when gathering began
        self.give_up_s: float | None = None
        self._is_root = tree.parent is None
        self._deadline_s = deadline_s

    def hurry(self, now_s: float) -> None:
        """Set a deadline, from now, for everything that does not end by itself."""
        if self.give_up_s is None:
            # Other ranks wait longer, so that the decision of rank 0 has time to reach them.
            self.give_up_s = now_s + self._deadline_s * (1 if self._is_root else 2)

    @property
    def drain_until_s(self) -> float | None:
        """The time at which rank 0 gathers the accounts, even if messages are in flight."""
        return None if self.give_up_s is None else self.give_up_s - self._deadline_s / 2

    def gives_up(self, now_s: float) -> bool:
        """Return whether rank 0 stops waiting for messages in flight after an abort."""
        return self.drain_until_s is not None and now_s >= self.drain_until_s

    def drain_after(self, is_settled: bool, lost: Collection[int], now_s: float) -> Outgoing:
        """Advance the waves that follow this rank's account, or, on rank 0, precede it."""
        if self._is_root:
            if not self.gather.has_all or self.is_drained(lost):
                return []
        elif not self.gather.closed:
            return []
        return self.drain.advance(is_settled, now_s)

    def is_drained(self, lost: Collection[int]) -> bool:
        """Return, on rank 0 with the other ranks' accounts, whether no message is in flight."""
        if not self.began_well or lost or self.drain.terminated:
            return True
        counted = self.gather.counted
        # An open wave must be completed: its answers must not stay in flight, either.
        return not self.drain.waves and counted.sent == counted.received

    def wakeup_s(self) -> float | None:
        """Return the time of the next action while accounts are gathered, if any."""
        due_s = self.gather.wakeup_s()
        if self._is_root and self.gather.has_all:
            due_s = earlier(due_s, self.drain.wakeup_s())
        return due_s
