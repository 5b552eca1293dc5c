"""Slow threads down: to a given rate, or to a share of the speed of a shared file system.

A rate is limited by a token bucket that all threads share. A bucket holds the amount that may be
used at once, and refills at the given rate. Taking more than the bucket holds leaves a debt, and
the taker waits until the debt is paid. Therefore the amount used in any period is at most rate
times time, plus the bucket's capacity, plus the last amount taken. `TokenBucket` only computes,
with times that are passed in. `Throttle` waits, on a worker thread, in steps that are short enough
to react promptly to a request to stop.

The load that a rank puts on a shared file system is limited by measured latency. Clients of a
shared server notice each other as latency: a request that queues behind ours takes longer than the
best time observed. `LoadLimit` takes the durations of operations and returns how many may be in
flight. The number may be below one, in which case a thread pauses after each operation in
proportion to its duration. The limit is *share* times *width*, divided by the slowdown, which is
the ratio of current durations to the best duration. The width is one as long as additional
operations are noticeable, and grows while durations do not increase with it, as on a parallel file
system.

Each kind of operation is compared with the best duration of its own kind. Very short operations are
answered by the kernel's caches or by a local disk that has no other clients, and are ignored. The
best duration ages slowly, because the cost of an operation changes from one part of a tree to the
next.

`LoadLimit` is pure. `TurnTaking` makes the threads of a rank obey the limit, and `Rests` makes one
thread pause in proportion to its work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Condition, Lock

BURST_S = 0.1
"""The allowance that may be used at once, in seconds' worth of operations."""

_STEP_S = 0.05  # between two checks for a request to stop
_WINDOW = 16  # operations whose mean is evaluated
_WINDOW_S = 0.25  # total duration that ends a window with fewer operations
_CACHED_S = 50e-6  # mean durations below this are ignored
_DOUBLING_S = 600.0  # time in which the best duration doubles
_WEIGHT = 0.5  # of the last window in the smoothed slowdown
_NOTICEABLE, _UNNOTICEABLE = 1.5, 1.2  # slowdown: narrow above the first, widen below the second
_WIDENING = 0.25
_MIN_LOAD = 1 / 64
_MAX_PAUSE_S = 5.0
_SHORT_S = 0.002  # less work is not worth a rest


class TokenBucket:
    """A token bucket that refills at `rate` per second and holds at most `burst`; full at first."""

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        if rate <= 0 or burst < 0:
            raise ValueError("rate must be greater than 0, burst at least 0")
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._updated_s = now_s

    def take(self, amount: float, now_s: float) -> float:
        """Take an amount, and return the seconds to wait until it is paid for."""
        # The clock may step back.
        elapsed_s = max(0.0, now_s - self._updated_s)
        self._updated_s = max(self._updated_s, now_s)
        self._level = min(self._burst, self._level + elapsed_s * self._rate) - amount
        return max(0.0, -self._level / self._rate)


class Throttle:
    """Delays threads so that in total they take at most `rate` per second on average.

    Up to `burst_s` seconds' worth may be taken at once.
    """

    def __init__(self, rate: float, burst_s: float) -> None:
        self._bucket = TokenBucket(rate, rate * burst_s, time.monotonic())
        self._lock = Lock()

    def take(self, amount: float, stop: Callable[[], bool]) -> None:
        """Take an amount, and wait until it is paid for or `stop` returns true."""
        with self._lock:
            now_s = time.monotonic()
            wait_s = self._bucket.take(amount, now_s)
        _sleep_until(now_s + wait_s, stop)


def _sleep_until(until_s: float, stop: Callable[[], bool]) -> None:
    while (left_s := until_s - time.monotonic()) > 0 and not stop():
        time.sleep(min(left_s, _STEP_S))


class _OperationKind:
    """Durations of one kind of operation, and the best mean observed."""

    def __init__(self) -> None:
        self.best_s = math.inf
        self._count = 0
        self._duration_s = 0.0
        self._updated_s = 0.0

    def slowdown(self, count: int, duration_s: float, now_s: float) -> float | None:
        """Return the ratio of the current mean duration to the best, or None within a window."""
        self._count += count
        self._duration_s += duration_s
        if self._count < _WINDOW and self._duration_s < _WINDOW_S:
            return None
        mean_s = self._duration_s / max(1, self._count)
        self._count, self._duration_s = 0, 0.0
        if mean_s < _CACHED_S:
            return None
        ageing = 2 ** ((now_s - self._updated_s) / _DOUBLING_S) if self._updated_s else 1.0
        self._updated_s = now_s
        self.best_s = min(self.best_s * ageing, mean_s)
        return mean_s / self.best_s


