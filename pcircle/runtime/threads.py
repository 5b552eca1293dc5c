"""The worker threads of a rank: their parts of the task, and the best number of threads.

A rank starts with one thread. On a fast file system that thread rarely waits, so a second one would
only contend for the interpreter lock. If operations take long, many threads can wait at the same
time. `pcircle.threads.thread_tuning` searches for the best number, separately for work on names and
on contents. The main loop reads the task's count of work and the threads' CPU times at intervals,
so tuning adds no overhead to the work itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Generic

from pcircle.runtime.task import I, R, Task, Work
from pcircle.threads.thread_tuning import WORTH_WAITING, ThreadCountSearch, Window
from pcircle.threads.workers import WorkerPool, count_runnable, cpu_and_delay_s, other_threads

METADATA, DATA = "metadata", "data"

WINDOW_S = 0.05
_FIRST_LOOK_S = 0.01  # seconds of uninterrupted work
_SWITCH_RATIO = 3  # switch kinds if the other kind of work exceeds the present by this factor
_MANY = 4  # wait for the kernel's accounting if one in this many threads is runnable
_MAX_OF_A_RANK = 64
_MAX_OF_A_NODE = 128


def max_threads(nodes: Sequence[int], rank: int) -> int:
    """Return the maximum number of threads of a rank: its share of the node's limit, up to 64.

    Few ranks per node, each with many threads on one queue, correspond to the hybrid ranks (H-DRQS)
    of LaFon et al. (2012). With one rank per core, the ranks themselves overlap waiting.
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
    """Searches for the best number of threads of a pool, up to a maximum, while the pool works."""

    def __init__(self, task: Task[I, R], pool: WorkerPool, max_count: int) -> None:
        self._work = task.work
        self._pool = pool
        max_count = min(max_count, task.max_threads)
        self._searches = {kind: ThreadCountSearch(max_count) for kind in (METADATA, DATA)}
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
        """Evaluate the current window if it has ended; return the number of threads to use now.

        `held` means that threads waited for something other than their work.
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
            return pool.threads  # no operation has ended in this window
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
        """Evaluate the first moments of work, so that the search can start with several threads."""
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
                pool.threads = self._searches[self._kind].update_first(window)
            self._has_looked = True

    def _is_delay_unknown(self, window: Window) -> bool:
        """Return whether threads may still be waiting for a processor, not for the file system.

        The kernel accounts for the time that a thread waited for a processor only when the thread
        gets one. Until then, that time looks like waiting for the file system.
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
            self._searches[self._kind].abandon_trial()
            self._kind = DATA if self._kind == METADATA else METADATA
            self._pool.threads = self._searches[self._kind].threads
        else:
            self._pool.threads = self._searches[self._kind].update(window)

    @property
    def settled(self) -> int:
        """The best number of threads found for the latest kind of work."""
        return self._searches[self._kind].confirmed

    @property
    def rates(self) -> tuple[tuple[str, int, float], ...]:
        """For each number of threads tried: the kind of work, the number, and the latest rate."""
        return tuple(
            (kind, threads, rate)
            for kind, search in self._searches.items()
            for threads, rate in sorted(search.rates.items())
        )

    def _spend(self) -> tuple[float, float, float]:
        """Return the CPU time and delay of the threads in use, and the sum of both for the rest."""
        workers = self._pool.native_ids
        return *cpu_and_delay_s(workers[: self._pool.threads]), sum(
            cpu_and_delay_s(other_threads(workers))
        )
