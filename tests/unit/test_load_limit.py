"""The load that a rank puts on a shared file system, with a simulated clock."""

from __future__ import annotations

import math
import threading

import pytest

from pcircle.threads.throttle import LoadLimit, TurnTaking

_S = 0.002


def _simulate(
    limit: LoadLimit, duration_s: float, count: int, threads: int = 16, start_s: float = 0.0
) -> float:
    """Record `count` operations of `duration_s` each and return the time of the last one."""
    now_s = start_s
    for _ in range(count):
        now_s += duration_s
        limit.record("names", 1, duration_s, now_s, is_limiting=threads >= limit.load)
    return now_s


def test_single_thread_is_busy_for_its_share() -> None:
    """After a second of work the thread pauses for three."""
    limit = LoadLimit(0.25, 1)
    assert limit.max_busy == 1
    assert limit.pause_s(1.0, 1) == pytest.approx(3.0)


def test_load_falls_as_operations_take_longer() -> None:
    limit = LoadLimit(0.5, 1)
    now_s = _simulate(limit, _S, 64)
    assert limit.load == pytest.approx(0.5)
    now_s = _simulate(limit, 4 * _S, 64, start_s=now_s)
    assert limit.load == pytest.approx(0.5 / 4, rel=0.1)
    _simulate(limit, _S, 256, start_s=now_s)
    assert limit.load == pytest.approx(0.5, rel=0.05)


def test_load_grows_while_durations_do_not() -> None:
    """Parallel file systems get all threads; where requests queue, hardly more than one is used."""
    limit = LoadLimit(0.5, 16)
    _simulate(limit, _S, 16 * 200)
    assert limit.max_busy == 8
    queued, max_busy = LoadLimit(0.5, 16), 0
    now_s = 0.0
    for _ in range(16 * 200):
        duration_s = _S * max(1.0, queued.load)
        now_s += duration_s
        queued.record("names", 1, duration_s, now_s, is_limiting=True)
        max_busy = max(max_busy, queued.max_busy)
    assert max_busy == 2


def test_each_kind_is_compared_with_its_own_best() -> None:
    limit = LoadLimit(0.5, 1)
    now_s = 0.0
    for _ in range(256):
        for kind, duration_s in (("enter", 50 * _S), ("names", _S)):
            now_s += duration_s
            limit.record(kind, 1, duration_s, now_s, is_limiting=False)
    assert limit.load == pytest.approx(0.5)


def test_cached_operations_are_ignored() -> None:
    limit = LoadLimit(0.5, 1)
    now_s = _simulate(limit, 5e-6, 1600)
    _simulate(limit, _S, 1000, start_s=now_s)
    assert limit.load == pytest.approx(0.5)


def test_best_duration_ages_slowly() -> None:
    """A file system that has been slow for an hour becomes the new baseline."""
    limit = LoadLimit(0.5, 1)
    now_s = _simulate(limit, _S, 64)
    now_s = _simulate(limit, 4 * _S, 64, start_s=now_s)
    assert limit.load < 0.2
    _simulate(limit, 4 * _S, 256, start_s=now_s + 3600)
    assert limit.load == pytest.approx(0.5, rel=0.1)


def test_load_stays_positive_on_any_file_system() -> None:
    limit = LoadLimit(0.01, 1)
    now_s = _simulate(limit, _S, 64)
    _simulate(limit, 1000.0, 64, start_s=now_s)
    assert limit.load > 0
    assert limit.pause_s(math.inf, 1) < 10


def test_turns_are_passed_on() -> None:
    """A turn is exclusive until it is released; a thread that must stop does not wait for it."""
    turns = TurnTaking(0.5, 4)
    turns.begin(bool)
    turns.begin(lambda: True)
    turns.end()
    is_taken = threading.Event()

    def take() -> None:
        turns.begin(bool)
        is_taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert not is_taken.wait(0.2)
    turns.end()
    assert is_taken.wait(60)
    thread.join()
