"""The token bucket with a simulated clock: never more than the rate allows, and hardly less."""

from __future__ import annotations

import time
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcircle.threads.throttle import Throttle, TokenBucket

amounts = st.floats(0, 1000)
pauses = st.one_of(st.just(0.0), st.floats(0, 10))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(0.1, 1e6), st.floats(0, 1000), st.lists(st.tuples(pauses, amounts), max_size=40))
def test_no_period_exceeds_the_rate_and_a_burst(
    rate: float, burst: float, amounts_taken: list[tuple[float, float]]
) -> None:
    """An amount is used once it is paid for; the sum within any period is bounded."""
    bucket, now_s = TokenBucket(rate, burst, 0.0), 0.0
    done_at, done = [], []
    for pause_s, amount in amounts_taken:
        now_s += pause_s
        now_s += bucket.take(amount, now_s)
        done_at.append(now_s)
        done.append(amount)
    sums = [0.0, *accumulate(done)]
    for first in range(len(done)):
        for last in range(first, len(done)):
            window_s = done_at[last] - done_at[first]
            # The first amount was paid for before the window begins.
            allowed = rate * window_s + max(burst, 0.0)
            assert sums[last + 1] - sums[first + 1] <= allowed * (1 + 1e-9) + 1e-6


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(0.1, 1e6), st.floats(0, 1000), st.lists(amounts, min_size=1, max_size=40))
def test_constant_demand_gets_the_rate(
    rate: float, burst: float, amounts_taken: list[float]
) -> None:
    bucket, now_s = TokenBucket(rate, burst, 0.0), 0.0
    for amount in amounts_taken:
        now_s += bucket.take(amount, now_s)
    assert now_s == pytest.approx(max(0.0, sum(amounts_taken) - burst) / rate, rel=1e-6, abs=1e-9)


def test_unused_allowance_is_capped_at_the_burst() -> None:
    bucket = TokenBucket(10, 5, 0.0)
    assert bucket.take(5, 1e6) == 0
    assert bucket.take(10, 1e6) == pytest.approx(1)


def test_clock_that_steps_back_adds_no_allowance() -> None:
    bucket = TokenBucket(10, 0, 100.0)
    assert bucket.take(10, 50.0) == pytest.approx(1)
    assert bucket.take(0, 100.5) == pytest.approx(0.5)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, -1)])
def test_rate_must_be_positive(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="must be greater than 0"):
        TokenBucket(rate, burst, 0.0)


def test_throttle_waits() -> None:
    throttle = Throttle(100, 0)
    start_s = time.monotonic()
    for _ in range(10):
        throttle.take(1, bool)
    assert time.monotonic() - start_s >= 0.1


def test_stop_request_ends_a_long_wait() -> None:
    answers = iter([False, False, True])
    Throttle(1, 0).take(1e9, lambda: next(answers))
    assert next(answers, None) is None
