"""Notices: batching, the time of sending, and back pressure on fast producers."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from pcircle.circle import Engine
from pcircle.circle.notices import (
    MAX_IN_FLIGHT_BYTES,
    PACK_BYTES,
    NoticeSender,
    Outbox,
    age_s,
    pack_bytes,
)
from pcircle.runtime import Context, Task, Work
from pcircle.runtime.worker_channel import MAX_OUTBOX_BYTES, WorkerChannel
from pcircle.threads.thread_tuning import WINDOW_S, Tuner
from pcircle.threads.workers import WorkerPool

ENCODE = msgspec.msgpack.Encoder().encode


def _packs(flow: NoticeSender, now_s: float, *, hurry: bool = False) -> list[tuple[object, ...]]:
    return list(flow.packs(now_s, hurry=hurry))


def test_the_first_notice_is_sent_at_once_and_later_ones_wait() -> None:
    outbox = Outbox()
    flow = NoticeSender(outbox, 1, 4)
    assert (flow.wakeup_s(), flow.settled) == (None, True)
    outbox.add(0, 100)
    assert _packs(flow, 5.0) == [(0,)]
    flow.answered()
    outbox.add(1, 100)
    outbox.add(2, 100)
    assert _packs(flow, 5.01) == []
    assert flow.wakeup_s() == 5.0 + age_s(4)
    assert not flow.settled
    assert _packs(flow, 5.0 + age_s(4)) == [(1, 2)]


def test_a_full_batch_is_sent_early_and_the_next_after_its_acknowledgement() -> None:
    outbox = Outbox()
    flow = NoticeSender(outbox, 1, 4)
    for number in range(10):
        outbox.add(number, PACK_BYTES // 2)
    assert _packs(flow, 1.0) == [(0, 1)]
    assert _packs(flow, 100.0, hurry=True) == []
    assert flow.wakeup_s() is None, "only an answer will change anything"
    flow.answered()
    assert _packs(flow, 1.0) == [(2, 3)]


def test_no_notice_waits_at_the_end() -> None:
    outbox = Outbox()
    flow = NoticeSender(outbox, 1, 4)
    outbox.add(0, 1)
    assert _packs(flow, 1.0) == [(0,)]
    flow.answered()
    outbox.add(1, 1)
    assert _packs(flow, 1.0, hurry=True) == [(1,)]
    assert not flow.settled
    flow.answered()
    assert flow.settled


def test_rank_0_acknowledges_its_own_notices() -> None:
    outbox = Outbox()
    flow = NoticeSender(outbox, 0, 4)
    for number in range(3):
        outbox.add(number, PACK_BYTES)
    assert _packs(flow, 1.0) == [(0,), (1,), (2,)]
    assert flow.settled


def test_a_notice_larger_than_a_batch_is_sent_alone() -> None:
    outbox = Outbox()
    flow = NoticeSender(outbox, 1, 4)
    outbox.add(0, 10 * PACK_BYTES)
    outbox.add(1, 1)
    assert _packs(flow, 1.0) == [(0,)]
    assert outbox.size_bytes == 1


def test_batches_in_flight_are_limited() -> None:
    for ranks in (1, 2, 100, 1000, 2048):
        assert ranks * pack_bytes(ranks) <= MAX_IN_FLIGHT_BYTES
    assert 10_000 * pack_bytes(10_000) < 100 << 20
    assert all(ranks / age_s(ranks) < 5001 for ranks in (1, 1000, 100_000))


def _engine(rank: int) -> Engine[int, int]:
    from random import Random

    return Engine(rank, 2, merge=int.__add__, rng=Random(1))


def test_a_thread_waits_for_room() -> None:
    outbox = Outbox()
    outbox.add("notice", 10)
    thread = threading.Thread(target=outbox.await_room, args=(5,), daemon=True)
    thread.start()
    while not outbox.had_waiters():
        assert thread.is_alive()
    assert outbox.take(10) == ("notice",)
    thread.join(60)
    assert not thread.is_alive()
    outbox.await_room(5)


@pytest.mark.slow
def test_a_worker_waits_while_the_outbox_is_full() -> None:
    """The number of buffered notices is bounded even if a million are never sent."""
    pool = WorkerPool(lambda: None)
    engine = _engine(1)
    line = WorkerChannel(pool, engine, lambda: None, time.monotonic, lambda: False, None, ENCODE)
    noted = 0
    waiting = threading.Event()

    def tell() -> None:
        nonlocal noted
        for number in range(1_000_000):
            if engine.outbox.size_bytes > MAX_OUTBOX_BYTES:
                waiting.set()  # the next one
            line.note([f"{number:100}"])
            noted += 1

    future = pool.submit(tell)
    assert waiting.wait(60)
    hangs_s = time.monotonic() + 60
    while not engine.outbox.had_waiters():  # the thread may not have run yet
        assert time.monotonic() < hangs_s
        time.sleep(0.001)
    assert engine.outbox.size_bytes < MAX_OUTBOX_BYTES + 1000
    held = len(engine.outbox)
    assert noted <= held < MAX_OUTBOX_BYTES // 100 + 2
    first = engine.outbox.take(MAX_OUTBOX_BYTES)
    assert len(first) > held // 2
    assert engine.outbox.had_waiters()
    engine.outbox.let_go()  # as in an abort: the remaining notices are added without waiting
    while not future.done:
        pool.drain()
        time.sleep(0.001)
    assert future.error() is None
    assert len(first) + len(engine.outbox) == noted == 1_000_000
    assert pool.close(10)


def test_the_main_thread_never_waits() -> None:
    engine = _engine(1)
    pool = WorkerPool(lambda: None)
    line = WorkerChannel(pool, engine, lambda: None, time.monotonic, lambda: False, None, ENCODE)
    for _ in range(3):
        line.note(["x" * MAX_OUTBOX_BYTES])
    assert len(engine.outbox) == 3


@pytest.mark.parametrize("held", [False, True])
def test_threads_that_wait_for_the_outbox_do_not_increase_the_number_of_threads(held: bool) -> None:
    """More threads help where threads wait for a disk, but not where they wait for the outbox."""

    class Working(Task[int, int]):
        done = 0.0

        def seed(self) -> list[int]:
            return []

        def process(self, item: int, context: Context[int]) -> int:
            return item

        def merge(self, a: int, b: int) -> int:
            return a + b

        def work(self) -> Work:
            self.done += pool.threads
            return Work(metadata=self.done)

    pool = WorkerPool(lambda: None)
    pool.in_flight = 100
    tuner = Tuner(Working().work, pool, 8)
    now_s, most = time.monotonic(), 0
    for _ in range(20):
        now_s += 2 * WINDOW_S
        most = max(most, tuner.look(now_s, held=held))
    assert (most == 1) == held
