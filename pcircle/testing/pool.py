"""A simulated rank's worker pool and its channel to the engine, on fibers in virtual time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

from pcircle.runtime.task import I, R
from pcircle.runtime.worker_channel import MAX_OUTBOX_BYTES, WorkerChannel
from pcircle.testing.fibers import Fiber, RankFibers, StopCall
from pcircle.threads.pool import PoolFuture, WorkerPool

T = TypeVar("T")

_ROOM_S = 1e-4  # between checks for room in a full queue
_Call = tuple["PoolFuture[Any]", Callable[..., object], tuple[object, ...]]


class SimPool(WorkerPool):
    """A `pcircle.threads.pool.WorkerPool` whose calls take virtual time to begin and to end."""

    in_flight: int

    def __init__(self, rank_fibers: RankFibers, wake: Callable[[], None], threads: int = 1) -> None:
        super().__init__(wake, threads)
        self._rank_fibers = rank_fibers
        self._pending: deque[_Call] = deque()
        self._fibers: list[Fiber] = []
        self._idle: deque[Fiber] = deque()
        self._closing = False

    @property
    def number(self) -> int:
        """Return the number of the calling worker, from 0."""
        return self._rank_fibers.here.number

    @property
    def native_ids(self) -> list[int | None]:
        """Return an empty list, because the CPU time of fibers means nothing in virtual time."""
        return []

    def submit(self, function: Callable[..., T], *args: object) -> PoolFuture[T]:
        future: PoolFuture[T] = PoolFuture()
        self.in_flight += 1
        self._pending.append((future, function, args))
        if self._idle:
            self._rank_fibers.resume(self._idle.popleft())
        elif len(self._fibers) < self.threads:
            number = len(self._fibers)
            self._fibers.append(self._rank_fibers.begin(lambda: self._serve(number), number))
        return future

    def close(self, patience_s: float) -> bool:
        rank_fibers, until_s = self._rank_fibers, self._rank_fibers.now_s + patience_s
        self._closing = True
        while self._idle:
            rank_fibers.resume(self._idle.popleft())
        while (busy := self._busy()) and rank_fibers.now_s < until_s:
            rank_fibers.pause(until_s - rank_fibers.now_s)
        self._fibers.clear()
        self._closing = False
        return not busy

    def _busy(self) -> bool:
        return any(not fiber.ended for fiber in self._fibers)

    def _serve(self, number: int) -> None:
        rank_fibers = self._rank_fibers
        while True:
            while not self._pending:
                if self._closing:
                    self.wake()
                    return
                self._idle.append(self._fibers[number])
                rank_fibers.pause(inf)
            future, function, args = self._pending.popleft()
            rank_fibers.pause_randomly()
            value, error = None, None
            try:
                value = function(*args)
            except StopCall:
                raise
            except BaseException as caught:  # the owner handles it
                error = caught
            rank_fibers.pause_randomly()
            self.post(self._settle, future, value, error)


class SimWorkerChannel(WorkerChannel[I, R]):
    """A `WorkerChannel` that lets virtual time pass when an item calls methods of its context."""

    rank_fibers: RankFibers
    spawned: Callable[[Sequence[I]], None]
    holds: Counter[int]

    def begin(
        self, rank_fibers: RankFibers, spawned: Callable[[Sequence[I]], None]
    ) -> SimWorkerChannel[I, R]:
        """Attach the channel to the rank's fibers and to the callback for spawned items.

        `holds` counts the holds that were not released, by ticket.
        """
        self.rank_fibers, self.spawned, self.holds = rank_fibers, spawned, Counter()
        self.is_stopping: Callable[[], bool] = self._asked(self.is_stopping)
        self.has_idle_workers: Callable[[], bool] = self._asked(self.has_idle_workers)
        return self

    def _asked(self, question: Callable[[], bool]) -> Callable[[], bool]:
        def asked() -> bool:
            self.rank_fibers.pause_randomly(0.25)
            return question()

        return asked

    def spawn(self, ticket: int, items: Sequence[I]) -> None:
        self.spawned(items)
        while self._backlog.is_full and not self.rank_fibers.here.is_main:
            self.rank_fibers.pause(_ROOM_S)
        super().spawn(ticket, items)
        self.rank_fibers.pause_randomly(0.5)

    def post(self, ticket: int, rank: int, items: Sequence[I]) -> None:
        self.spawned(items)
        super().post(ticket, rank, items)
        self.rank_fibers.pause_randomly(0.5)

    def hold(self, ticket: int, epoch: int) -> None:
        self.holds[ticket] += 1
        super().hold(ticket, epoch)
        self.rank_fibers.pause_randomly(0.5)

    def resume(self, ticket: int, items: Sequence[I], value: object, epoch: int) -> None:
        self.holds[ticket] -= 1
        self.spawned(items)
        super().resume(ticket, items, value, epoch)
        self.rank_fibers.pause_randomly(0.5)

    def _await_room(self) -> None:
        outbox = self._outbox
        while outbox.size_bytes > MAX_OUTBOX_BYTES and not self.is_stopping():
            self.rank_fibers.pause(_ROOM_S)
