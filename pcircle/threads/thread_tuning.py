"""Find how many threads to use, by hill climbing on measured throughput.

On a parallel file system an operation may take a millisecond in which the thread does nothing. So
dozens of threads can be dozens of times as fast. On a local file system threads compete for the
interpreter lock, and a second thread may slow everything down. Users should not have to know which
case applies, so each rank measures.

`ThreadCountSearch` is pure: it takes the work done in a window of time and returns the number of
threads for the next window, starting with one. It considers three quantities:

- *Waiting*: the share of the window in which the threads neither ran nor wanted to run, from their
  processor time and the kernel's run delay (`/proc/self/task/*/schedstat`). Waiting for the
  interpreter lock looks the same. Therefore the search subtracts the time in which other threads of
  the process could hold the lock, because they ran or were kept from running. More threads do not
  help if the threads do not wait, or if the lock is held nearly all the time.
- *Run delay*: if threads are ready but have no processor for a large part of the time, nothing can
  be learned about the file system, and the search steps down. The kernel accounts for a delay when
  it ends, so a window is not closed during a delay.
- *Throughput*: work per second in which the threads were not kept from running. A step up must
  achieve a fair part of the possible gain. Otherwise it is reverted, and retried after an interval
  that doubles each time, up to a limit. From time to time a step down is tried, and kept if it
  costs little.

Small trees are finished before much can be measured. So if the threads only wait in the first short
window, the search starts at eight threads.

This is hill climbing as in any adaptive concurrency limit. Excluding run delay keeps ranks on a
crowded node from reacting to noise.

`Tuner` searches for the best number of threads of a rank, separately for work on names and on
contents. The main loop reads the task's count of work and the threads' CPU times at intervals, so
tuning adds no overhead to the work itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from pcircle.threads.workers import WorkerPool, count_runnable, cpu_and_delay_s, other_threads

LEVELS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""The numbers of threads that are tried."""

_WORTH_WAITING = 0.35  # minimum share of waiting for a step up
_MAX_DELAY = 0.3  # maximum share of run delay and of other threads in a usable window
_NEARLY_ALL = 0.7  # minimum share of waiting and of free lock for two steps at once
_MIN_LOCK_FREE = 0.2  # minimum share of time with a free interpreter lock for a step up
_MIN_GAIN = 0.3  # minimum part of the possible gain at which a step up is kept
_MAX_LOSS = 0.12  # maximum loss at which a step down is kept
_CHANGE = 0.5  # change of throughput after which a new search begins
_ALL = 0.8  # minimum share of waiting and of free lock for starting at a higher level
_FIRST_LEVEL = 3
_FIRST_HOLD = 8  # windows before the next trial
_MAX_HOLD = 128

METADATA, DATA = "metadata", "data"
WINDOW_S = 0.05
_FIRST_LOOK_S = 0.01  # seconds of uninterrupted work
_SWITCH_RATIO = 3  # switch kinds if the other kind of work exceeds the present by this factor
_MANY = 4  # wait for the kernel's accounting if one in this many threads is runnable
_MAX_OF_A_RANK = 64
_MAX_OF_A_NODE = 128


class Window(msgspec.Struct, frozen=True):
    """The work done in an interval of time, and how the threads spent that time.

    `done` is in units of work. `cpu_s` is the total time for which the threads ran, and `delay_s`
    the total time for which they were ready to run but had no processor. `other_threads_s` is the
    sum of both times for the other threads of the process.
    """

    done: float
    elapsed_s: float
    cpu_s: float = 0.0
    delay_s: float = 0.0
    other_threads_s: float = 0.0


def _shares(window: Window, threads: int) -> tuple[float, float]:
    """Return the shares of a window in which threads waited, and in which the lock was free."""
    other_share = window.other_threads_s / window.elapsed_s
    own = (window.cpu_s + window.delay_s / threads) / window.elapsed_s
    waiting = 1.0 - (window.cpu_s + window.delay_s) / (window.elapsed_s * threads) - other_share
    return waiting, 1.0 - own - other_share


