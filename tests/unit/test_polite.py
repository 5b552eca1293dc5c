"""How much a rank has under way where it spares others, over a clock of its own."""

from __future__ import annotations

import math
import threading

import pytest

from pcircle.workers.polite import Courtesy, Turns

_S = 0.002


def _play(
    courtesy: Courtesy, takes_s: float, count: int, threads: int = 16, since_s: float = 0.0
) -> float:
    """So many operations take so long; the time when they have ended."""
    now_s = since_s
    for _ in range(count):
        now_s += takes_s
        courtesy.note("names", 1, takes_s, now_s, limits=threads >= courtesy.load)
    return now_s


def test_one_thread_is_busy_for_its_share() -> None:
    """Busy for a second, it waits for three."""
    courtesy = Courtesy(0.25, 1)
    assert courtesy.places == 1
    assert courtesy.pause_s(1.0, 1) == pytest.approx(3.0)


def test_there_is_less_as_operations_take_longer() -> None:
    courtesy = Courtesy(0.5, 1)
    now_s = _play(courtesy, _S, 64)
    assert courtesy.load == pytest.approx(0.5)
    now_s = _play(courtesy, 4 * _S, 64, since_s=now_s)
    assert courtesy.load == pytest.approx(0.5 / 4, rel=0.1)
    _play(courtesy, _S, 256, since_s=now_s)
    assert courtesy.load == pytest.approx(0.5, rel=0.05)


def test_there_is_more_as_long_as_it_is_not_felt() -> None:
    """On a parallel file system, up to all threads; where they queue, hardly more than one."""
    courtesy = Courtesy(0.5, 16)
    _play(courtesy, _S, 16 * 200)
    assert courtesy.places == 8
    queue, most = Courtesy(0.5, 16), 0
    now_s = 0.0
    for _ in range(16 * 200):
        takes_s = _S * max(1.0, queue.load)
        now_s += takes_s
        queue.note("names", 1, takes_s, now_s, limits=True)
        most = max(most, queue.places)
    assert most == 2


def test_kinds_are_compared_with_their_own_best() -> None:
    courtesy = Courtesy(0.5, 1)
    now_s = 0.0
    for _ in range(256):
        for kind, takes_s in (("enter", 50 * _S), ("names", _S)):
            now_s += takes_s
            courtesy.note(kind, 1, takes_s, now_s, limits=False)
    assert courtesy.load == pytest.approx(0.5)


def test_what_a_cache_answers_says_nothing() -> None:
    courtesy = Courtesy(0.5, 1)
    now_s = _play(courtesy, 5e-6, 1600)
    _play(courtesy, _S, 1000, since_s=now_s)
    assert courtesy.load == pytest.approx(0.5)


def test_the_best_is_forgotten_slowly() -> None:
    """A file system that was fast an hour ago, and is not any more, is not spared for ever."""
    courtesy = Courtesy(0.5, 1)
    now_s = _play(courtesy, _S, 64)
    now_s = _play(courtesy, 4 * _S, 64, since_s=now_s)
    assert courtesy.load < 0.2
    _play(courtesy, 4 * _S, 256, since_s=now_s + 3600)
    assert courtesy.load == pytest.approx(0.5, rel=0.1)


def test_it_goes_on_however_slow_all_is() -> None:
    courtesy = Courtesy(0.01, 1)
    now_s = _play(courtesy, _S, 64)
    _play(courtesy, 1000.0, 64, since_s=now_s)
    assert courtesy.load > 0
    assert courtesy.pause_s(math.inf, 1) < 10


def test_places_are_given_on() -> None:
    """One at a time has it, until it gives it up; who is to stop does not wait for it."""
    turns = Turns(0.5, 4)
    turns.begin(bool)
    turns.begin(lambda: True)
    turns.end()
    got = threading.Event()

    def take() -> None:
        turns.begin(bool)
        got.set()

    other = threading.Thread(target=take)
    other.start()
    assert not got.wait(0.2)
    turns.end()
    assert got.wait(60)
    other.join()
