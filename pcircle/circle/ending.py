"""How a job ends on a rank: what is drained, the account that it gives, and until when.

A job that ends well has no deadline. Its accounts are one round of the tree, which sums up the
counters of messages as well; while these do not balance, waves follow until none is left
(`pcircle.circle.termination` has the argument), and rank 0 keeps its own account open: an abort
counts until it concludes. After an abort the waves come first, and all has a
deadline: half of `Settings.final_deadline_s` for the waves, a quarter for the accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pcircle.circle.messages import DRAIN, Account
from pcircle.circle.rounds import GatherRound, Outgoing, earlier
from pcircle.circle.termination import Drain
from pcircle.circle.topology import Tree


class Ending:
    """One rank's part in it; `account` and `merge` as of `GatherRound`."""

    def __init__(
        self,
        tree: Tree,
        deadline_s: float,
        account: Callable[[], Account[Any]],
        merge: Callable[[Any, Any], Any],
    ) -> None:
        self.drain = Drain(tree, DRAIN)
        self.gather = GatherRound(tree, deadline_s / 4, account, merge, lambda: self.drain.counted)
        self.began_well = False  # no abort was known when the accounts came to be gathered
        self.give_up_s: float | None = None
        self._is_root = tree.parent is None
        self._deadline_s = deadline_s

    def hurry(self, now_s: float) -> None:
        """From now on, what does not end by itself ends at a deadline."""
        if self.give_up_s is None:
            # Below the root patience is longer: its decision must have time to come down.
            self.give_up_s = now_s + self._deadline_s * (1 if self._is_root else 2)

    @property
    def drain_until_s(self) -> float | None:
        """When rank 0 has the accounts gathered, whatever is on its way."""
        return None if self.give_up_s is None else self.give_up_s - self._deadline_s / 2

    def gives_up(self, now_s: float) -> bool:
        """Whether rank 0 waits no more for messages that are on their way after an abort."""
        return self.drain_until_s is not None and now_s >= self.drain_until_s

    def drain_after(self, is_settled: bool, lost: Collection[int], now_s: float) -> Outgoing:
        """This rank's part in the waves that follow its account; rank 0 has them before its own."""
        if self._is_root:
            if not self.gather.has_all or self.is_drained(lost):
                return []
        elif not self.gather.closed:
            return []
        return self.drain.advance(is_settled, now_s)

    def is_drained(self, lost: Collection[int]) -> bool:
        """On rank 0, with the others' accounts: whether no message is left."""
        if not self.began_well or lost or self.drain.terminated:
            return True
        counted = self.gather.counted
        # A wave that was opened is waited for: its answers may not be left, either.
        return not self.drain.waves and counted.sent == counted.received

    def wakeup_s(self) -> float | None:
        """When to go on although nothing happens, while accounts are gathered."""
        due_s = self.gather.wakeup_s()
        if self._is_root and self.gather.has_all:
            due_s = earlier(due_s, self.drain.wakeup_s())
        return due_s
