"""How a simulated rank works through what it holds, without an event for each item.

Where a rank stands is worked out when somebody asks, from the sums of durations by place. That
needs the order in which it takes its items. Without items ahead it is depth first. With them the
next item is taken when the running one begins, and so before that one's children, which are there
in its middle only: so depth first is true of siblings without children, which are most, and others
are begun one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import Any

from pcircle.simulation.kinds import STOP
from pcircle.simulation.rank import NONE, SPAWNED, Counts, Rank, Slot
from pcircle.simulation.tree import Tree

_SLACK_S = 1e-9  # two ways to add up the same durations differ by less


class Working:
    """The part of a simulation that has no messages: ranks that work on a tree.

    Of `ahead_from` items or more that wait, one is handed out early, of which
    a thief gets nothing; 0 is never.
    """

    def __init__(self, tree: Tree, ahead_from: int) -> None:
        self.tree = tree
        self.now_s = 0.0
        self.counts = Counts([0] * (STOP + 1))
        self._ahead_from = ahead_from
        self._late = 1 - tree.spawn_at  # the share of an item after it has made its children

    def _complete(self, rank: Rank, slot: Slot, at_s: float) -> None:
        """All is there that a slot has waited for."""
        raise NotImplementedError

    def _fed(self, rank: Rank) -> None:
        """A rank has work, of its own or of others."""
        raise NotImplementedError

    # ---- to the present ------------------------------------------------------------------------

    def _sync(self, rank: Rank) -> None:
        """Advance a rank to now."""
        if rank.current != NONE and self._ends(rank):
            self._next(rank, rank.until_s)

    def _ends(self, rank: Rank) -> bool:
        """Advance the running item to now; whether it ends."""
        now_s = self.now_s + _SLACK_S
        if rank.spawn_s > now_s:
            return False
        if rank.spawn_s >= 0:
            self._spawn(rank)
        if rank.until_s > now_s:
            return False
        self.counts.items += 1
        self._left(rank, rank.slot, rank.until_s)
        return True

    def _left(self, rank: Rank, slot: Any, at_s: float) -> None:
        """A run has ended."""
        slot.runs -= 1
        if not slot.runs and not slot.out:
            self._complete(rank, slot, at_s)

    def _next(self, rank: Rank, from_s: float) -> None:
        """Advance a rank that has nothing running since `from_s` to now."""
        tree, stack, now_s = self.tree, rank.stack, self.now_s + _SLACK_S
        place, size, until, inner = tree.place, tree.size, tree.until_s, tree.inner
        while stack or rank.ahead != NONE:
            if rank.ahead != NONE and not self._takes_back(rank):
                item, slot = rank.ahead, rank.ahead_slot
                rank.ahead = NONE
                self._start(rank, item, slot, from_s)
            else:
                first, last, slot = stack.pop()
                until_item = min(last, inner[first]) if self._ahead_from else last
                if until_item == first:  # it has children
                    rank.queued -= 1
                    self._put(rank, first + 1, last, slot)
                    self._start(rank, first, slot, from_s)
                else:
                    begin = place[first]
                    end = place[until_item - 1] + size[until_item - 1]
                    base_s = until[begin]
                    end_s = from_s + until[end] - base_s
                    if end_s <= now_s:
                        from_s = end_s
                        self.counts.items += end - begin
                        rank.queued -= until_item - first
                        if until_item < last:
                            stack.append((until_item, last, slot))
                        else:
                            self._left(rank, slot, from_s)
                        continue
                    at = bisect_right(until, base_s + max(0.0, now_s - from_s), begin, end) - 1
                    self.counts.items += at - begin
                    rank.queued -= last - first
                    self._descend(rank, first, last, slot, at)
                    self._start(rank, rank.current, rank.slot, from_s + until[at] - base_s)
            if not self._ends(rank):
                return
            from_s = rank.until_s
        if from_s > self.counts.last_work_s:
            self.counts.last_work_s = from_s
        rank.current = NONE

    def _start(self, rank: Rank, item: int, slot: Any, at_s: float) -> None:
        """An item begins: what waits may now go ahead."""
        tree = self.tree
        at = tree.place[item]
        item_s = tree.until_s[at + 1] - tree.until_s[at]
        rank.current, rank.slot = item, slot
        rank.until_s = at_s + item_s
        rank.spawn_s = rank.until_s - item_s * self._late
        self._hand_out(rank)

    def _put(self, rank: Rank, first: int, last: int, slot: Any) -> None:
        """What was left of a run is back on the stack, beside what was taken of it."""
        if first < last:
            rank.stack.append((first, last, slot))
            slot.runs += 1

    def _descend(self, rank: Rank, first: int, last: int, slot: Any, at: int) -> None:
        """Have the item at a place be the running one; what comes after it goes on the stack."""
        tree = self.tree
        place = tree.place
        while True:
            item = bisect_right(place, at, first, last) - 1
            rank.queued += last - item - 1
            self._put(rank, item + 1, last, slot)
            if place[item] == at:
                rank.current = item
                rank.slot = slot
                return
            first = tree.first_child[item]
            last = first + tree.children[item]

    def _spawn(self, rank: Rank) -> None:
        """The running item makes its children."""
        rank.spawn_s = SPAWNED
        children = self.tree.children[rank.current]
        if children:
            first = self.tree.first_child[rank.current]
            self._put(rank, first, first + children, rank.slot)
            rank.queued += children
            self._fed(rank)
            self._hand_out(rank)

    # ---- ahead ---------------------------------------------------------------------------------

    def _hand_out(self, rank: Rank) -> None:
        """If there is enough that waits, its next item goes ahead, unless one has."""
        if rank.ahead != NONE or not self._ahead_from or rank.queued < self._ahead_from:
            return
        first, last, slot = rank.stack.pop()
        rank.ahead, rank.ahead_slot = first, slot
        rank.queued -= 1
        self._put(rank, first + 1, last, slot)

    def _takes_back(self, rank: Rank) -> bool:
        """Whether the item ahead has no children and its siblings are next: one run, as it was.

        It begins now, and will be followed by the same ones.
        """
        tree, item, stack = self.tree, rank.ahead, rank.stack
        if tree.children[item] or not stack:
            return False
        first, last, slot = stack[-1]
        is_next = first == item + 1 and tree.place[first] == tree.place[item] + 1
        if not is_next or slot is not rank.ahead_slot:
            return False
        stack[-1] = (item, last, slot)
        slot.runs -= 1
        rank.queued += 1
        rank.ahead = NONE
        return True

    # ---- the future ----------------------------------------------------------------------------

    def _may_complete_s(self, rank: Rank) -> float:
        """Before this time no slot here is complete by what the rank does alone."""
        if self._ahead_from:
            return self._steps_s(rank)
        tree = self.tree
        place, size, until = tree.place, tree.size, tree.until_s
        slot: Any = rank.slot
        item = rank.current
        due_s: float = rank.until_s
        if rank.spawn_s >= 0:
            begin = place[item]
            due_s += until[begin + size[item]] - until[begin + 1]
        if slot.runs == 1:
            return due_s
        seen = {slot: 1}
        for first, last, slot in reversed(rank.stack):
            due_s += until[place[last - 1] + size[last - 1]] - until[place[first]]
            count = seen.get(slot, 0) + 1
            if count == slot.runs:
                return due_s
            seen[slot] = count
        return inf

    def _steps_s(self, rank: Rank) -> float:
        """When the next item with children ends, or a slot may be complete before."""
        tree = self.tree
        place, until, inner, children = tree.place, tree.until_s, tree.inner, tree.children
        slot: Any = rank.slot
        due_s: float = rank.until_s
        if slot.runs == 1 or (rank.spawn_s >= 0 and children[rank.current]):
            return due_s
        seen = {slot: 1}
        if rank.ahead != NONE:
            at = place[rank.ahead]
            due_s += until[at + 1] - until[at]
            slot = rank.ahead_slot
            count = seen[slot] = seen.get(slot, 0) + 1
            if children[rank.ahead] or count == slot.runs:
                return due_s
        for first, last, slot in reversed(rank.stack):
            some = min(last, inner[first])
            end = place[first] + min(some + 1, last) - first  # with the one that has children
            due_s += until[end] - until[place[first]]
            count = seen.get(slot, 0) + 1
            if some < last or count == slot.runs:
                return due_s
            seen[slot] = count
        return inf
