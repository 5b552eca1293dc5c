"""How many operations in flight pay: found by climbing on measured throughput.

On a parallel file system an operation takes a millisecond in which a thread
does nothing, so dozens of threads are dozens of times as fast. On a local one
the threads fight over the interpreter lock, and a second one makes all slower.
Nobody should have to say which it is, so each rank finds out.

Pure: told what was done in a window of time, it answers with the number of
threads for the next one. It starts at one. Three things are looked at:

- *Waiting.* The share of the window in which the threads neither ran nor
  wanted to (their own processor time and the kernel's run delay, from
  `/proc/self/task/*/schedstat`), nor some other thread of the process held the
  interpreter lock, which looks like waiting: it may as long as it runs or is
  kept from running. Who does not wait gains nothing by company, nor does
  anybody once the lock is held nearly all the time.
- *Being kept from running.* Where threads are ready and have no processor for
  a good part of the time, nothing is learnt of the file system, and a step
  down is taken. The kernel books such a wait when it ends, so no window ends
  while it lasts (`pcircle.runtime.threads`).
- *Throughput* per second in which the threads were not kept from running. Each
  step up must pay by a good part of what it could; else it is taken back, and
  tried again after a time that doubles. From time to time a step down is tried
  and kept if it costs nothing.

Small trees are done before much is measured: where the very first look finds
nothing but waiting, eight threads are used at once.

This is hill climbing as in any adaptive concurrency limit; the exclusion of
run delay is what keeps ranks on a crowded node from climbing after noise.
"""

from __future__ import annotations

from typing import NamedTuple

from pcircle.guards import require

