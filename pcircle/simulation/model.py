"""A model of the protocol: idle ranks send requests and then wait, and results return in bundles.

Events are messages, ranks that run out of work, and the steps that `pcircle.simulation.work_model`
cannot compute from sums. Only a rank that has waiters but nothing to give has an event after each
item.
"""

from __future__ import annotations

import gc
from heapq import heappop, heappush
from random import Random
from typing import Any

from pcircle.circle import EngineSettings
from pcircle.circle.engine import MIN_QUEUE_TO_RUN_AHEAD
from pcircle.circle.stealing import (
    PARCELS_PER_RANK,
    PAUSE_S,
    SPLITS,
    Split,
    equal_share,
    parcels_per_message,
)
from pcircle.simulation.tree import ItemTree
from pcircle.simulation.waves import WORKING, RankTree, Waves
from pcircle.simulation.work_model import (
    ANSWER,
    ASK,
    LAST_LOOSE,
    NONE,
    PUSH,
    QUIESCE,
    REFUSE,
    RETURNS,
    STOP,
    WAIT,
    Bundle,
    Machine,
    Run,
    SimulatedRank,
    SimulationTotals,
    Slot,
    WorkModel,
    cut,
)

_STEP, RUN, _COMBINE, _PAUSE, _WAKE = range(STOP + 1, STOP + 6)
_BASIC = (ANSWER, PUSH, RETURNS)


