"""Control objects: permits are neither exceeded nor lost, and waits end in order."""

from __future__ import annotations

import gc
import threading
import time
from functools import partial
from random import Random

import pytest

from pcircle.aio import Barrier, Cancelled, Event, Files, Future, Operation, Semaphore, when_all

HANG_S = 30.0


class Meter:
    """Operations that measure how many of them are in progress at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0
        self.calls = 0

    def __call__(self, seconds: float, fails: bool) -> Operation[None]:
        return Operation("work", self._work, seconds, fails)

    def _work(self, seconds: float, fails: bool) -> None:
        with self._lock:
            self.calls += 1
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(seconds)
        with self._lock:
            self._now -= 1
        if fails:
            raise OSError("failed on purpose")


@pytest.mark.parametrize("seed", range(4))
def test_permits_are_neither_exceeded_nor_lost(io: Files, seed: int) -> None:
    """Some operations fail, some cannot be submitted, and some are cancelled at any time."""
    random = Random(seed)
    permits = random.randint(1, 2)
    limit, meter = Semaphore(io, permits), Meter()

    def start(fails: bool, refused: bool, seconds: float) -> Future[None]:
        if refused:
            raise ValueError("refused on purpose")
        return io.submit(meter(seconds, fails))

    chances = [(random.random() < 0.2, random.random() < 0.1) for _ in range(60)]
    futures = [
        limit.run(partial(start, fails, refused, random.random() / 500))
        for fails, refused in chances
    ]
    for future in random.sample(futures, 15):
        future.cancel()
    when_all(futures).result(HANG_S)
    for future, (fails, refused) in zip(futures, chances, strict=True):
        expected = (ValueError if refused else OSError if fails else type(None), Cancelled)
        assert isinstance(future.error(), expected)
    assert meter.most <= permits
    # All permits are back, once a cancelled operation has ended.
    again = [limit.acquire() for _ in range(permits)]
    when_all(again).result(HANG_S)
    assert not limit.acquire().done


def test_the_oldest_wait_is_first(io: Files) -> None:
    mutex = Semaphore(io, 1)
    first, second, third = (mutex.acquire() for _ in range(3))
    assert (first.done, second.done, third.done) == (True, False, False)
    second.cancel()
    mutex.release()
    assert third.done
    mutex.release()
    assert mutex.acquire().done


def test_a_cancelled_wait_starts_nothing(io: Files) -> None:
    mutex = Semaphore(io, 1)
    mutex.acquire().result(HANG_S)
    started: list[int] = []

    def start() -> Future[int]:
        started.append(1)
        return io.submit(Operation("one", int, 1))

    waiting = mutex.run(start)
    assert waiting.cancel()
    mutex.release()
    assert mutex.run(start).result(HANG_S) == 1
    assert started == [1]


def test_a_value_is_an_outcome_as_well(io: Files) -> None:
    mutex = Semaphore(io, 1)
    assert mutex.run(lambda: 5).result(HANG_S) == 5
    assert mutex.acquire().result(HANG_S) is None


def test_cancelled_waits_are_forgotten(io: Files) -> None:
    def futures() -> int:
        gc.collect()
        return sum(isinstance(thing, Future) for thing in gc.get_objects())

    mutex, event = Semaphore(io, 1), Event(io)
    mutex.acquire()
    before = futures()
    for _ in range(100):
        assert mutex.acquire().cancel()
        assert event.wait().cancel()
    assert futures() < before + 50


def test_a_barrier_can_be_used_again(io: Files) -> None:
    barrier = Barrier(io, 3)
    for _ in range(2):
        early = [barrier.arrive(), barrier.arrive()]
        assert not any(future.done for future in early)
        assert barrier.arrive().result(HANG_S) == 2
        assert [future.result(HANG_S) for future in early] == [0, 1]


def test_threads_meet_at_a_barrier(io: Files) -> None:
    barrier, numbers = Barrier(io, 4), []
    threads = [
        threading.Thread(target=lambda: numbers.append(barrier.arrive().result(HANG_S)))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert sorted(numbers) == sorted([0, 1, 2, 3] * 3)


def test_an_event_ends_all_waits(io: Files) -> None:
    event = Event(io)
    waits = [event.wait() for _ in range(3)]
    assert not event.is_set()
    assert not waits[0].done
    event.set()
    when_all(waits).result(HANG_S)
    assert event.wait().done
    event.clear()
    assert not event.wait().done


@pytest.mark.parametrize("control", [Semaphore, Barrier])
def test_a_number_below_one_is_refused(io: Files, control: type) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        control(io, 0)
