"""The protocol, abstracted: who runs dry asks, then waits; what is given comes back as one result.

What costs an event is a message, a rank that runs dry, and a slot whose last
item ends. A rank that works through its own items costs none for each: where it
stands is worked out when somebody asks, from the sums of durations by place.
Only a rank that has waiters and nothing to give them is looked at after each
item.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from heapq import heappop, heappush
from math import ceil, inf
from random import Random
from typing import Any

from pcircle.guards import require
from pcircle.scale.machine import Machine, Policy
from pcircle.scale.rank import NONE, SPAWNED, Counts, Rank
from pcircle.scale.shares import Bundle, Run, Slot, cut
from pcircle.scale.tree import Tree
from pcircle.scale.waves import Waves

ASK, REFUSE, ANSWER, PUSH, WAIT, RETURNS = range(6)
_STEP, _RUN, _COMBINE, _PAUSE = range(6, 10)
_SLACK_S = 1e-9  # two ways to add up the same durations differ by less


class Simulation:
    """One job."""

    def __init__(
        self, tree: Tree, ranks: int, machine: Machine, policy: Policy, seed: int = 0
    ) -> None:
        self.tree, self.machine, self.policy = tree, machine, policy
        self.size = ranks
        self.dims = max(1, (ranks - 1).bit_length())
        self.ranks = [Rank(number) for number in range(ranks)]
        self.counts = Counts([0] * 6)
        self.rng = Random(seed)
        self.events: list[tuple[float, int, int, int, int, Any]] = []
        self.serial = 0  # of events
        self.sent = 0
        self.busy = 0
        self.now_s = 0.0
        self.done = False
        shared = 1 < machine.ranks_per_node < ranks
        self.nearest = shared and policy.victims in ("nearest", "auto")
        others = ranks - 1 - self._lines(0).bit_count()
        self.tries = policy.tries if others else 0
        least = max(policy.share_least, policy.enough * ranks // policy.share_messages)
        self.share_limit = min(policy.share_limit, least)
        self.most = max(self.share_limit, policy.enough * ranks)
        self.late = 1 - tree.spawn_at  # the share of an item after it has made its children
        self.waves = Waves(ranks, policy.arity, self._is_passive)
        self.jitter = [1 + machine.jitter * self.rng.expovariate(1.0) for _ in range(8191)]

    def run(self) -> Counts:
        """Play it to the end of the work."""
        collects = gc.isenabled()
        gc.disable()  # there are no cycles, and looking for them takes a third of the time
        try:
            self._play()
        finally:
            if collects:
                gc.enable()
        left = [event[0] for event in self.events if event[2] < _STEP]
        self.counts.wave_messages = self.waves.messages
        self.counts.quiet_s = max([self.counts.root_s, *left])
        return self.counts

    def _play(self) -> None:
        self._begin()
        events, counts = self.events, self.counts
        while not self.done:
            time_s, _, kind, number, other, body = heappop(events)
            counts.events += 1
            self.now_s = time_s
            rank = self.ranks[number]
            if kind < _STEP:
                self._arrive(rank, kind, other, body)
            elif kind == _RUN:
                if rank.version == other:
                    self._ran(rank)
            elif kind == _STEP:
                self._step(rank)
            elif kind == _PAUSE:
                if rank.pause == other and rank.current == NONE and not rank.asking:
                    self._ask(rank, time_s)
            else:
                body.timed = False
                self._return(rank, body, time_s)

    def _begin(self) -> None:
        self._first_waits()
        if not self.tries:
            for rank in self.ranks[1:]:
                self._wait(rank, 0.0)
        else:
            for rank in self.ranks[1:]:
                self._pause(rank, 0.0)
        self.busy = 1
        root = self.ranks[0]
        slot = Slot(None, None)
        slot.runs = 1
        root.stack.append((0, 1, slot))
        self._next(root, 0.0)
        self._serve(root, 0.0)
        self._schedule(root)

    def _first_waits(self) -> None:
        """At the start all wait, and their neighbours know it without a message."""
        everywhere = self.policy.start == "all"
        largest = self.policy.first == "largest"
        for rank in self.ranks:
            number = rank.number
            lines = self._lines(number)
            high = 1 << number.bit_length()  # children of the tree have one more bit above
            bits = [1 << dim for dim in range(self.dims) if lines >> dim & 1]
            children = [number | bit for bit in bits if bit >= high]
            if largest:  # the last is served first, and a low bit has many above it
                children.reverse()
            if everywhere:
                rank.waits = lines
                rank.waiters = dict.fromkeys(number ^ bit for bit in bits if bit < high)
            else:
                rank.waits = high >> 1
            rank.waiters.update(dict.fromkeys(children))

    def _lines(self, number: int) -> int:
        """The dimensions in which a rank has neighbours, as bits."""
        # Those of its own bits, and those that lead to no number beyond the last rank.
        lines = number | ((1 << (self.size - number - 1).bit_length()) - 1)
        if self.policy.graph == "tree":
            high = 1 << number.bit_length()
            lines &= ~(high - 1) | high >> 1
        return lines

    # ---- time ----------------------------------------------------------------------------------

    def _push(self, time_s: float, kind: int, rank: int, other: int, body: Any) -> None:
        self.serial += 1
        heappush(self.events, (time_s, self.serial, kind, rank, other, body))

    def _send(self, source: int, dest: int, kind: int, body: Any, at_s: float) -> None:
        machine = self.machine
        self.counts.messages[kind] += 1
        self.sent = sent = self.sent + 1
        per_node = machine.ranks_per_node
        near = source // per_node == dest // per_node
        wait_s = (machine.near_s if near else machine.far_s) * self.jitter[sent % 8191]
        due_s = at_s + wait_s
        if kind == PUSH:  # parts of one share come in their order
            rank = self.ranks[source]
            if rank.pushed_to == dest and due_s < rank.pushed_s:
                due_s = rank.pushed_s
            rank.pushed_to, rank.pushed_s = dest, due_s
        self._push(due_s, kind, dest, source, body)

    def _arrive(self, rank: Rank, kind: int, source: int, body: Any) -> None:
        now_s = self.now_s
        if not rank.stepping:
            free_s = rank.ready_s
            if rank.current != NONE and self.machine.look_s:
                free_s = max(free_s, now_s + self.machine.look_s * self.rng.random())
            if free_s <= now_s:
                rank.ready_s = now_s + self.machine.message_s
                self._handle(rank, kind, source, body, rank.ready_s)
                return
            rank.stepping = True
            self._push(free_s, _STEP, rank.number, 0, None)
        rank.inbox.append((kind, source, body))
        if len(rank.inbox) > self.counts.max_inbox:
            self.counts.max_inbox = len(rank.inbox)

    def _step(self, rank: Rank) -> None:
        inbox, rank.inbox = rank.inbox, []
        rank.stepping = False
        rank.ready_s = self.now_s
        for kind, source, body in inbox:
            rank.ready_s += self.machine.message_s
            self._handle(rank, kind, source, body, rank.ready_s)

    # ---- work ----------------------------------------------------------------------------------

    def _next(self, rank: Rank, from_s: float) -> None:
        """Advance a rank that has nothing running since `from_s` to now."""
        tree, stack, now_s = self.tree, rank.stack, self.now_s + _SLACK_S
        place, size, until = tree.place, tree.size, tree.until_s
        while stack:
            first, last, slot = stack.pop()
            begin = place[first]
            end = place[last - 1] + size[last - 1]
            base_s = until[begin]
            if from_s + until[end] - base_s <= now_s:
                from_s += until[end] - base_s
                self.counts.items += end - begin
                slot.runs -= 1
                if not slot.runs and not slot.out:
                    self._complete(rank, slot, from_s)
                continue
            at = bisect_right(until, base_s + max(0.0, now_s - from_s), begin, end) - 1
            self.counts.items += at - begin
            self._descend(rank, first, last, slot, at)
            rank.until_s = until_s = from_s + until[at + 1] - base_s
            rank.spawn_s = until_s - (until[at + 1] - until[at]) * self.late
            if rank.spawn_s <= now_s:
                self._spawn(rank)
            return
        if from_s > self.counts.last_work_s:
            self.counts.last_work_s = from_s
        rank.current = NONE

    def _descend(self, rank: Rank, first: int, last: int, slot: Slot, at: int) -> None:
        """Have the item at a place be the running one; what comes after it goes on the stack."""
        tree, stack = self.tree, rank.stack
        place = tree.place
        while True:
            item = bisect_right(place, at, first, last) - 1
            if item + 1 < last:
                stack.append((item + 1, last, slot))
                slot.runs += 1
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
            slot: Any = rank.slot
            rank.stack.append((first, first + children, slot))
            slot.runs += 1

    def _sync(self, rank: Rank) -> None:
        """Advance a rank to now."""
        item = rank.current
        now_s = self.now_s + _SLACK_S
        if item == NONE or rank.spawn_s > now_s:
            return
        slot: Any = rank.slot
        if rank.spawn_s >= 0:
            self._spawn(rank)
        if rank.until_s > now_s:
            return
        self.counts.items += 1
        slot.runs -= 1
        if not slot.runs and not slot.out:
            self._complete(rank, slot, rank.until_s)
        self._next(rank, rank.until_s)

    def _stealable(self, rank: Rank) -> int:
        """How many items could be given: all but the running one and that handed out ahead."""
        waiting = 0
        for first, last, _ in rank.stack:
            waiting += last - first
        if self.policy.ahead and waiting:
            if waiting >= self.policy.ahead_from:
                rank.ahead_of = rank.current
            if rank.ahead_of == rank.current:
                waiting -= 1
        return waiting

    def _schedule(self, rank: Rank) -> None:
        """The rank's next event: a slot ends, or, with waiters that get nothing, an item."""
        rank.version += 1
        item = rank.current
        if item == NONE:
            return
        due_s = rank.until_s
        if rank.waiters or rank.rest:
            if rank.spawn_s >= 0 and self.tree.children[item]:
                due_s = rank.spawn_s
        else:
            due_s = self._slot_end_s(rank, item, due_s)
        self._push(due_s, _RUN, rank.number, rank.version, None)

    def _slot_end_s(self, rank: Rank, item: int, due_s: float) -> float:
        tree = self.tree
        place, size, until = tree.place, tree.size, tree.until_s
        slot: Any = rank.slot
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

    def _ran(self, rank: Rank) -> None:
        self._advance(rank)
        self._serve(rank, self.now_s)
        self._schedule(rank)

    def _advance(self, rank: Rank) -> None:
        if rank.current != NONE:
            self._sync(rank)
            if rank.current == NONE:
                rank.version += 1
                self._dry(rank)

    # ---- demand --------------------------------------------------------------------------------

    def _is_passive(self, number: int) -> bool:
        return self.ranks[number].current == NONE

    def _dry(self, rank: Rank) -> None:
        self.busy -= 1
        self.waves.passive(rank.number)
        if not self.done:
            self._seek(rank, self.now_s)

    def _seek(self, rank: Rank, at_s: float) -> None:
        """Ask somebody, or, after some refusals, wait."""
        rank.announced.clear()
        rank.rest = 0
        if rank.asking or self.size == 1:
            return
        if rank.tries:
            self._ask(rank, at_s)
            return
        if not self._pause(rank, at_s) or rank.tells:
            self._wait(rank, at_s)

    def _ask(self, rank: Rank, at_s: float) -> None:
        rank.asking = True
        dest, onward = self._victim(rank)
        self._send(rank.number, dest, ASK, (rank.number, onward), at_s)

    def _pause(self, rank: Rank, at_s: float) -> bool:
        """Ask once more, later; False if it was often enough."""
        if rank.pauses >= len(self.policy.pauses_s):
            return False
        due_s = at_s + self.policy.pauses_s[rank.pauses] * (0.5 + self.rng.random())
        rank.pauses += 1
        rank.pause += 1
        self._push(due_s, _PAUSE, rank.number, rank.pause, None)
        return True

    def _victim(self, rank: Rank) -> tuple[int, bool]:
        """Whom to ask, and whether that one is to ask on in another node."""
        number = rank.number
        if not self.nearest:
            return self._other(number, 0, self.size), False
        per_node = self.machine.ranks_per_node
        first = number - number % per_node
        last = min(self.size, first + per_node)
        if not rank.far:
            near = self._other(number, first, last)
            if near != first:
                return near, False
            rank.far = True  # it is the leader
        return (self._elsewhere(first, last), False) if number == first else (first, True)

    def _other(self, number: int, first: int, last: int) -> int:
        other = first + int(self.rng.random() * (last - first - 1))
        return other + (other >= number)

    def _elsewhere(self, first: int, last: int) -> int:
        other = int(self.rng.random() * (self.size - (last - first)))
        return other if other < first else other + last - first

    def _refused(self, rank: Rank, at_s: float) -> None:
        rank.asking = False
        is_try = True
        if self.nearest:
            was_near = not rank.far
            rank.far = was_near or not self._has_local(rank.number)
            is_try = not was_near  # else half of one
        if rank.tries and is_try:
            rank.tries -= 1
        if rank.current == NONE:
            self._seek(rank, at_s)

    def _has_local(self, number: int) -> bool:
        per_node = self.machine.ranks_per_node
        first = number - number % per_node
        return min(self.size, first + per_node) - first > 1

    def _wait(self, rank: Rank, at_s: float) -> None:
        """Tell all neighbours that don't know it yet."""
        number = rank.number
        untold = self._lines(number) & ~rank.waits
        rank.waits |= untold
        while untold:
            bit = untold & -untold
            untold ^= bit
            self._send(number, number ^ bit, WAIT, None, at_s)

    def _serve(self, rank: Rank, at_s: float) -> None:
        """Give to those who wait, or wait with them.

        A large share goes in parts, and what is still to come counts as what is here.
        """
        policy, waiters = self.policy, rank.waiters
        if rank.current == NONE or not (waiters or rank.rest):
            return
        stealable = self._stealable(rank)
        while stealable:
            whole = stealable + sum(rank.announced.values())
            rank.rest = min(rank.rest, whole)
            if not rank.rest:
                if not waiters:
                    break
                rank.taker = next(reversed(waiters) if policy.order == "newest" else iter(waiters))
                rank.rest = min(ceil(whole * policy.pushed), self.most)
            count = min(rank.rest, self.share_limit, stealable)
            rank.rest -= count
            stealable -= count
            self._give(rank, rank.taker, PUSH, count, at_s)
        if waiters and not stealable and policy.onward:
            self._wait(rank, at_s)

    def _give(self, rank: Rank, dest: int, kind: int, count: int, at_s: float) -> None:
        rank.waiters.pop(dest, None)
        if self.policy.mutual:
            rank.waits &= ~self._line(rank.number, dest)
        runs = cut(rank.stack, count, rank.number)
        self.counts.parcels += count
        self.counts.slots += len(runs)
        rest = rank.rest if kind == PUSH else 0
        self._send(rank.number, dest, kind, (runs, rest), at_s)

    def _line(self, number: int, other: int) -> int:
        """The bit of the dimension in which two ranks are neighbours, 0 if they are not."""
        bit = number ^ other
        return 0 if bit & (bit - 1) else bit & self._lines(number)

    # ---- messages ------------------------------------------------------------------------------

    def _handle(self, rank: Rank, kind: int, source: int, body: Any, at_s: float) -> None:
        """A message is handled; what it leads to leaves at `at_s`."""
        if kind == RETURNS:
            for slot in body:
                slot.out -= 1
                if not slot.runs and not slot.out:
                    self._complete(rank, slot, at_s)
        elif kind == WAIT:
            rank.waiters.pop(source, None)
            rank.waiters[source] = None
            self._advance(rank)
            if rank.current != NONE:
                self._serve(rank, at_s)
                self._schedule(rank)
        elif kind == ASK:
            self._asked(rank, body, at_s)
        elif kind == REFUSE:
            self._refused(rank, at_s)
        else:
            self._got(rank, kind, source, body, at_s)

    def _asked(self, rank: Rank, ask: tuple[int, bool], at_s: float) -> None:
        thief, onward = ask
        self._advance(rank)
        stealable = self._stealable(rank) if rank.current != NONE else 0
        if stealable:
            share = self.policy.answered
            count = ceil(stealable * share) if share else self.rng.randint(1, stealable)
            if stealable > self.policy.queue_high:
                count = min(count, self.policy.queue_high // 2)  # the rest may be on disk
            self._give(rank, thief, ANSWER, min(count, self.share_limit), at_s)
            self._schedule(rank)
        elif onward:
            first = rank.number
            other = self._elsewhere(first, min(self.size, first + self.machine.ranks_per_node))
            self._send(first, other, ASK, (thief, False), at_s)
        else:
            self._send(rank.number, thief, REFUSE, None, at_s)

    def _got(
        self, rank: Rank, kind: int, source: int, given: tuple[list[Run], int], at_s: float
    ) -> None:
        runs, rest = given
        if kind == ANSWER:
            rank.asking = False
        rank.waits &= ~self._line(rank.number, source)
        if self.policy.mutual:
            rank.waiters.pop(source, None)
        if rest:
            rank.announced[source] = rest
        else:
            rank.announced.pop(source, None)
        rank.tries = self.tries
        rank.tells = True
        rank.far = self.nearest and not self._has_local(rank.number)
        rank.pauses = 0
        rank.pause += 1
        self._advance(rank)
        rank.stack.extend(runs)
        if rank.current == NONE:
            self.busy += 1
            if self.counts.half_busy_s is None and 2 * self.busy >= self.size:
                self.counts.half_busy_s = self.now_s
            self._next(rank, self.now_s)
        self._serve(rank, at_s)
        self._schedule(rank)

    # ---- results -------------------------------------------------------------------------------

    def _complete(self, rank: Rank, slot: Slot, at_s: float) -> None:
        bundle = slot.bundle
        if bundle is None:
            self.counts.root_s = at_s
            self.done = True
            return
        bundle.open -= 1
        bundle.done.append(require(slot.parent))
        if not bundle.open:
            self._return(rank, bundle, at_s)
        elif not bundle.timed:
            bundle.timed = True
            self._push(at_s + self.policy.combine_s, _COMBINE, rank.number, 0, bundle)

    def _return(self, rank: Rank, bundle: Bundle, at_s: float) -> None:
        if bundle.done:
            self.counts.results += len(bundle.done)
            self._send(rank.number, bundle.victim, RETURNS, bundle.done, at_s)
            bundle.done = []