LEVELS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""The numbers of threads that are tried."""

WORTH_WAITING = 0.35  # the least share of waiting at which one more thread is tried
_HELD_UP = 0.3  # the share of time kept from running above which nothing is learnt
_NEARLY_ALL = 0.7  # the share of both above which two steps are taken at once
_LOCK_TO_SPARE = 0.2  # the least share of time without the interpreter lock, as well
_PAYS = 0.3  # of the gain that a step up could bring, the least to keep it
_FREE = 0.12  # the loss at which a step down is kept
_OTHER = 0.5  # the change of throughput by which the file system is another one now
_ALL = 0.8  # the share of both above which a first look is enough for several steps
_FIRST_STEPS = 3
_FIRST_HOLD = 8  # windows before something is tried again
_LONGEST_HOLD = 128


class Window(NamedTuple):
    """What was done between two looks: units of work, seconds, and how the threads spent them.

    `cpu_s` and `delay_s` are sums over the threads: running, and ready to run
    without a processor. `others_s` are both of the process's other threads.
    """

    done: float
    elapsed_s: float
    cpu_s: float = 0.0
    delay_s: float = 0.0
    others_s: float = 0.0


def _shares(window: Window, threads: int) -> tuple[float, float]:
    """Of a window, the share that threads have waited, and that of the lock without an owner."""
    others = window.others_s / window.elapsed_s
    own = (window.cpu_s + window.delay_s / threads) / window.elapsed_s
    waiting = 1.0 - (window.cpu_s + window.delay_s) / (window.elapsed_s * threads) - others
    return waiting, 1.0 - own - others


class Climb:
    """The search of one rank for one kind of work."""

    def __init__(self, most: int = LEVELS[-1]) -> None:
        self._levels = [level for level in LEVELS if level <= most] or [1]
        self._at = 0
        self._before: float | None = None  # the rate at the level that is left for a trial
        self._trial = 0  # this level is a trial from so many below, or (-1) from above
        self._hold = 0
        self._next_hold = _FIRST_HOLD
        self._down_next = False
        self._seen_worth = False  # in the last window
        self.history: list[tuple[int, float]] = []
        self.rates: dict[int, float] = {}  # the last throughput at each number of threads

    @property
    def threads(self) -> int:
        """How many to use now."""
        return self._levels[self._at]

    @property
    def settled(self) -> int:
        """How many have paid so far: a number that is on trial does not count."""
        return self._levels[self._at - max(0, self._trial)]

    def leave(self) -> None:
        """There will be no such work for a while: a trial ends."""
        self._at -= max(0, self._trial)
        self._trial = 0
        self._seen_worth = False

    def leap(self, window: Window) -> int:
        """Take note of a short first window, in which perhaps nothing was done.

        Where it was spent on waiting alone, a number of threads is used that costs little where it
        does not pay. One that is tried among few operations can't be judged by what they do.
        """
        waiting, spare = _shares(window, self.threads)
        if not self._at and not self._trial and min(waiting, spare) > _ALL:
            self._at = min(_FIRST_STEPS, len(self._levels) - 1)
        return self.threads

    def update(self, window: Window) -> int:
        """Take note of a window; returns how many threads to use in the next one."""
        threads = self.threads
        wanted_s = window.elapsed_s - window.delay_s / threads
        if window.elapsed_s <= 0 or wanted_s <= 0 or not window.done:
            return threads
        if (window.delay_s / threads + window.others_s) / window.elapsed_s > _HELD_UP:
            self._yield()
            return self.threads
        rate = window.done / wanted_s
        waiting, spare = _shares(window, threads)
        worth = waiting >= WORTH_WAITING and spare >= _LOCK_TO_SPARE
        # The first step wants two windows: most of those who never need it never take it.
        sure, self._seen_worth = worth and (self._at > 0 or self._seen_worth), worth
        self.history.append((threads, rate))
        del self.history[:-64]
        self.rates[threads] = rate
        if self._trial > 0:
            self._judge_up(rate)
        elif self._trial < 0:
            self._judge_down(rate)
        elif self._hold:
            self._hold -= 1
            if not self._is_other(rate):
                return threads
            self._hold, self._next_hold = 0, _FIRST_HOLD
        if not self._hold and not self._trial:
            steps = 2 if min(waiting, spare) > _NEARLY_ALL else 1
            self._try(rate, waiting, steps if sure else 0)
        return self.threads

    def _yield(self) -> None:
        """There are not processors enough: what is measured is the neighbours."""
        self._at -= max(self._trial, min(self._at, 1))
        if self._trial:
            self._rest()
        self._trial = 0

    def _judge_up(self, rate: float) -> None:
        before = require(self._before)
        could = self._levels[self._at] / self._levels[self._at - self._trial] - 1.0
        if rate < before * (1.0 + _PAYS * could):
            self._at -= self._trial
            self._rest()
        else:
            self._next_hold = _FIRST_HOLD
        self._trial = 0

    def _judge_down(self, rate: float) -> None:
        before = require(self._before)
        self._trial = 0
        if rate < before * (1.0 - _FREE):
            self._at += 1
            self._rest()
        elif self._at:  # it cost nothing: further down
            self._before = max(rate, before)
            self._at, self._trial = self._at - 1, -1

    def _is_other(self, rate: float) -> bool:
        return self._before is not None and not (
            1 - _OTHER < rate / self._before < 1 / (1 - _OTHER)
        )

    def _rest(self) -> None:
        self._hold = self._next_hold
        self._next_hold = min(2 * self._next_hold, _LONGEST_HOLD)

    def _try(self, rate: float, waiting: float, steps: int) -> None:
        self._before = rate
        rested = self._next_hold > _FIRST_HOLD
        if rested and self._down_next and self._at:
            self._at, self._trial = self._at - 1, -1
        elif steps and self._at + 1 < len(self._levels):
            self._trial = min(steps, len(self._levels) - 1 - self._at)
            self._at += self._trial
        elif self._at and waiting < WORTH_WAITING:
            self._at, self._trial = self._at - 1, -1
        elif self._at or not self._seen_worth:
            self._rest()
        self._down_next = not self._down_next