class LoadLimit:
    """The number of operations that a rank may have in flight: `share` times up to `max_load`."""

    def __init__(self, share: float, max_load: int) -> None:
        self._share = share
        self._max_load = max_load
        self._kinds: dict[str, _OperationKind] = {}
        self._width = 1.0
        self._slowdown = 1.0

    def record(
        self, kind: str, count: int, duration_s: float, now_s: float, *, is_limiting: bool
    ) -> None:
        """Record `count` operations whose durations add up to `duration_s`.

        `is_limiting` states that more operations would be in flight without the limit.
        """
        slowdown = self._kinds.setdefault(kind, _OperationKind()).slowdown(count, duration_s, now_s)
        if slowdown is None:
            return
        self._slowdown += (slowdown - self._slowdown) * _WEIGHT
        if slowdown > _NOTICEABLE:
            self._width = max(1.0, self._width / min(slowdown, 2.0))
        elif slowdown < _UNNOTICEABLE and is_limiting:
            self._width = min(self._width + _WIDENING, self._max_load)

    @property
    def load(self) -> float:
        """The number of operations that may be in flight on average."""
        return max(_MIN_LOAD, self._share * self._width / max(1.0, self._slowdown))

    @property
    def max_busy(self) -> int:
        """The number of threads that may have an operation in flight."""
        return math.ceil(self.load)

    def pause_s(self, duration_s: float, threads: int) -> float:
        """Return how long one of `threads` threads must pause after working for `duration_s`."""
        load = self.load
        busy_threads = min(threads, math.ceil(load))
        return min(duration_s * max(0.0, busy_threads / load - 1), _MAX_PAUSE_S)


class TurnTaking:
    """A semaphore whose size follows the load limit, for the threads of a rank."""

    def __init__(self, share: float, max_load: int) -> None:
        self._limit = LoadLimit(share, max_load)
        self._condition = Condition()
        self._busy = 0
        self._waiting = 0  # threads that are waiting for a turn, or pausing

    def begin(self, stop: Callable[[], bool]) -> None:
        """Wait for a turn, or proceed without one once `stop` returns true."""
        with self._condition:
            self._waiting += 1
            while self._busy >= self._limit.max_busy and not stop():
                self._condition.wait(_STEP_S)
            self._waiting -= 1
            self._busy += 1

    def end(self) -> None:
        """Give up the turn."""
        with self._condition:
            self._busy -= 1
            self._condition.notify()

    def record(self, kind: str, count: int, duration_s: float) -> None:
        """Record that `count` operations took `duration_s` on this thread, which has a turn."""
        with self._condition:
            is_limiting = self._busy + self._waiting >= self._limit.load
            self._limit.record(kind, count, duration_s, time.monotonic(), is_limiting=is_limiting)

    def pause(self, duration_s: float, stop: Callable[[], bool]) -> None:
        """Pause in proportion to `duration_s` of work, after the turn was given up."""
        with self._condition:
            wait_s = self._limit.pause_s(duration_s, self._busy + self._waiting + 1)
            self._waiting += 1
        _sleep_until(time.monotonic() + wait_s, stop)
        with self._condition:
            self._waiting -= 1


class Rests:
    """The rests of a thread that works for at most a `share` of the time."""

    def __init__(self, share: float) -> None:
        self._idle = 1 / share - 1
        self._since_s = 0.0

    def start(self) -> None:
        """Begin to work, after a time that counts neither as work nor as rest."""
        self._since_s = time.monotonic()

    def rest(self, stop: Callable[[], bool]) -> None:
        """Rest in proportion to the work since the last rest, until `stop` returns true."""
        worked_s = time.monotonic() - self._since_s
        if worked_s < _SHORT_S:
            return
        _sleep_until(time.monotonic() + min(worked_s * self._idle, _MAX_PAUSE_S), stop)
        self._since_s = time.monotonic()
