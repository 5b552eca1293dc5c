"""The pool of worker threads: results come back on the owner's thread, and only when it asks.

Held: values and exceptions arrive in the order of their ends, callbacks run on the owner's
thread, what a worker says keeps its order and comes before the call's end, a busy worker can't
keep the owner in `drain`, and closing ends the threads or says that one is stuck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from pcircle.workers.pool import Future, Pool

# Ends what hangs; not a measure of speed.
HANG_S = 60.0


class Owner:
    """A thread that owns a pool and sleeps until it is woken."""

    def __init__(self, threads: int = 1) -> None:
        self._woken = threading.Semaphore(0)
        self.pool = Pool(self._woken.release, threads)

    def until(self, done: Callable[[], bool]) -> None:
        """Drain at every wake until `done`."""
        while not done():
            assert self._woken.acquire(timeout=HANG_S), "nobody woke the owner"
            self.pool.drain()


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    assert owner.pool.close(HANG_S)


def test_a_value_and_an_exception_come_back(owner: Owner) -> None:
    quotient = owner.pool.submit(divmod, 7, 2)
    mishap = owner.pool.submit(divmod, 7, 0)
    owner.until(lambda: mishap.done)
    assert quotient.result() == (3, 1)
    assert quotient.error() is None
    assert isinstance(mishap.error(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        mishap.result()
    assert owner.pool.in_flight == 0


def test_even_what_is_no_ordinary_exception_comes_back(owner: Owner) -> None:
    def leave() -> None:
        raise SystemExit(3)

    gone = owner.pool.submit(leave)
    after = owner.pool.submit(int, "5")
    owner.until(lambda: after.done)
    assert isinstance(gone.error(), SystemExit)
    assert after.result() == 5


def test_nothing_is_settled_before_the_owner_drains(owner: Owner) -> None:
    ran = threading.Event()
    future = owner.pool.submit(ran.set)
    assert ran.wait(HANG_S)
    assert not future.done
    assert owner.pool.in_flight == 1
    with pytest.raises(RuntimeError, match="not ended"):
        future.result()
    owner.until(lambda: future.done)
    assert owner.pool.in_flight == 0


def test_callbacks_run_on_the_owner_and_the_work_does_not(owner: Owner) -> None:
    threads: list[int] = []

    def note(future: Future[int]) -> None:
        threads.extend([future.result(), threading.get_ident()])

    future = owner.pool.submit(threading.get_ident)
    future.then(note)
    owner.until(lambda: future.done)
    future.then(note)  # late: at once
    worker, me = threads[:2]
    assert me == threading.get_ident() != worker
    assert threads[2:] == [worker, me]


def test_what_is_said_comes_in_order_and_before_the_end(owner: Owner) -> None:
    heard: list[object] = []

    def talk(name: str) -> str:
        for number in range(3):
            owner.pool.say(heard.append, (name, number))
        return name

    futures = [owner.pool.submit(talk, name) for name in "ab"]
    for future in futures:
        future.then(lambda future: heard.append(future.result()))
    owner.until(lambda: len(heard) == 8)
    expected = [[*((name, number) for number in range(3)), name] for name in "ab"]
    assert heard == expected[0] + expected[1]


def test_a_worker_that_never_pauses_does_not_keep_the_owner(owner: Owner) -> None:
    """Each thing that is handled brings another one, as items that finish as fast as they start."""
    handled: list[None] = []

    def again() -> None:
        handled.append(None)
        assert len(handled) < 1000, "drain does not return"
        owner.pool.say(again)

    owner.pool.say(again)
    owner.pool.drain()
    assert len(handled) == 1
    owner.until(lambda: len(handled) == 3)  # but the owner was woken for the rest


def test_one_thread_runs_calls_in_order_and_one_at_a_time(owner: Owner) -> None:
    seen: list[tuple[str, int]] = []
    futures = [
        owner.pool.submit(lambda n=number: seen.append((threading.current_thread().name, n)))
        for number in range(200)
    ]
    owner.until(lambda: futures[-1].done)
    assert seen == [("worker-0", number) for number in range(200)]


def test_as_many_calls_run_at_once_as_there_are_threads() -> None:
    owner = Owner(threads=3)
    together = threading.Barrier(3, timeout=HANG_S)
    futures = [owner.pool.submit(together.wait) for _ in range(3)]
    owner.until(lambda: all(future.done for future in futures))
    assert sorted(future.result() for future in futures) == [0, 1, 2]
    assert owner.pool.close(HANG_S)


def test_no_thread_begins_before_there_is_work() -> None:
    before = threading.active_count()
    pool = Pool(lambda: None, 4)
    assert threading.active_count() == before
    assert pool.close(HANG_S)


def test_closing_ends_what_was_submitted_first() -> None:
    pool = Pool(lambda: None)
    done: list[int] = []
    for number in range(10):
        pool.submit(done.append, number)
    assert pool.close(HANG_S)
    assert done == list(range(10))


def test_a_stuck_worker_is_told_of_and_does_not_hold_the_process() -> None:
    pool = Pool(lambda: None)
    begun, go_on = threading.Event(), threading.Event()

    def stuck() -> threading.Thread:
        begun.set()
        go_on.wait(HANG_S)
        return threading.current_thread()

    pool.submit(stuck)
    assert begun.wait(HANG_S)
    worker = next(thread for thread in threading.enumerate() if thread.name == "worker-0")
    assert worker.daemon
    assert not pool.close(0.0)
    go_on.set()
    worker.join(HANG_S)
    assert not worker.is_alive()


def test_a_pool_has_a_thread() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Pool(lambda: None, 0)
