"""The search for the number of threads, on models of file systems."""

from __future__ import annotations

import threading
import time
from random import Random

import msgspec
import pytest

from pcircle.aio import Files, Operation, when_all
from pcircle.threads.thread_tuning import ThreadCountSearch, Window

WINDOW_S = 0.05
HANG_S = 60.0


def _simulate(
    search: ThreadCountSearch,
    wait_s: float,
    cpu_s: float,
    max_threads: int,
    rng: Random,
    windows: int,
) -> None:
    """Simulate operations that wait `wait_s` each and hold the lock for `cpu_s`."""
    for _ in range(windows):
        threads = min(search.threads, max_threads)
        rate = min(threads / (wait_s + cpu_s), 1 / cpu_s)
        if search.threads > 1 and wait_s < cpu_s:
            rate *= 0.6  # threads compete for the lock
        done = max(1, round(rate * WINDOW_S * rng.uniform(0.93, 1.07)))
        search.update(Window(done, WINDOW_S, min(done * cpu_s, WINDOW_S)))


@pytest.mark.parametrize("seed", range(20))
def test_slow_operations_use_dozens_of_threads(seed: int) -> None:
    search = ThreadCountSearch()
    _simulate(search, 0.002, 0.00003, 1000, Random(seed), 14)
    assert search.threads >= 32


@pytest.mark.parametrize("seed", range(20))
def test_threads_beyond_the_capacity_of_the_file_system_are_not_used(seed: int) -> None:
    search = ThreadCountSearch()
    _simulate(search, 0.002, 0.00003, 8, Random(seed), 200)
    assert search.threads in (4, 8, 12)


@pytest.mark.parametrize("seed", range(20))
def test_fast_operations_use_one_thread(seed: int) -> None:
    search = ThreadCountSearch()
    _simulate(search, 0.000001, 0.00002, 1000, Random(seed), 200)
    assert search.threads == 1
    assert all(threads == 1 for threads, _ in search.history)


@pytest.mark.parametrize("seed", range(20))
def test_search_follows_a_change_of_file_system(seed: int) -> None:
    """The file system changes from a slow one to a fast one, and back."""
    search, rng = ThreadCountSearch(), Random(seed)
    _simulate(search, 0.002, 0.00003, 1000, rng, 20)
    _simulate(search, 0.000001, 0.00002, 1000, rng, 300)
    assert search.threads == 1
    _simulate(search, 0.002, 0.00003, 1000, rng, 300)
    assert search.threads >= 32


def test_run_delay_does_not_add_threads() -> None:
    """A thread that is ready but has no processor does not wait for the file system."""
    search, rng = ThreadCountSearch(), Random(1)
    for _ in range(200):
        running = rng.uniform(0.2, 0.9)
        times = WINDOW_S * running, WINDOW_S * (1 - running)
        search.update(Window(round(2500 * running), WINDOW_S, *times))
    assert search.threads == 1


def test_empty_windows_are_ignored() -> None:
    search = ThreadCountSearch()
    assert search.update(Window(0, WINDOW_S)) == 1
    assert search.update(Window(5, 0.0)) == 1
    assert ThreadCountSearch(max_threads=1).update(Window(5, WINDOW_S)) == 1


def test_scheduler_adapts_its_number_of_threads() -> None:
    """Operations really wait; data and metadata have separate numbers of threads."""
    with Files() as io:
        hangs_s = time.monotonic() + HANG_S
        while io.threads()["metadata"] < 4:  # threads without a processor are ignored
            assert time.monotonic() < hangs_s
            waits = [io.submit(Operation("wait", time.sleep, 0.002)) for _ in range(300)]
            when_all(waits).result(HANG_S)
        assert io.threads()["data"] == 1
    with Files(threads=3) as io:
        when_all([io.submit(Operation("wait", time.sleep, 0.002)) for _ in range(300)]).result(60)
        assert set(io.threads().values()) == {3}
        assert sum("aio-metadata" in t.name for t in threading.enumerate()) == 3


@pytest.mark.parametrize("seed", range(20))
def test_scarce_processors_do_not_mislead_the_search(seed: int) -> None:
    """Other processes or other threads keep threads from running half of the time."""
    rng = Random(seed)
    for field in ("delay_s", "other_threads_s"):
        search = ThreadCountSearch()
        for _ in range(100):
            lost_s = WINDOW_S * rng.uniform(0.4, 0.6)
            window = Window(rng.randrange(1, 5000), WINDOW_S, 0.001)
            search.update(msgspec.structs.replace(window, **{field: lost_s}))
        assert search.threads == 1
        _simulate(search, 0.002, 0.00003, 1000, rng, 30)
        assert search.threads >= 32
        for _ in range(20):
            threads = search.threads
            search.update(Window(100, WINDOW_S, 0.001, 0.5 * WINDOW_S * threads))
        assert search.threads == 1


def test_single_outlier_does_not_add_threads() -> None:
    search = ThreadCountSearch()
    for _ in range(30):
        search.update(Window(100, WINDOW_S, 0.001))
        search.update(Window(2000, WINDOW_S, 0.9 * WINDOW_S))
    assert search.history == [(1, rate) for _, rate in search.history]
    assert search.confirmed == search.threads == 1


def test_level_on_trial_is_not_confirmed() -> None:
    search = ThreadCountSearch()
    search.update(Window(100, WINDOW_S, 0.001))
    search.update(Window(100, WINDOW_S, 0.001))
    assert (search.threads, search.confirmed) == (4, 1), "two steps at once for pure waiting"
    search.update(Window(400, WINDOW_S, 0.004))
    assert search.confirmed == 4 < search.threads


def test_no_thread_starts_after_close() -> None:
    """A late adaptation of the number of threads must not start one that is never ended."""
    io = Files(threads=4)
    io.stat("/").result(60)
    assert io.close()
    assert not io._lanes["metadata"]._begin()
    assert not any("aio-metadata" in thread.name for thread in threading.enumerate())


def test_abandoned_trial_returns_to_the_level_below() -> None:
    search = ThreadCountSearch()
    for _ in range(2):
        search.update(Window(100, WINDOW_S, 0.001))
    assert search.threads == 4
    search.abandon_trial()
    assert search.threads == search.confirmed == 1


def test_first_window_of_pure_waiting_starts_at_eight_threads() -> None:
    search = ThreadCountSearch()
    assert search.update_first(Window(0.0, 0.01, 0.001)) == 8
    assert search.confirmed == 8
    # A trial that does not pay off returns to that number.
    search.update(Window(100, WINDOW_S, 0.001))
    assert search.threads > 8
    search.update(Window(100, WINDOW_S, 0.001))
    assert search.threads == 8
    assert ThreadCountSearch(max_threads=4).update_first(Window(0.0, 0.01, 0.001)) == 4


@pytest.mark.parametrize("busy", ["cpu_s", "delay_s", "other_threads_s"])
def test_first_window_with_busy_threads_changes_nothing(busy: str) -> None:
    search = ThreadCountSearch()
    window = msgspec.structs.replace(Window(0.0, 0.01), **{busy: 0.004})
    assert search.update_first(window) == 1
