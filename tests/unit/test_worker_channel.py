"""The channel from a worker to its engine: spawned items wait while the owner is busy."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from threading import Event
from typing import Any

import pytest

from pcircle.circle import Engine
from pcircle.circle.instructions import StartItem
from pcircle.runtime.task import Context
from pcircle.runtime.worker_channel import MAX_BACKLOG_ITEMS, WorkerChannel
from pcircle.threads.workers import PoolFuture, WorkerPool

EACH = 10
ALL = 20 * MAX_BACKLOG_ITEMS


def repr_of(notice: tuple[Any, bytes]) -> bytes:
    return repr(notice).encode()


class Rank:
    """The engine and pool of one rank without the loop; its first item spawns very many items."""

    def __init__(self) -> None:
        self.woken = Event()
        self.made = 0
        self.pool = WorkerPool(self.woken.set)
        self.engine: Engine[int, int] = Engine(0, 1, merge=int.__add__, rng=Random(1))
        self.line = WorkerChannel(
            self.pool, self.engine, lambda: None, lambda: 0.0, lambda: False, None, repr_of
        )

    def begin(self) -> PoolFuture[Any]:
        self.engine.seed([1], 0.0)
        (start,) = [
            instruction for instruction in self.engine.take() if isinstance(instruction, StartItem)
        ]
        return self.pool.submit(self._make, Context(start.ticket, self.line))

    def _make(self, context: Context[int]) -> None:
        for _ in range(0, ALL, EACH):
            context.spawn([0] * EACH)
            self.made += EACH

    def await_made(self, count: int) -> None:
        while self.made < count:
            self.woken.wait()


@pytest.fixture
def rank() -> Rank:
    return Rank()


def test_spawned_items_wait_while_the_owner_is_busy(rank: Rank) -> None:
    """Otherwise the items of a huge directory would be in memory while rank 0 sorts."""
    done = rank.begin()
    known: list[int] = []

    def spawned(ticket: int, items: Sequence[int], now_s: float) -> None:
        known.extend(items)
        assert rank.made - len(known) <= MAX_BACKLOG_ITEMS + EACH

    rank.engine.spawned = spawned  # type: ignore[method-assign,assignment]
    rank.await_made(MAX_BACKLOG_ITEMS)
    while not done.done:
        rank.woken.wait()
        rank.woken.clear()
        assert rank.made - len(known) <= MAX_BACKLOG_ITEMS + 2 * EACH
        rank.pool.drain()
    assert done.error() is None
    assert len(known) == ALL
    assert rank.pool.close(60)


def test_no_worker_waits_when_the_job_ends(rank: Rank) -> None:
    rank.begin()
    rank.await_made(MAX_BACKLOG_ITEMS)
    rank.line.let_go()
    assert rank.pool.close(600)
    assert rank.made == ALL
