"""The pool of worker threads, whose results are delivered on the owner's thread on request.

Values and exceptions arrive in the order in which the calls end, callbacks run on the owner's
thread, a worker's posts keep their order and precede the end of the call, a busy worker can't keep
the owner in `drain`, and closing ends the threads or reports that one is stuck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from pcircle.threads.workers import PoolFuture, WorkerPool

# Ends a hanging test; not a measure of speed.
HANG_S = 60.0


class Owner:
    """A thread that owns a pool and sleeps until it is woken."""

    def __init__(self, threads: int = 1) -> None:
        self._woken = threading.Semaphore(0)
        self.pool = WorkerPool(self._woken.release, threads)

    def until(self, done: Callable[[], bool]) -> None:
        """Drain at every wake-up until `done` returns true."""
        while not done():
            assert self._woken.acquire(timeout=HANG_S), "the owner was not woken"
            self.pool.drain()


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    assert owner.pool.close(HANG_S)


def test_values_and_exceptions_are_returned(owner: Owner) -> None:
    quotient = owner.pool.submit(divmod, 7, 2)
    failure = owner.pool.submit(divmod, 7, 0)
    owner.until(lambda: failure.done)
    assert quotient.result() == (3, 1)
    assert quotient.error() is None
    assert isinstance(failure.error(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        failure.result()
    assert owner.pool.in_flight == 0


def test_system_exit_is_returned_as_well(owner: Owner) -> None:
    def leave() -> None:
        raise SystemExit(3)

    exited = owner.pool.submit(leave)
    after = owner.pool.submit(int, "5")
    owner.until(lambda: after.done)
    assert isinstance(exited.error(), SystemExit)
    assert after.result() == 5


def test_futures_settle_only_in_drain(owner: Owner) -> None:
    ran = threading.Event()
    future = owner.pool.submit(ran.set)
    assert ran.wait(HANG_S)
    assert not future.done
    assert owner.pool.in_flight == 1
    with pytest.raises(RuntimeError, match="not ended"):
        future.result()
    owner.until(lambda: future.done)
    assert owner.pool.in_flight == 0


def test_callbacks_run_on_the_owner_thread(owner: Owner) -> None:
    threads: list[int] = []

    def record(future: PoolFuture[int]) -> None:
        threads.extend([future.result(), threading.get_ident()])

    future = owner.pool.submit(threading.get_ident)
    future.then(record)
    owner.until(lambda: future.done)
    future.then(record)  # the call has ended: called immediately
    worker, me = threads[:2]
    assert me == threading.get_ident() != worker
    assert threads[2:] == [worker, me]


def test_posts_arrive_in_order_and_before_the_result(owner: Owner) -> None:
    received: list[object] = []

    def post_three(name: str) -> str:
        for number in range(3):
            owner.pool.post(received.append, (name, number))
        return name

    futures = [owner.pool.submit(post_three, name) for name in "ab"]
    for future in futures:
        future.then(lambda future: received.append(future.result()))
    owner.until(lambda: len(received) == 8)
    expected = [[*((name, number) for number in range(3)), name] for name in "ab"]
    assert received == expected[0] + expected[1]


def test_drain_returns_while_workers_keep_posting(owner: Owner) -> None:
    """Each message posts another message, like items that finish as fast as they start."""
    handled: list[None] = []

    def repost() -> None:
        handled.append(None)
        assert len(handled) < 1000, "drain does not return"
        owner.pool.post(repost)

    owner.pool.post(repost)
    owner.pool.drain()
    assert len(handled) == 1
    owner.until(lambda: len(handled) == 3)  # the owner was woken for the later ones


def test_single_thread_runs_calls_in_order(owner: Owner) -> None:
    seen: list[tuple[str, int]] = []
    futures = [
        owner.pool.submit(lambda n=number: seen.append((threading.current_thread().name, n)))
        for number in range(200)
    ]
    owner.until(lambda: futures[-1].done)
    assert seen == [("worker-0", number) for number in range(200)]


def test_each_thread_runs_a_call() -> None:
    owner = Owner(threads=3)
    barrier = threading.Barrier(3, timeout=HANG_S)
    futures = [owner.pool.submit(barrier.wait) for _ in range(3)]
    owner.until(lambda: all(future.done for future in futures))
    assert sorted(future.result() for future in futures) == [0, 1, 2]
    assert owner.pool.close(HANG_S)


def test_threads_start_with_the_first_call() -> None:
    before = threading.active_count()
    pool = WorkerPool(lambda: None, 4)
    assert threading.active_count() == before
    assert pool.close(HANG_S)


def test_close_completes_submitted_calls() -> None:
    pool = WorkerPool(lambda: None)
    done: list[int] = []
    for number in range(10):
        pool.submit(done.append, number)
    assert pool.close(HANG_S)
    assert done == list(range(10))


def test_stuck_worker_is_reported_and_is_a_daemon() -> None:
    pool = WorkerPool(lambda: None)
    started, released = threading.Event(), threading.Event()

    def stuck() -> threading.Thread:
        started.set()
        released.wait(HANG_S)
        return threading.current_thread()

    pool.submit(stuck)
    assert started.wait(HANG_S)
    worker = next(thread for thread in threading.enumerate() if thread.name == "worker-0")
    assert worker.daemon
    assert not pool.close(0.0)
    released.set()
    worker.join(HANG_S)
    assert not worker.is_alive()


def test_pool_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        WorkerPool(lambda: None, 0)
