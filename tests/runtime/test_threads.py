"""The search for the number of a rank's threads: one for names, another one for content.

The pool and its threads are real; the test sets the amount of work that they report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from pcircle.threads.thread_tuning import DATA, METADATA, Tuner, Work
from pcircle.threads.workers import WorkerPool, count_runnable
from tests.runtime.tasks import Grow


class Said(Grow):
    """A task that reports the work that the test sets."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.done = Work()

    def work(self) -> Work:
        return self.done


@pytest.fixture
def busy() -> Iterator[WorkerPool]:
    """Return a pool whose threads all wait, as for a file system."""
    gate = threading.Event()
    pool = WorkerPool(lambda: None, 64)
    for _ in range(200):
        pool.submit(gate.wait, 60.0)
    pool.threads = 1
    yield pool
    gate.set()
    pool.close(10.0)


def test_names_and_contents_are_tuned_separately(busy: WorkerPool) -> None:
    task = Said()
    tuner = Tuner(task.work, busy, 64)
    now_s = time.monotonic()

    def go_on(names: float, data: float, windows: int) -> int:
        nonlocal now_s
        for _ in range(windows):
            # Windows are long enough to make delays of the real threads negligible.
            now_s += 100.0
            scale = busy.threads
            task.done = Work(task.done.metadata + scale * names, task.done.data + scale * data)
            tuner.look(now_s)
        return busy.threads

    assert go_on(100, 1, 4) > 1
    assert go_on(100, 1, 20) == 64
    # Content begins at one, whatever was found for names, and is not faster with more.
    assert go_on(1, 100, 1) == 1
    for _ in range(3):
        scale = busy.threads
        assert go_on(0, 100 / scale, 1) <= 4
    # A mixture causes no change, and back at names the number is as before.
    before = busy.threads
    assert go_on(50, 100, 1) <= max(4, before)
    assert go_on(100, 1, 1) == 64
    kinds = {kind for kind, _, _ in tuner.rates}
    assert kinds == {METADATA, DATA}
    assert tuner.settled == 64


def test_waiting_for_a_processor_does_not_add_threads(
    busy: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its delay is not in the kernel's account yet; once it is, more may pay."""
    task = Said()
    tuner = Tuner(task.work, busy, 64)
    now_s = time.monotonic()

    def max_of(windows: int) -> int:
        nonlocal now_s
        most = 0
        for _ in range(windows):
            now_s += 100.0
            task.done = Work(task.done.metadata + 100 * busy.threads, 0)
            most = max(most, tuner.look(now_s))
        return most

    with monkeypatch.context() as starving:
        starving.setattr("pcircle.threads.thread_tuning.count_runnable", lambda threads: 1)
        assert max_of(20) == 1
    assert max_of(20) > 1


def test_a_blocked_thread_is_not_runnable() -> None:
    gate, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        assert begun.wait(60.0)
        hangs_s = time.monotonic() + 60.0
        while count_runnable([thread.native_id]):  # on its way into the wait
            assert time.monotonic() < hangs_s
        assert count_runnable([thread.native_id, threading.get_native_id()]) == 1
    finally:
        gate.set()
        thread.join()
