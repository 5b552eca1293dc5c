"""The worker threads of a rank: which part of the task each has, and how many of them pay.

A rank starts with one thread, and on a fast file system keeps one: it never waits, and a second
thread would contend with it for the interpreter lock. If operations take long, many threads wait at
the same time. Their number is found by `pcircle.threads.thread_tuning`, separately for work on
names and on contents, because the best numbers differ. The input of that search is the task's own
count of work between two checks of the main loop, so the work itself has no overhead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Generic

from pcircle.runtime.task import I, R, Task, Work
from pcircle.threads.pool import WorkerPool
from pcircle.threads.thread_tuning import WORTH_WAITING, ThreadCountSearch, Window
from pcircle.threads.threads import count_runnable, cpu_and_delay_s, other_threads

METADATA, DATA = "metadata", "data"

WINDOW_S = 0.05
_FIRST_LOOK_S = 0.01  # of uninterrupted work
_SWITCH_RATIO = 3  # of the other kind of work to the present kind
_MANY = 4  # wait for accounting if one in this many threads is runnable
_MAX_OF_A_RANK = 64
_MAX_OF_A_NODE = 128


def max_threads(nodes: Sequence[int], rank: int) -> int:
    """Return the maximum number of threads of a rank: its share of the node's threads.

    Few ranks per node, with many threads on one queue in each, are the hybrid ranks (H-DRQS) of
    LaFon et al. 2012. With as many ranks as cores, the ranks themselves overlap waiting.
    """
    return max(1, min(_MAX_OF_A_RANK, _MAX_OF_A_NODE // list(nodes).count(nodes[rank])))


class PerThreadTasks(Generic[I, R]):
    """The parts of a task, by worker thread."""

    def __init__(self, task: Task[I, R], pool: WorkerPool) -> None:
        self._task = task
        self._pool = pool
        self._parts: dict[int, Task[I, R]] = {}

    def context(self) -> Task[I, R]:
        """Return the part of the calling worker thread."""
        number = self._pool.number
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = self._task.part(number)
        return part


class Tuner:
    """Finds, while a pool works, how many of its threads pay, up to a maximum."""

    def __init__(self, task: Task[I, R], pool: WorkerPool, max_count: int) -> None:
        self._work = task.work
        self._pool = pool
        max_count = min(max_count, task.max_threads)
        self._climbs = {kind: ThreadCountSearch(max_count) for kind in (METADATA, DATA)}
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
        """The maximum time until the next check."""
        return WINDOW_S if self._has_looked else _FIRST_LOOK_S

    def look(self, now_s: float, *, held: bool = False) -> int:
        """Return the number of threads for the next window, after evaluating a window that is over.

        `held` means that threads have waited for something other than their work.
        """
        pool = self._pool
        # A window with idle threads cannot be evaluated.
        self._starved = self._starved or held or pool.in_flight < pool.threads
        if not self._has_looked:
            self._look_first(now_s, held=held)
        elapsed_s = now_s - self._since_s
        if elapsed_s < WINDOW_S or now_s < self._not_before_s:
            return pool.threads
        done = self._work()
        if done == self._before and not self._starved:
            return pool.threads  # an operation takes longer than a window
        if not self._starved:
            pairs = zip(self._spend(), self._spent, strict=True)
            used = (max(0.0, now - before) for now, before in pairs)
            work = Work(done.metadata - self._before.metadata, done.data - self._before.data)
            window = Window(work.all, elapsed_s, *used)
            if self._is_delay_unknown(window):
                self._not_before_s = now_s + WINDOW_S  # extend the window
                return pool.threads
            self._judge(work, window)
        self._since_s, self._before, self._starved = now_s, done, False
        self._spent = self._spend()
        return pool.threads

    def _look_first(self, now_s: float, *, held: bool) -> None:
        """Check whether the first work consists of nothing but waiting."""
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
        """Return whether threads may have waited for a processor all the time, and still do.

        The kernel accounts the time that a thread waits for a processor when the thread gets one.
        Until then it looks like waiting for the file system.
        """
        threads = self._pool.threads
        waiting = 1.0 - (window.cpu_s + window.delay_s) / (window.elapsed_s * threads)
        if waiting < WORTH_WAITING:
            return False
        return _MANY * count_runnable(self._pool.native_ids[:threads]) >= threads

    def _judge(self, work: Work, window: Window) -> None:
        """Update the search for the present kind of work, or switch to the other kind."""
        more, less = (work.data, work.metadata)[:: 1 if self._kind == METADATA else -1]
        if more > _SWITCH_RATIO * less:
            self._climbs[self._kind].abandon_trial()
            self._kind = DATA if self._kind == METADATA else METADATA
            self._pool.threads = self._climbs[self._kind].threads
        else:
            self._pool.threads = self._climbs[self._kind].update(window)

    @property
    def settled(self) -> int:
        """The number of threads that paid for the latest work."""
        return self._climbs[self._kind].confirmed

    @property
    def rates(self) -> tuple[tuple[str, int, float], ...]:
        """Kind, number of threads, and latest work per second with that number, for each tried."""
        return tuple(
            (kind, threads, rate)
            for kind, climb in self._climbs.items()
            for threads, rate in sorted(climb.rates.items())
        )

    def _spend(self) -> tuple[float, float, float]:
        """Return the CPU time and delay of the threads in use, and the CPU time of all others."""
        workers = self._pool.native_ids
        return *cpu_and_delay_s(workers[: self._pool.threads]), sum(
            cpu_and_delay_s(other_threads(workers))
        )
