"""Worker threads of a rank: which part of the task each has, and how many of them pay.

One thread is the start, and on a fast file system the end: it never waits, and
a second one would fight with it for the interpreter lock. Where operations take
long many wait at the same time; how many is found by `pcircle.workers.thread_tuning`, for
work on names and on their content apart: what pays for one need not for the other. What
is looked at is what the task says that it has done, between two looks of the
main loop, so nothing is added to the work itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pcircle.runtime.task import Task, Work
from pcircle.workers.pool import WorkerPool
from pcircle.workers.thread_tuning import WORTH_WAITING, ThreadCountSearch, Window
from pcircle.workers.threads import count_runnable, cpu_and_delay_s, other_threads

METADATA, DATA = "metadata", "data"

WINDOW_S = 0.05
_FIRST_LOOK_S = 0.01  # of work without a pause
_CHANGES = 3  # so many times as much of the other kind of work, and that is what is at hand
_MANY = 4  # one of so many threads that are ready to run is enough to wait for its account
_MAX_OF_A_RANK = 64
_MAX_OF_A_NODE = 128


def max_threads(nodes: Sequence[int], rank: int) -> int:
    """How many threads a rank may use at the most: its share of those of its node.

    Few ranks on each node, and many threads on one queue in each of them, are the hybrid ranks
    (H-DRQS) of LaFon et al. 2012; where there are as many ranks as cores, they overlap waiting by
    themselves.
    """
    return max(1, min(_MAX_OF_A_RANK, _MAX_OF_A_NODE // list(nodes).count(nodes[rank])))


class Parts:
    """The parts of a task, by the worker threads that have them."""

    def __init__(self, task: Task[Any, Any], pool: WorkerPool) -> None:
        self._task = task
        self._pool = pool
        self._parts: dict[int, Task[Any, Any]] = {}

    def context(self) -> Task[Any, Any]:
        """On a worker thread: its part."""
        number = self._pool.number
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = self._task.part(number)
        return part


class Tuner:
    """How many threads of a pool are used, up to `most`, found while they work."""

    def __init__(self, task: Task[Any, Any], pool: WorkerPool, most: int) -> None:
        self._task = task
        self._pool = pool
        most = min(most, task.max_threads)
        self._climbs = {kind: ThreadCountSearch(most) for kind in (METADATA, DATA)}
        self._kind = METADATA
        self._since_s = time.monotonic()
        self._not_before_s = 0.0
        self._before = Work()
        self._spent = (0.0, 0.0, 0.0)
        self._starved = True
        self._first: tuple[float, tuple[float, float, float]] | None = None
        self._has_looked = False

    @property
    def window_s(self) -> float:
        """How long it takes at the most until there is something to look at."""
        return WINDOW_S if self._has_looked else _FIRST_LOOK_S

    def look(self, now_s: float, *, held: bool = False) -> int:
        """At the end of a window find out how many threads the next one gets.

        `held` tells that some have waited for something else than what they work on.
        """
        pool = self._pool
        # With threads that have nothing to do there is nothing to judge by.
        self._starved = self._starved or held or pool.in_flight < pool.threads
        if not self._has_looked:
            self._look_first(now_s, held=held)
        elapsed_s = now_s - self._since_s
        if elapsed_s < WINDOW_S or now_s < self._not_before_s:
            return pool.threads
        done = self._task.work()
        if done == self._before and not self._starved:
            return pool.threads  # an operation takes longer than a window
        if not self._starved:
            pairs = zip(self._spend(), self._spent, strict=True)
            used = (max(0.0, now - before) for now, before in pairs)
            work = Work(*(now - then for now, then in zip(done, self._before, strict=True)))
            window = Window(work.all, elapsed_s, *used)
            if self._is_delay_unknown(window):
                self._not_before_s = now_s + WINDOW_S  # the window goes on
                return pool.threads
            self._judge(work, window)
        self._since_s, self._before, self._starved = now_s, done, False
        self._spent = self._spend()
        return pool.threads

    def _look_first(self, now_s: float, *, held: bool) -> None:
        """See whether the first work is nothing but waiting."""
        pool = self._pool
        if held or pool.in_flight < pool.threads:
            self._first = None
        elif self._first is None:
            self._first = now_s, self._spend()
        elif now_s - self._first[0] >= _FIRST_LOOK_S:
            began_s, before = self._first
            pairs = zip(self._spend(), before, strict=True)
            window = Window(0.0, now_s - began_s, *(max(0.0, now - then) for now, then in pairs))
            if not self._is_delay_unknown(window):
                pool.threads = self._climbs[self._kind].update_first(window)
            self._has_looked = True

    def _is_delay_unknown(self, window: Window) -> bool:
        """Whether threads may have waited for a processor all the time, and still do.

        The kernel books how long a thread has waited for one when it gets one. Until then that
        looks like waiting for the file system.
        """
        threads = self._pool.threads
        waiting = 1.0 - (window.cpu_s + window.delay_s) / (window.elapsed_s * threads)
        if waiting < WORTH_WAITING:
            return False
        return _MANY * count_runnable(self._pool.native_ids[:threads]) >= threads

    def _judge(self, work: Work, window: Window) -> None:
        """Let the search for the kind of work at hand know, or the other one take over."""
        more, less = (work.data, work.metadata)[:: 1 if self._kind == METADATA else -1]
        if more > _CHANGES * less:
            self._climbs[self._kind].abandon_trial()
            self._kind = DATA if self._kind == METADATA else METADATA
            self._pool.threads = self._climbs[self._kind].threads
        else:
            self._pool.threads = self._climbs[self._kind].update(window)

    @property
    def settled(self) -> int:
        """How many threads have paid for the work that was done last."""
        return self._climbs[self._kind].confirmed

    @property
    def rates(self) -> tuple[tuple[str, int, float], ...]:
        """Kind, number of threads, and the work per second that was last seen with so many."""
        return tuple(
            (kind, threads, rate)
            for kind, climb in self._climbs.items()
            for threads, rate in sorted(climb.rates.items())
        )

    def _spend(self) -> tuple[float, float, float]:
        """What the threads in use have run and been delayed so far, and all others of the rank."""
        workers = self._pool.native_ids
        return *cpu_and_delay_s(workers[: self._pool.threads]), sum(
            cpu_and_delay_s(other_threads(workers))
        )
