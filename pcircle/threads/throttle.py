"""Limit rates by a token bucket that all threads share.

A bucket holds the amount that may be used at once, and refills at the given rate. Taking more than
the bucket holds leaves a debt, and the taker waits until the debt is paid. Therefore the amount
used in any period is at most rate times time, plus the bucket's capacity, plus the last amount
taken.

`TokenBucket` only computes, with times that are passed in. `Throttle` waits, on a worker thread, in
steps that are short enough to react promptly to a request to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

BURST_S = 0.1
"""The allowance that may be used at once, in seconds' worth of operations."""

_STEP_S = 0.05


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
        until_s = now_s + wait_s
        while wait_s > 0 and not stop():
            time.sleep(min(wait_s, _STEP_S))
            wait_s = until_s - time.monotonic()
