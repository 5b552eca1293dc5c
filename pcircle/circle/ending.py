"""How a job ends on a rank: what is drained, the account that it gives, and until when.

A job that ends well has no deadline. Its accounts are one round of the tree, which sums up the
counters of messages as well; while these do not balance, waves follow until none is left
(`pcircle.circle.termination` has the argument). After an abort the waves come first, and all has a
deadline: a part of `Settings.final_deadline_s` each for the waves, the accounts, and what is left.
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

    @property
    def _conclude_until_s(self) -> float | None:
        """When rank 0 concludes, whatever is on its way."""
        return None if self.give_up_s is None else self.give_up_s - self._deadline_s / 8

    def drain_after(self, is_settled: bool, lost: Collection[int], now_s: float) -> Outgoing:
        """Once this rank has given its account: its part in the waves that follow, if any do."""
        if not self.gather.closed or not self.began_well:
            return []
        if self._is_root and self.is_drained(lost, now_s):
            return []
        return self.drain.advance(is_settled, now_s)

    def is_drained(self, lost: Collection[int], now_s: float) -> bool:
        """On rank 0, with the accounts: whether no message is left, or that is given up."""
        if not self.began_well or lost or self.drain.terminated:
            return True
        counted, until_s = self.gather.counted_by_all, self._conclude_until_s
        return counted.sent == counted.received or (until_s is not None and now_s >= until_s)

    def wakeup_s(self) -> float | None:
        """When to go on although nothing happens, while accounts are gathered."""
        due_s = self.gather.wakeup_s()
        if self.gather.total is not None:
            due_s = earlier(earlier(due_s, self.drain.wakeup_s()), self._conclude_until_s)
        return due_s
