"""Doing no more of something in a second than is allowed, whoever asks.

A bucket holds what may be done at once and fills at the allowed rate. Taking
more than it holds leaves a debt, and whoever took waits until that is paid:
so the sum of what is done in any time stays below rate times time, plus what
the bucket holds, plus the last thing taken if it was done before it was paid.

`Bucket` is arithmetic over a clock that is given; `Throttle` waits, on a
worker's thread, in steps so short that a request to stop is answered at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

_STEP_S = 0.05


class Bucket:
    """An allowance of `rate` a second, of which at most `burst` is saved up; full at first."""

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        if rate <= 0 or burst < 0:
            raise ValueError("an allowance is more than nothing")
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._then_s = now_s

    def take(self, amount: float, now_s: float) -> float:
        """Take an amount; returns the seconds to wait until it is paid for."""
        # A clock that steps back must not be paid for.
        passed_s = max(0.0, now_s - self._then_s)
        self._then_s = max(self._then_s, now_s)
        self._level = min(self._burst, self._level + passed_s * self._rate) - amount
        return max(0.0, -self._level / self._rate)


class Throttle:
    """A bucket to wait at: `rate` a second and `burst_s` seconds' worth of it at once.

    Any number of threads may wait at it.
    """

    def __init__(self, rate: float, burst_s: float) -> None:
        self._bucket = Bucket(rate, rate * burst_s, time.monotonic())
        self._lock = Lock()

    def take(self, amount: float, stop: Callable[[], bool]) -> None:
        """Take an amount, and wait until it is paid for or `stop` says so."""
        with self._lock:
            now_s = time.monotonic()
            wait_s = self._bucket.take(amount, now_s)
        until_s = now_s + wait_s
        while wait_s > 0 and not stop():
            time.sleep(min(wait_s, _STEP_S))
            wait_s = until_s - time.monotonic()
