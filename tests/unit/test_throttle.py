"""The bucket over a clock of its own: never more than is allowed, and never much less."""

from __future__ import annotations

import time
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcircle.workers.throttle import Bucket, Throttle

amounts = st.floats(0, 1000)
pauses = st.one_of(st.just(0.0), st.floats(0, 10))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(0.1, 1e6), st.floats(0, 1000), st.lists(st.tuples(pauses, amounts), max_size=40))
def test_no_time_sees_more_than_the_rate_and_a_burst(
    rate: float, burst: float, asked: list[tuple[float, float]]
) -> None:
    """What is taken is done once it is paid for; between each two of them the sum is bounded."""
    bucket, now_s = Bucket(rate, burst, 0.0), 0.0
    done_at, done = [], []
    for pause_s, amount in asked:
        now_s += pause_s
        now_s += bucket.take(amount, now_s)
        done_at.append(now_s)
        done.append(amount)
    sums = [0.0, *accumulate(done)]
    for first in range(len(done)):
        for last in range(first, len(done)):
            window_s = done_at[last] - done_at[first]
            # The first is done at the window's beginning, of which its own amount was paid before.
            allowed = rate * window_s + max(burst, 0.0)
            assert sums[last + 1] - sums[first + 1] <= allowed * (1 + 1e-9) + 1e-6


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(0.1, 1e6), st.floats(0, 1000), st.lists(amounts, min_size=1, max_size=40))
def test_who_asks_all_the_time_gets_the_rate(rate: float, burst: float, asked: list[float]) -> None:
    bucket, now_s = Bucket(rate, burst, 0.0), 0.0
    for amount in asked:
        now_s += bucket.take(amount, now_s)
    assert now_s == pytest.approx(max(0.0, sum(asked) - burst) / rate, rel=1e-6, abs=1e-9)


def test_what_was_not_used_is_not_saved_beyond_the_burst() -> None:
    bucket = Bucket(10, 5, 0.0)
    assert bucket.take(5, 1e6) == 0
    assert bucket.take(10, 1e6) == pytest.approx(1)


def test_a_clock_that_steps_back_gives_nothing() -> None:
    bucket = Bucket(10, 0, 100.0)
    assert bucket.take(10, 50.0) == pytest.approx(1)
    assert bucket.take(0, 100.5) == pytest.approx(0.5)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, -1)])
def test_an_allowance_of_nothing_is_an_error(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="must be greater than 0"):
        Bucket(rate, burst, 0.0)


def test_waiting_takes_its_time() -> None:
    throttle = Throttle(100, 0)
    began_s = time.monotonic()
    for _ in range(10):
        throttle.take(1, bool)
    assert time.monotonic() - began_s >= 0.1


def test_a_request_to_stop_ends_a_wait_of_years() -> None:
    looks = iter([False, False, True])
    Throttle(1, 0).take(1e9, lambda: next(looks))
    assert next(looks, None) is None
