"""Rate limits, by a token bucket that all threads share.

A bucket holds what may be done at once and fills at the given rate. Taking more than it holds
leaves a debt, and the taker waits until that is paid. So the amount done in any period is at most
rate times time, plus the capacity of the bucket, plus the last amount taken.

`Bucket` is arithmetic over a clock that is passed in; `Throttle` waits, on a worker thread, in
steps so short that a request to stop is answered at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

BURST_S = 0.1
"""The seconds' worth of operations that may be done at once."""

_STEP_S = 0.05


class Bucket:
    """A token bucket that fills at `rate` per second and holds at most `burst`; full at first."""

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        if rate <= 0 or burst < 0:
            raise ValueError("rate must be greater than 0, burst at least 0")
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._then_s = now_s

    def take(self, amount: float, now_s: float) -> float:
        """Take an amount; returns the seconds to wait until it is paid for."""
        # A clock that steps back must not count.
        passed_s = max(0.0, now_s - self._then_s)
        self._then_s = max(self._then_s, now_s)
        self._level = min(self._burst, self._level + passed_s * self._rate) - amount
        return max(0.0, -self._level / self._rate)


class Throttle:
    """Waits so that at most `rate` per second is taken, and `burst_s` seconds' worth at once.

    Any number of threads may share it.
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
