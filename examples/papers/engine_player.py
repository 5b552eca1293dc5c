"""pcircle's own engine on the project's simulated network, with timers instead of file work.

`pcircle.circle.Engine` runs unchanged. A figure derives a player from `EnginePlayer`; its method
`steps` determines how long an item waits and which items it spawns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Sequence
from heapq import heappop, heappush
from operator import add
from random import Random
from typing import Any, Generic, TypeVar

from pcircle.circle import Engine, EngineSettings, Parcel
from pcircle.circle.instructions import (
    Conclude,
    DiscardSegments,
    FetchSegment,
    Instruction,
    Send,
    SpillSegment,
    StartItem,
    StopRank,
)
from pcircle.transport._sim import SimTransport
from pcircle.transport.contract import Delivery, LostRank

__all__ = ["EnginePlayer", "Steps"]

Item = TypeVar("Item")
# Yields the time at which an item continues; returns the items that it spawns, and its result.
Steps = Generator[float, None, tuple[list[Item], int]]


class EnginePlayer(ABC, Generic[Item]):
    """One rank: an engine, and as many concurrent items as its settings have workers.

    Rank 0 begins with `seeds`. Results are numbers, which are added.
    """

    def __init__(
        self,
        rank: int,
        nodes: Sequence[int],
        settings: EngineSettings,
        rng: Random,
        seeds: Sequence[Item],
    ) -> None:
        self._engine: Engine[Item, int] = Engine(
            rank, len(nodes), merge=add, rng=rng, settings=settings, nodes=nodes
        )
        self._seeds = seeds
        self._store: dict[int, tuple[Parcel[Item], ...]] = {}
        self._waiting: deque[StartItem[Item]] = deque()
        self._working = 0
        self._timers: list[tuple[float, int, Steps[Item]]] = []  # when, and the item's ticket
        self._stopped = False
        self.now_s = 0.0

    @abstractmethod
    def steps(self, item: Item) -> Steps[Item]:
        """Process an item, beginning at `now_s`."""

    def has_idle_workers(self) -> bool:
        """Return whether other ranks are waiting for work."""
        return self._engine.has_idle_workers()

    def play(self, t: SimTransport) -> Generator[float | None, list[Delivery | LostRank], None]:
        """Run this rank's program."""
        engine, timers = self._engine, self._timers
        if engine.rank == 0:
            engine.seed(self._seeds, 0.0)
        arrivals: list[Delivery | LostRank] = []
        while True:
            self.now_s = now_s = t.now_s
            for arrival in arrivals:
                if isinstance(arrival, Delivery):
                    message: Any = arrival.payload
                    engine.receive(arrival.source, message, now_s)
            while timers and timers[0][0] <= now_s:
                self._go_on(*heappop(timers)[1:])
            if not arrivals:
                engine.tick(now_s)
            while instructions := engine.take():
                for instruction in instructions:
                    self._carry_out(t, instruction)
            if self._stopped:
                t.close()
                return
            wakeup_s = engine.wakeup_s()
            if timers and (wakeup_s is None or timers[0][0] < wakeup_s):
                wakeup_s = timers[0][0]
            arrivals = yield None if wakeup_s is None else max(0.0, wakeup_s - now_s)

    def _carry_out(self, t: SimTransport, instruction: Instruction[Item, int]) -> None:
        if isinstance(instruction, Send):
            t.send(instruction.dest, instruction.message)
        elif isinstance(instruction, StartItem):
            self._waiting.append(instruction)
            self._begin()
        elif isinstance(instruction, SpillSegment):
            self._store[instruction.segment] = instruction.parcels
        elif isinstance(instruction, FetchSegment):
            parcels = self._store.pop(instruction.segment)
            self._engine.fetched(instruction.segment, parcels, self.now_s)
        elif isinstance(instruction, DiscardSegments):
            for segment in instruction.segments:
                del self._store[segment]
        elif isinstance(instruction, Conclude):
            self._engine.conclude(instruction.account.code, self.now_s)
        elif isinstance(instruction, StopRank):
            self._stopped = True
        else:
            raise TypeError(f"no part of such a job: {instruction}")

    def _begin(self) -> None:
        while self._waiting and self._working < self._engine.settings.workers:
            start = self._waiting.popleft()
            self._working += 1
            self._go_on(start.ticket, self.steps(start.item))

    def _go_on(self, ticket: int, steps: Steps[Item]) -> None:
        try:
            heappush(self._timers, (next(steps), ticket, steps))
        except StopIteration as end:
            spawned, result = end.value
            self._working -= 1
            if spawned:
                self._engine.spawned(ticket, spawned, self.now_s)
            self._engine.finished(ticket, result, self.now_s)
            self._begin()