class ThreadCountSearch:
    """The search of one rank for the number of threads for one kind of work."""

    def __init__(self, max_threads: int = LEVELS[-1]) -> None:
        self._levels = [level for level in LEVELS if level <= max_threads] or [1]
        self._index = 0
        self._rate_before = 0.0  # at the level before the trial
        self._trial = 0  # number of levels stepped up for the current trial; -1: stepped down
        self._hold = 0
        self._next_hold = _FIRST_HOLD
        self._down_next = False
        self._was_worthwhile = False  # the last window justified a step up
        self.history: list[tuple[int, float]] = []
        self.rates: dict[int, float] = {}  # number of threads -> last throughput

    @property
    def threads(self) -> int:
        """The number of threads to use now."""
        return self._levels[self._index]

    @property
    def confirmed(self) -> int:
        """The number of threads found useful so far, excluding a level that is on trial."""
        return self._levels[self._index - max(0, self._trial)]

    def abandon_trial(self) -> None:
        """End a trial, because no work of this kind is expected for a while."""
        self._index -= max(0, self._trial)
        self._trial = 0
        self._was_worthwhile = False

    def update_first(self, window: Window) -> int:
        """Evaluate a short first window, even if no operation was completed in it.

        If the threads only waited, start with a number of threads that costs little if it does not
        pay off. The walk of a small tree would end before a regular search reached that number.
        Return the number of threads to use.
        """
        waiting, lock_free = _shares(window, self.threads)
        if not self._index and not self._trial and min(waiting, lock_free) > _ALL:
            self._index = min(_FIRST_LEVEL, len(self._levels) - 1)
        return self.threads

    def update(self, window: Window) -> int:
        """Evaluate a window and return the number of threads to use in the next one."""
        threads = self.threads
        wanted_s = window.elapsed_s - window.delay_s / threads
        if window.elapsed_s <= 0 or wanted_s <= 0 or not window.done:
            return threads
        if (window.delay_s / threads + window.other_threads_s) / window.elapsed_s > _MAX_DELAY:
            self._step_down()
            return self.threads
        rate = window.done / wanted_s
        waiting, lock_free = _shares(window, threads)
        is_worthwhile = waiting >= _WORTH_WAITING and lock_free >= _MIN_LOCK_FREE
        # The first step needs two windows, so that a single outlier does not cause it.
        is_justified = is_worthwhile and (self._index > 0 or self._was_worthwhile)
        self._was_worthwhile = is_worthwhile
        self.history.append((threads, rate))
        del self.history[:-64]
        self.rates[threads] = rate
        if self._trial > 0:
            self._conclude_step_up(rate)
        elif self._trial < 0:
            self._conclude_step_down(rate)
        elif self._hold:
            self._hold -= 1
            if not self._has_changed(rate):
                return threads
            self._hold, self._next_hold = 0, _FIRST_HOLD
        if not self._hold and not self._trial:
            steps = 2 if min(waiting, lock_free) > _NEARLY_ALL else 1
            self._start_trial(rate, waiting, steps if is_justified else 0)
        return self.threads

    def _step_down(self) -> None:
        """Step down, because processors are scarce and measurements reflect other processes."""
        self._index -= max(self._trial, min(self._index, 1))
        if self._trial:
            self._pause_trials()
        self._trial = 0

    def _conclude_step_up(self, rate: float) -> None:
        possible_gain = self._levels[self._index] / self._levels[self._index - self._trial] - 1.0
        if rate < self._rate_before * (1.0 + _MIN_GAIN * possible_gain):
            self._index -= self._trial
            self._pause_trials()
        else:
            self._next_hold = _FIRST_HOLD
        self._trial = 0

    def _conclude_step_down(self, rate: float) -> None:
        self._trial = 0
        if rate < self._rate_before * (1.0 - _MAX_LOSS):
            self._index += 1
            self._pause_trials()
        elif self._index:  # no loss: try the next lower level
            self._rate_before = max(rate, self._rate_before)
            self._index, self._trial = self._index - 1, -1

    def _has_changed(self, rate: float) -> bool:
        return not 1 - _CHANGE < rate / self._rate_before < 1 / (1 - _CHANGE)

    def _pause_trials(self) -> None:
        self._hold = self._next_hold
        self._next_hold = min(2 * self._next_hold, _MAX_HOLD)

    def _start_trial(self, rate: float, waiting: float, steps: int) -> None:
        self._rate_before = rate
        is_settled = self._next_hold > _FIRST_HOLD
        if is_settled and self._down_next and self._index:
            self._index, self._trial = self._index - 1, -1
        elif steps and self._index + 1 < len(self._levels):
            self._trial = min(steps, len(self._levels) - 1 - self._index)
            self._index += self._trial
        elif self._index and waiting < _WORTH_WAITING:
            self._index, self._trial = self._index - 1, -1
        elif self._index or not self._was_worthwhile:
            self._pause_trials()
        self._down_next = not self._down_next


def max_threads(nodes: Sequence[int], rank: int) -> int:
    """Return the maximum number of threads of a rank: its share of the node's limit, up to 64.

    Few ranks per node, each with many threads on one queue, correspond to the hybrid ranks (H-DRQS)
    of LaFon et al. (2012). With one rank per core, the ranks themselves overlap waiting.
    """
    return max(1, min(_MAX_OF_A_RANK, _MAX_OF_A_NODE // list(nodes).count(nodes[rank])))


class Work(msgspec.Struct, frozen=True):
    """The amount of work done on names and on contents, in one unit of the task's choice."""

    metadata: float = 0.0
    data: float = 0.0

    @property
    def all(self) -> float:
        """The sum of the work on names and on contents."""
        return self.metadata + self.data


class Tuner:
    """Searches for the best number of threads of a pool, up to a maximum, while the pool works.

    `work` returns the work that the pool has done so far.
    """

    def __init__(self, work: Callable[[], Work], pool: WorkerPool, max_count: int) -> None:
        self._work = work
        self._pool = pool
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
        if waiting < _WORTH_WAITING:
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
