"""The search for how many threads pay, on models of file systems."""

from __future__ import annotations

import threading
import time
from random import Random

import pytest

from pcircle.aio import Files, Operation, when_all
from pcircle.workers.climb import Climb, Window

WINDOW_S = 0.05
HANG_S = 60.0


def _play(climb: Climb, wait_s: float, cpu_s: float, most: int, rng: Random, windows: int) -> None:
    """A file system that takes `wait_s`, and `cpu_s` of the one interpreter lock, an operation."""
    for _ in range(windows):
        threads = min(climb.threads, most)
        rate = min(threads / (wait_s + cpu_s), 1 / cpu_s)
        if climb.threads > 1 and wait_s < cpu_s:
            rate *= 0.6  # they fight over the lock
        done = max(1, round(rate * WINDOW_S * rng.uniform(0.93, 1.07)))
        climb.update(Window(done, WINDOW_S, min(done * cpu_s, WINDOW_S)))


@pytest.mark.parametrize("seed", range(20))
def test_slow_operations_get_dozens(seed: int) -> None:
    climb = Climb()
    _play(climb, 0.002, 0.00003, 1000, Random(seed), 14)
    assert climb.threads >= 32


@pytest.mark.parametrize("seed", range(20))
def test_no_more_than_the_file_system_serves(seed: int) -> None:
    climb = Climb()
    _play(climb, 0.002, 0.00003, 8, Random(seed), 200)
    assert climb.threads in (4, 8, 12)


@pytest.mark.parametrize("seed", range(20))
def test_fast_operations_get_one(seed: int) -> None:
    climb = Climb()
    _play(climb, 0.000001, 0.00002, 1000, Random(seed), 200)
    assert climb.threads == 1
    assert all(threads == 1 for threads, _ in climb.history)


@pytest.mark.parametrize("seed", range(20))
def test_it_comes_down_again(seed: int) -> None:
    """From a slow file system to a fast one, and back."""
    climb, rng = Climb(), Random(seed)
    _play(climb, 0.002, 0.00003, 1000, rng, 20)
    _play(climb, 0.000001, 0.00002, 1000, rng, 300)
    assert climb.threads == 1
    _play(climb, 0.002, 0.00003, 1000, rng, 300)
    assert climb.threads >= 32


def test_processors_that_others_have_are_no_reason() -> None:
    """A thread that is ready and does not get a processor waits for no file system."""
    climb, rng = Climb(), Random(1)
    for _ in range(200):
        share = rng.uniform(0.2, 0.9)
        spent = WINDOW_S * share, WINDOW_S * (1 - share)
        climb.update(Window(round(2500 * share), WINDOW_S, *spent))
    assert climb.threads == 1


def test_of_nothing_nothing_is_learnt() -> None:
    climb = Climb()
    assert climb.update(Window(0, WINDOW_S)) == 1
    assert climb.update(Window(5, 0.0)) == 1
    assert Climb(most=1).update(Window(5, WINDOW_S)) == 1


def test_a_scheduler_adapts() -> None:
    """Operations that wait, in earnest; those on data and those on metadata apart."""
    with Files() as io:
        hangs_s = time.monotonic() + HANG_S
        while io.threads()["metadata"] < 4:  # threads that get no processor are no reason for more
            assert time.monotonic() < hangs_s
            waits = [io.submit(Operation("wait", time.sleep, 0.002)) for _ in range(300)]
            when_all(waits).result(HANG_S)
        assert io.threads()["data"] == 1
    with Files(threads=3) as io:
        when_all([io.submit(Operation("wait", time.sleep, 0.002)) for _ in range(300)]).result(60)
        assert set(io.threads().values()) == {3}
        assert sum("aio-metadata" in t.name for t in threading.enumerate()) == 3


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_learnt_where_processors_are_few(seed: int) -> None:
    """Threads that are kept from running half of the time, by others or by one of their own."""
    rng = Random(seed)
    for kept in ("delay_s", "others_s"):
        climb = Climb()
        for _ in range(100):
            held = WINDOW_S * rng.uniform(0.4, 0.6)
            window = Window(rng.randrange(1, 5000), WINDOW_S, 0.001)
            climb.update(window._replace(**{kept: held}))
        assert climb.threads == 1
        _play(climb, 0.002, 0.00003, 1000, rng, 30)
        assert climb.threads >= 32
        for _ in range(20):
            threads = climb.threads
            climb.update(Window(100, WINDOW_S, 0.001, 0.5 * WINDOW_S * threads))
        assert climb.threads == 1


def test_what_looks_like_waiting_once_is_no_reason() -> None:
    climb = Climb()
    for _ in range(30):
        climb.update(Window(100, WINDOW_S, 0.001))
        climb.update(Window(2000, WINDOW_S, 0.9 * WINDOW_S))
    assert climb.history == [(1, rate) for _, rate in climb.history]
    assert climb.settled == climb.threads == 1


def test_a_number_on_trial_has_not_settled() -> None:
    climb = Climb()
    climb.update(Window(100, WINDOW_S, 0.001))
    climb.update(Window(100, WINDOW_S, 0.001))
    assert (climb.threads, climb.settled) == (4, 1), "all is waiting: two steps at once"
    climb.update(Window(400, WINDOW_S, 0.004))
    assert climb.settled == 4 < climb.threads


def test_no_thread_begins_behind_the_end() -> None:
    """A thread that adapts their number may be late: nobody would end what it begins."""
    io = Files(threads=4)
    io.stat("/").result(60)
    assert io.close()
    assert not io._lanes["metadata"]._begin()
    assert not any("aio-metadata" in thread.name for thread in threading.enumerate())


def test_left_in_the_midst_of_a_trial_it_goes_on_below() -> None:
    climb = Climb()
    for _ in range(2):
        climb.update(Window(100, WINDOW_S, 0.001))
    assert climb.threads == 4
    climb.leave()
    assert climb.threads == climb.settled == 1


def test_a_first_look_that_finds_nothing_but_waiting_is_enough() -> None:
    climb = Climb()
    assert climb.leap(Window(0.0, 0.01, 0.001)) == 8
    assert climb.settled == 8
    # A trial that does not pay ends there.
    climb.update(Window(100, WINDOW_S, 0.001))
    assert climb.threads > 8
    climb.update(Window(100, WINDOW_S, 0.001))
    assert climb.threads == 8
    assert Climb(most=4).leap(Window(0.0, 0.01, 0.001)) == 4


@pytest.mark.parametrize("busy", ["cpu_s", "delay_s", "others_s"])
def test_a_first_look_at_who_works_changes_nothing(busy: str) -> None:
    climb = Climb()
    assert climb.leap(Window(0.0, 0.01)._replace(**{busy: 0.004})) == 1
