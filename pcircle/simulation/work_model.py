"""The state of a simulated rank, how it processes its items, and the machine of a simulated job.

A run is (first, last, slot): the siblings from `first` up to but excluding `last`, whose results go
to `slot`. Work is given away as a bundle, with a new slot for each run. If a run is all that
remains of a slot from a third rank, that slot moves with it instead.

`WorkModel` does not need an event for each item. The progress of a rank is computed on demand from
prefix sums of durations by place. This requires a known order of items. If no items are handed out
ahead, the order is depth first. Otherwise a rank takes its next item when the current item starts.
At that time the children of the current item do not exist yet, because an item makes its children
in the middle of its duration. So the order is depth first only for siblings without children, which
are the majority. All other items are started one by one.

`Machine` defines latencies and message sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from math import inf
from typing import Any, TypeAlias

import msgspec

from pcircle.simulation.tree import ItemTree

NONE = -1
"""No item, or no rank."""
SPAWNED = -1.0
"""The value of `spawn_s` once an item has made its children."""


class Slot(msgspec.Struct, eq=False):
    """Collects the results of a run that was given away, on the rank that received it.

    `bundle` is None for the root of the job. `parent` is the victim's slot that this one is a part
    of. `runs` is the number of its runs on the rank's stack, including the running item, and `out`
    the number of slots for parts that were given to other ranks.
    """

    bundle: Bundle | None
    parent: Slot | None
    first: int
    last: int
    runs: int = 0
    out: int = 0


NO_SLOT = Slot(None, None, 0, 0)
"""A placeholder for a rank that runs no item."""


class Bundle(msgspec.Struct, eq=False):
    """Work that was given away in one message and whose results have not all been returned."""

    victim: int
    open: int = 0  # incomplete slots
    done: list[Slot] = []  # parents of complete slots whose results are not returned yet
    timed: bool = False


Run: TypeAlias = "tuple[int, int, Slot]"


def cut(stack: list[Run], count: int, victim: int, thief: int) -> tuple[list[Run], list[Bundle]]:
    """Take `count` items from the steal end of a stack.

    Return the runs, whose slots belong to a new bundle or were moved out of older bundles. Also
    return the older bundles that lost a slot.
    """
    bundle = Bundle(victim)
    given: list[Run] = []
    moved: dict[Bundle, Bundle] = {}
    while count:
        first, last, parent = stack[0]
        begin = max(first, last - count)
        old = _movable_from(stack[0], begin, thief)
        if old is not None:
            slot = parent
            del stack[0]
            old.open -= 1
            slot.bundle = moved_to = moved.setdefault(old, Bundle(old.victim))
            moved_to.open += 1
        else:
            parent.out += 1
            slot = Slot(bundle, parent, begin, last)
            slot.runs = 1
            bundle.open += 1
            if begin == first:
                del stack[0]
                parent.runs -= 1
            else:
                stack[0] = (first, begin, parent)
        given.append((begin, last, slot))
        count -= last - begin
    return given, list(moved)


def _movable_from(run: Run, begin: int, thief: int) -> Bundle | None:
    """Return the bundle of the run's slot if the slot can move with the run, otherwise None.

    The run from `begin` must be all that remains of the slot, and the thief must not be the rank
    that gave it.
    """
    first, last, slot = run
    bundle = slot.bundle
    if begin > first or slot.runs > 1 or slot.out or bundle is None:
        return None
    is_remainder = bundle.victim != thief and slot.first <= first and last <= slot.last
    return bundle if is_remainder else None


class SimulatedRank(msgspec.Struct, eq=False):
    """The state of one rank."""

    number: int
    stack: list[Run] = []
    queued: int = 0  # number of items in the runs on the stack
    current: int = NONE  # the running item
    until_s: float = 0.0  # when it ends
    spawn_s: float = SPAWNED  # when it makes its children, unless it already has
    slot: Slot = msgspec.field(default_factory=lambda: NO_SLOT)  # the destination of its result
    ahead: int = NONE  # the item that is handed out and runs next
    ahead_slot: Slot = msgspec.field(default_factory=lambda: NO_SLOT)
    version: int = 0  # of its next scheduled event; older events are ignored
    waiters: dict[int, None] = {}  # newest last
    taker: int = 0  # the waiter being served
    share_left: int = 0  # remaining items of its share
    pushed_to: int = NONE  # the destination of the last push
    pushed_s: float = 0.0  # and its arrival time
    announced: dict[int, int] = {}  # items still to arrive, by sender
    # A bit per dimension in which the neighbour knows that this rank is waiting.
    waits: int = 0
    owing: int = 0  # bundles with complete results that are not returned yet
    sent: int = 0
    got: int = 0  # messages that the drain waves count
    basic_sent: int = 0
    basic_got: int = 0  # messages of work and results
    asking: bool = False
    tries: int = 0  # remaining tries
    # Send WAIT as soon as the tries are used up; False at first: send it only after a pause.
    tells: bool = False
    far: bool = False  # the next request goes to another node
    pause: int = 0  # number of the current pause; events of older pauses are ignored
    has_paused: bool = False
    ready_s: float = 0.0
    inbox: list[tuple[int, int, Any]] = []
    stepping: bool = False


class SimulationTotals(msgspec.Struct):
    """The totals of a simulated job. `messages` contains a count for each kind of message."""

    messages: list[int]
    items: int = 0
    parcels: int = 0
    results: int = 0
    half_busy_s: float | None = None
    last_work_s: float = 0.0
    root_s: float = 0.0
    stopped_s: float = 0.0
    max_inbox: int = 0
    events: int = 0


# ---- progress ------------------------------------------------------------------------------------

_SLACK_S = 1e-9  # greater than the rounding error of a sum of durations


class WorkModel(ABC):
    """The part of a simulation without messages: ranks that process a tree.

    If `ahead_from` or more items are queued, one is handed out early, and thieves cannot take it.
    The value 0 disables this.
    """

    def __init__(self, tree: ItemTree, ahead_from: int) -> None:
        self.tree = tree
        self.now_s: float = 0.0
        self.counts: SimulationTotals = SimulationTotals([0] * (STOP + 1))
        self._ahead_from = ahead_from
        self._late = 1 - tree.spawn_at  # share of an item's time after it has made its children

    @abstractmethod
    def _complete(self, rank: SimulatedRank, slot: Slot, at_s: float) -> None:
        """Handle a slot whose results are complete."""

    @abstractmethod
    def _fed(self, rank: SimulatedRank) -> None:
        """Handle a rank that has received or made work."""

    # ---- progress ------------------------------------------------------------------------------

    def _sync(self, rank: SimulatedRank) -> None:
        """Advance a rank to the current time."""
        if rank.current != NONE and self._ends(rank):
            self._next(rank, rank.until_s)

    def _ends(self, rank: SimulatedRank) -> bool:
        """Advance the running item to the current time; return whether it has ended."""
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

    def _left(self, rank: SimulatedRank, slot: Slot, at_s: float) -> None:
        """Handle the end of a run."""
        slot.runs -= 1
        if not slot.runs and not slot.out:
            self._complete(rank, slot, at_s)

    def _next(self, rank: SimulatedRank, from_s: float) -> None:
        """Advance a rank without a running item from `from_s` to the current time."""
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
                if until_item == first:  # the item has children
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

    def _start(self, rank: SimulatedRank, item: int, slot: Slot, at_s: float) -> None:
        """Start an item, and possibly hand out the next one ahead."""
        tree = self.tree
        at = tree.place[item]
        item_s = tree.until_s[at + 1] - tree.until_s[at]
        rank.current, rank.slot = item, slot
        rank.until_s = at_s + item_s
        rank.spawn_s = rank.until_s - item_s * self._late
        self._hand_out(rank)

    def _put(self, rank: SimulatedRank, first: int, last: int, slot: Slot) -> None:
        """Put the remainder of a run back on the stack."""
        if first < last:
            rank.stack.append((first, last, slot))
            slot.runs += 1

    def _descend(self, rank: SimulatedRank, first: int, last: int, slot: Slot, at: int) -> None:
        """Make the item at a place the running item, and push the items after it onto the stack."""
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

    def _spawn(self, rank: SimulatedRank) -> None:
        """Add the children of the running item."""
        rank.spawn_s = SPAWNED
        children = self.tree.children[rank.current]
        if children:
            first = self.tree.first_child[rank.current]
            self._put(rank, first, first + children, rank.slot)
            rank.queued += children
            self._fed(rank)
            self._hand_out(rank)

    # ---- ahead ---------------------------------------------------------------------------------

    def _hand_out(self, rank: SimulatedRank) -> None:
        """Hand out the next item ahead, if enough items are queued and none is ahead yet."""
        if rank.ahead != NONE or not self._ahead_from or rank.queued < self._ahead_from:
            return
        first, last, slot = rank.stack.pop()
        rank.ahead, rank.ahead_slot = first, slot
        rank.queued -= 1
        self._put(rank, first + 1, last, slot)

    def _takes_back(self, rank: SimulatedRank) -> bool:
        """Put the item ahead back in front of its next siblings, if it has no children.

        Return whether it was put back. The order of the items stays the same.
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

    def _may_complete_s(self, rank: SimulatedRank) -> float:
        """Return a time before which this rank's own work completes no slot."""
        if self._ahead_from:
            return self._steps_s(rank)
        tree = self.tree
        place, size, until = tree.place, tree.size, tree.until_s
        slot = rank.slot
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

    def _steps_s(self, rank: SimulatedRank) -> float:
        """Return when an item with children ends or a slot may complete, whichever is earlier."""
        tree = self.tree
        place, until, inner, children = tree.place, tree.until_s, tree.inner, tree.children
        slot = rank.slot
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
            next_inner = min(last, inner[first])
            # The end includes the item with children.
            end = place[first] + min(next_inner + 1, last) - first
            due_s += until[end] - until[place[first]]
            count = seen.get(slot, 0) + 1
            if next_inner < last or count == slot.runs:
                return due_s
            seen[slot] = count
        return inf


# ---- machine and protocol ------------------------------------------------------------------------

ASK, REFUSE, ANSWER, PUSH, WAIT, RETURNS, QUIESCE, DRAIN, GATHER, STOP = range(10)
LAST_LOOSE = RETURNS
"""The last kind of message that travels between arbitrary ranks.

Later kinds travel along the tree of ranks.
"""


class Machine(msgspec.Struct, frozen=True):
    """The latencies and message sizes of a machine. Times are in seconds.

    A message takes `near_s` within a node and `far_s` between nodes, multiplied by one plus an
    exponential variate with mean `jitter`. A rank needs `message_s` to process a message. If it is
    working, up to `look_s` pass before it notices the message. An item takes `item_bytes` of a
    message, a result `result_bytes`.
    """

    ranks_per_node: int = 64
    near_s: float = 1e-6
    far_s: float = 4e-5
    jitter: float = 0.2
    message_s: float = 2e-5
    look_s: float = 0.0
    item_bytes: int = 120
    result_bytes: int = 120


ETHERNET = Machine(far_s=4e-5)
INFINIBAND = Machine(far_s=3e-6)