class Simulation(WorkModel):
    """The simulation of one job.

    Raises ValueError unless the settings specify structured work, one worker on each rank, and
    termination by waves of counters.
    """

    def __init__(
        self, tree: ItemTree, ranks: int, machine: Machine, settings: EngineSettings, seed: int = 0
    ) -> None:
        if (settings.workers, settings.structured, settings.termination) != (1, True, "counters"):
            raise ValueError("only structured work of one worker that ends by waves is modelled")
        super().__init__(tree, MIN_QUEUE_TO_RUN_AHEAD if settings.ahead and ranks > 1 else 0)
        self.machine: Machine = machine
        self.settings: EngineSettings = settings
        self.size = ranks
        self.dims: int = max(1, (ranks - 1).bit_length())
        self.ranks: list[SimulatedRank] = [SimulatedRank(number) for number in range(ranks)]
        self.split: Split = SPLITS[settings.split]
        self.rng: Random = Random(seed)
        self.events: list[tuple[float, int, int, int, int, Any]] = []
        self.serial: int = 0  # number of events so far; orders simultaneous events
        self.sent: int = 0
        self.busy: int = 0
        shared = 1 < machine.ranks_per_node < ranks
        self.nearest: bool = shared and settings.victims in ("nearest", "auto")
        victims = ranks - 1 - self._lines(0).bit_count()
        self.tries: int = settings.tries if victims else 0
        self.share_limit: int = parcels_per_message(settings.share_limit, ranks)
        self.max_share: int = max(self.share_limit, PARCELS_PER_RANK * ranks)
        rank_tree = RankTree(ranks, settings.arity, machine.ranks_per_node)
        self.waves: Waves = Waves(
            rank_tree.parents.tolist(),
            rank_tree.children,
            self._send,
            self._wake,
            self._is_passive,
            self._counted,
        )
        self.jitter: list[float] = [
            1 + machine.jitter * self.rng.expovariate(1.0) for _ in range(8191)
        ]

    def run(self) -> SimulationTotals:
        """Run the simulation until all ranks have stopped."""
        collects = gc.isenabled()
        gc.disable()  # there are no cycles, and the search for them would take a third of the time
        try:
            self._play()
        finally:
            if collects:
                gc.enable()
        self.counts.stopped_s = self.waves.stopped_s
        return self.counts

    def _play(self) -> None:
        self._begin()
        events, counts, waves = self.events, self.counts, self.waves
        while waves.stopped < self.size:
            time_s, _, kind, number, other, body = heappop(events)
            counts.events += 1
            self.now_s = time_s
            rank = self.ranks[number]
            if kind < _STEP:
                self._arrive(rank, kind, other, body)
            elif kind == RUN:
                if rank.version == other:
                    self._ran(rank)
            elif kind == _STEP:
                self._step(rank)
            elif kind == _PAUSE:
                works = waves.phases[number] == WORKING
                if works and rank.pause == other and rank.current == NONE and not rank.asking:
                    self._ask(rank, time_s)
            elif kind == _WAKE:
                waves.passive(0, time_s)
            else:
                body.timed = False
                self._return(rank, body, time_s)
                waves.passive(number, time_s)

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
        slot = Slot(None, None, 0, 1)
        slot.runs = 1
        root.stack.append((0, 1, slot))
        root.queued = 1
        self._next(root, 0.0)
        self._serve(root, 0.0)
        self._schedule(root)

    def _first_waits(self) -> None:
        """Make each rank except rank 0 a waiter of its parent in the tree of neighbours.

        At the start, the parents know this without messages.
        """
        for rank in self.ranks:
            number = rank.number
            lines = self._lines(number)
            # The number of a child has one additional bit, above those of its parent.
            high = 1 << number.bit_length()
            bits = [1 << dim for dim in range(self.dims) if lines >> dim & 1]
            rank.waits = high >> 1
            # The last waiter is served first, and low bits have the largest subtrees.
            rank.waiters = dict.fromkeys(number | bit for bit in reversed(bits) if bit >= high)

    def _lines(self, number: int) -> int:
        """Return the dimensions in which a rank has neighbours, as bits."""
        # The dimensions of its set bits, and of clear bits that lead to an existing rank.
        return number | ((1 << (self.size - number - 1).bit_length()) - 1)

    # ---- callbacks of the waves ----------------------------------------------------------------

    def _is_passive(self, number: int, kind: int) -> bool:
        rank = self.ranks[number]
        if kind != QUIESCE and rank.asking:
            return False
        return rank.current == NONE and not rank.owing

    def _counted(self, number: int, kind: int) -> tuple[int, int]:
        rank = self.ranks[number]
        if kind == QUIESCE:
            return rank.basic_sent, rank.basic_got
        return rank.sent, rank.got

    def _wake(self, due_s: float) -> None:
        self._push(due_s, _WAKE, 0, 0, None)

    # ---- time ----------------------------------------------------------------------------------

    def _push(self, time_s: float, kind: int, rank: int, other: int, body: Any) -> None:
        self.serial += 1
        heappush(self.events, (time_s, self.serial, kind, rank, other, body))

    def _send(self, source: int, dest: int, kind: int, body: Any, at_s: float) -> None:
        machine = self.machine
        self.counts.messages[kind] += 1
        if kind <= LAST_LOOSE:
            rank = self.ranks[source]
            rank.sent += 1
            if kind in _BASIC:
                rank.basic_sent += 1
        self.sent = sent = self.sent + 1
        per_node = machine.ranks_per_node
        near = source // per_node == dest // per_node
        wait_s = (machine.near_s if near else machine.far_s) * self.jitter[sent % 8191]
        due_s = at_s + wait_s
        if kind == PUSH:  # parts of one share arrive in order
            if rank.pushed_to == dest and due_s < rank.pushed_s:
                due_s = rank.pushed_s
            rank.pushed_to, rank.pushed_s = dest, due_s
        self._push(due_s, kind, dest, source, body)

    def _arrive(self, rank: SimulatedRank, kind: int, source: int, body: Any) -> None:
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

    def _step(self, rank: SimulatedRank) -> None:
        inbox, rank.inbox = rank.inbox, []
        rank.stepping = False
        rank.ready_s = self.now_s
        for kind, source, body in inbox:
            rank.ready_s += self.machine.message_s
            self._handle(rank, kind, source, body, rank.ready_s)

    # ---- work ----------------------------------------------------------------------------------

    def _schedule(self, rank: SimulatedRank) -> None:
        """Schedule the next event: the next chance to serve waiters, or else the end of a slot."""
        rank.version += 1
        item = rank.current
        if item == NONE:
            return
        if rank.waiters or rank.share_left:
            due_s = rank.until_s
            if rank.spawn_s >= 0 and self.tree.children[item]:
                due_s = rank.spawn_s
        else:
            due_s = self._may_complete_s(rank)
        self._push(due_s, RUN, rank.number, rank.version, None)

    def _ran(self, rank: SimulatedRank) -> None:
        self._advance(rank)
        self._serve(rank, self.now_s)
        self._schedule(rank)

    def _advance(self, rank: SimulatedRank) -> None:
        if rank.current != NONE:
            self._sync(rank)
            if rank.current == NONE:
                rank.version += 1
                self._dry(rank)

    # ---- demand --------------------------------------------------------------------------------

    def _dry(self, rank: SimulatedRank) -> None:
        self.busy -= 1
        self._seek(rank, self.now_s)
        self.waves.passive(rank.number, self.now_s)

    def _seek(self, rank: SimulatedRank, at_s: float) -> None:
        """Send a request or, after some refusals, schedule a later one, start to wait, or both."""
        rank.announced.clear()
        rank.share_left = 0
        if rank.asking or self.size == 1 or self.waves.phases[rank.number] != WORKING:
            return
        if rank.tries:
            self._ask(rank, at_s)
            return
        if not self._pause(rank, at_s) or rank.tells:
            self._wait(rank, at_s)

    def _ask(self, rank: SimulatedRank, at_s: float) -> None:
        rank.asking = True
        dest, onward = self._victim(rank)
        self._send(rank.number, dest, ASK, (rank.number, onward), at_s)

    def _pause(self, rank: SimulatedRank, at_s: float) -> bool:
        """Schedule another request; return False if the rank has paused already or never asks."""
        if rank.has_paused or not self.tries:
            return False
        due_s = at_s + PAUSE_S * (0.5 + self.rng.random())
        rank.has_paused = True
        rank.pause += 1
        self._push(due_s, _PAUSE, rank.number, rank.pause, None)
        return True

    def _victim(self, rank: SimulatedRank) -> tuple[int, bool]:
        """Return the victim of a request, and whether it forwards the request to another node."""
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
            rank.far = True  # the victim is the leader of the node, which can forward the request
        return (self._elsewhere(first, last), False) if number == first else (first, True)

    def _other(self, number: int, first: int, last: int) -> int:
        other = first + int(self.rng.random() * (last - first - 1))
        return other + (other >= number)

    def _elsewhere(self, first: int, last: int) -> int:
        other = int(self.rng.random() * (self.size - (last - first)))
        return other if other < first else other + last - first

    def _fed(self, rank: SimulatedRank) -> None:
        rank.tries = self.tries
        rank.tells = True
        rank.has_paused = False
        rank.pause += 1

    def _refused(self, rank: SimulatedRank, at_s: float) -> None:
        self._advance(rank)
        rank.asking = False
        is_try = True
        if self.nearest:
            was_near = not rank.far
            rank.far = was_near or not self._has_local(rank.number)
            is_try = not was_near  # a local and a remote request count as one try
        if rank.tries and is_try:
            rank.tries -= 1
        if rank.current == NONE:
            if is_try or self.waves.phases[rank.number] != WORKING:
                self._seek(rank, at_s)
            else:
                self._ask(rank, at_s)
            self.waves.passive(rank.number, at_s)

    def _has_local(self, number: int) -> bool:
        per_node = self.machine.ranks_per_node
        first = number - number % per_node
        return min(self.size, first + per_node) - first > 1

    def _wait(self, rank: SimulatedRank, at_s: float) -> None:
        """Send WAIT to all neighbours that do not know that the rank is waiting."""
        number = rank.number
        unaware = self._lines(number) & ~rank.waits
        rank.waits |= unaware
        while unaware:
            bit = unaware & -unaware
            unaware ^= bit
            self._send(number, number ^ bit, WAIT, None, at_s)

    def _serve(self, rank: SimulatedRank, at_s: float) -> None:
        """Give work to waiters.

        A large share is sent in parts. Announced items that have not arrived count as available.
        """
        waiters = rank.waiters
        if rank.current == NONE or not (waiters or rank.share_left):
            return
        stealable = rank.queued
        while stealable:
            whole = stealable + sum(rank.announced.values())
            rank.share_left = min(rank.share_left, whole)
            if not rank.share_left:
                if not waiters:
                    break
                rank.taker = next(reversed(waiters))
                rank.share_left = min(equal_share(whole, self.rng), self.max_share)
            count = min(rank.share_left, self.share_limit, stealable)
            rank.share_left -= count
            stealable -= count
            self._give(rank, rank.taker, PUSH, count, at_s)

    def _give(self, rank: SimulatedRank, dest: int, kind: int, count: int, at_s: float) -> None:
        rank.waiters.pop(dest, None)
        rank.waits &= ~self._line(rank.number, dest)
        runs, reduced = cut(rank.stack, count, rank.number, dest)
        rank.queued -= count
        self.counts.parcels += count
        remaining = rank.share_left if kind == PUSH else 0
        self._send(rank.number, dest, kind, (runs, remaining), at_s)
        for bundle in reduced:
            if not bundle.open:
                self._return(rank, bundle, at_s)

    def _line(self, number: int, other: int) -> int:
        """Return the bit of the dimension in which two ranks are neighbours, or 0."""
        bit = number ^ other
        return 0 if bit & (bit - 1) else bit & self._lines(number)

    # ---- messages ------------------------------------------------------------------------------

    def _handle(self, rank: SimulatedRank, kind: int, source: int, body: Any, at_s: float) -> None:
        """Process a message; the messages sent in response leave at `at_s`."""
        if kind > LAST_LOOSE:
            self.waves.handle(rank.number, kind, body, at_s)
            return
        rank.got += 1
        if kind in _BASIC:
            rank.basic_got += 1
        if kind == RETURNS:
            for slot in body:
                slot.out -= 1
                if not slot.runs and not slot.out:
                    self._complete(rank, slot, at_s)
            if rank.current == NONE:
                self.waves.passive(rank.number, at_s)
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

    def _asked(self, rank: SimulatedRank, ask: tuple[int, bool], at_s: float) -> None:
        thief, onward = ask
        self._advance(rank)
        stealable = rank.queued
        if stealable:
            count = self.split(stealable, self.rng)
            if stealable > self.settings.queue_high:
                count = min(count, self.settings.queue_high // 4)  # the other items may be on disk
            self._give(rank, thief, ANSWER, min(count, self.share_limit), at_s)
            self._schedule(rank)
        elif onward and self.waves.phases[rank.number] == WORKING:
            first = rank.number
            other = self._elsewhere(first, min(self.size, first + self.machine.ranks_per_node))
            self._send(first, other, ASK, (thief, False), at_s)
        else:
            self._send(rank.number, thief, REFUSE, None, at_s)

    def _got(
        self, rank: SimulatedRank, kind: int, source: int, share: tuple[list[Run], int], at_s: float
    ) -> None:
        runs, remaining = share
        if kind == ANSWER:
            rank.asking = False
            rank.far = self.nearest and not self._has_local(rank.number)
        rank.waits &= ~self._line(rank.number, source)
        rank.waiters.pop(source, None)
        if remaining:
            rank.announced[source] = remaining
        else:
            rank.announced.pop(source, None)
        self._fed(rank)
        self._advance(rank)
        rank.stack.extend(runs)
        rank.queued += sum([last - first for first, last, _ in runs])
        if rank.current == NONE:
            self.busy += 1
            if self.counts.half_busy_s is None and 2 * self.busy >= self.size:
                self.counts.half_busy_s = self.now_s
            self._next(rank, self.now_s)
        self._hand_out(rank)
        self._serve(rank, at_s)
        self._schedule(rank)

    # ---- results -------------------------------------------------------------------------------

    def _complete(self, rank: SimulatedRank, slot: Slot, at_s: float) -> None:
        bundle, parent = slot.bundle, slot.parent
        if bundle is None or parent is None:
            self.counts.root_s = at_s
            self.waves.complete(at_s)
            return
        bundle.open -= 1
        rank.owing += not bundle.done
        bundle.done.append(parent)
        if not bundle.open:
            self._return(rank, bundle, at_s)
        elif not bundle.timed:
            bundle.timed = True
            self._push(at_s + self.settings.combine_s, _COMBINE, rank.number, 0, bundle)

    def _return(self, rank: SimulatedRank, bundle: Bundle, at_s: float) -> None:
        if bundle.done:
            self.counts.results += len(bundle.done)
            self._send(rank.number, bundle.victim, RETURNS, bundle.done, at_s)
            bundle.done = []
            rank.owing -= 1
