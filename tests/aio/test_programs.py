"""Programs of users: long loops, invalid calls, late ends, and all kinds of deadlines."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pcircle.aio import Cancelled, Files, Future, Operation
from pcircle.aio import operations as ops
from pcircle.threads.workers import Overlap, WorkerPool

from .test_futures import HANG_S, Gate, call, started_gate

MANY = 3000  # more than functions may nest


def test_a_loop_of_continuations_may_be_long(io: Files) -> None:
    left = MANY

    def step(future: Future[os.stat_result]) -> Any:
        nonlocal left
        assert future.result()
        left -= 1
        return io.stat("/").then(step) if left else "all"

    assert io.stat("/").then(step).result(HANG_S) == "all"


def test_a_long_loop_can_be_cancelled(io: Files) -> None:
    gate = Gate()
    left = MANY
    waiting: list[Future[str]] = []

    def step(_: object) -> Any:
        nonlocal left
        left -= 1
        if left:
            return io.stat("/").then(step)
        waiting.append(io.submit(gate()))
        return waiting[0]

    loop = io.stat("/").then(step)
    assert gate.begun.wait(HANG_S)
    assert loop.cancel()
    assert isinstance(waiting[0].error(HANG_S), Cancelled)
    gate.open()


def test_a_cancel_while_a_continuation_returns_a_future() -> None:
    """Whenever the cancel arrives, one of the two threads sees the other."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(2000):
            _cancel_meanwhile()
    finally:
        sys.setswitchinterval(interval_s)


def _cancel_meanwhile() -> None:
    inner: Future[int] = ready_to_settle()
    first: Future[int] = ready_to_settle()
    asked = []

    def go_on(_: Future[int]) -> Any:
        asked.append(True)
        return inner

    after: Future[int] = first.then(go_on)
    thread = threading.Thread(target=first.settle, args=(1,))
    thread.start()
    assert after.cancel()
    thread.join(HANG_S)
    assert inner.cancelled == bool(asked)


def ready_to_settle() -> Future[int]:
    return Future(lambda function: function())


def nonsense() -> Iterator[Any]:
    yield 5


def stubborn(gate: Operation[str]) -> Iterator[Any]:
    with suppress(Cancelled):
        yield gate
    yield 7


def test_a_composite_that_yields_no_operation_fails(io: Files) -> None:
    assert isinstance(io.submit(nonsense()).error(HANG_S), TypeError)  # type: ignore[arg-type]
    for _ in range(4):  # more than there are threads
        gate = Gate()
        future: Future[Any] = io.submit(stubborn(gate()))  # type: ignore[arg-type]
        assert gate.begun.wait(HANG_S)
        assert future.cancel()
        gate.open()
    assert io.stat("/").result(HANG_S)
    assert io.wait(HANG_S)


@pytest.mark.parametrize("work", [None, 5, len, [ops.stat("/")]])
def test_only_operations_are_submitted(io: Files, work: Any) -> None:
    with pytest.raises(TypeError):
        io.submit(work)
    assert io.wait(HANG_S)


def test_deadlines_of_any_length(io: Files) -> None:
    gate = Gate()
    held = io.submit(gate(), deadline_s=math.inf)
    assert gate.begun.wait(HANG_S)
    slow = [Gate() for _ in range(3)]
    assert isinstance(io.submit(slow[0](), deadline_s=0.05).error(HANG_S), TimeoutError)
    for number, deadline_s in enumerate((0, -1), 1):
        future = io.submit(slow[number](), deadline_s=deadline_s)
        assert isinstance(future.error(HANG_S), TimeoutError)
    with pytest.raises(ValueError, match="number"):
        io.submit(ops.stat("/"), deadline_s=math.nan)
    for operation in (gate, *slow):
        operation.open()
    assert held.result(HANG_S) == "through"


def test_a_value_is_released_before_its_deadline(io: Files) -> None:
    class Value:
        number = 0

        def __init__(self) -> None:
            Value.number += 1

        def __del__(self) -> None:
            Value.number -= 1

    for _ in range(100):
        assert io.submit(call(Value), deadline_s=3600.0).result(HANG_S)
    assert io.wait(HANG_S)
    # The threads may still process the last ones.
    assert Value.number <= 10


def test_continuations_run_after_the_end_too() -> None:
    gate = Gate()
    io = Files(threads=1)
    held = io.submit(gate())
    before = held.then(lambda future: future.result() + " late")
    assert gate.begun.wait(HANG_S)
    assert not io.close(0.01)
    gate.open()
    assert before.result(HANG_S) == "through late"
    assert held.then(lambda future: future.result() + " later").result(HANG_S) == "through later"


def test_deadlines_hold_after_the_end_too() -> None:
    io = Files(threads=1)
    gate, held = started_gate(io)
    assert not io.close(0.01)
    assert isinstance(held.error(HANG_S), TimeoutError)
    gate.open()


def test_submissions_from_many_threads_while_it_closes() -> None:
    for _ in range(10):
        io = Files()
        futures: list[Future[Any]] = []

        def submit(io: Files = io, futures: list[Future[Any]] = futures) -> None:
            try:
                while len(futures) < 100_000:
                    futures.append(io.stat("/"))
            except RuntimeError:
                pass  # it is closed

        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        assert io.close(HANG_S)
        for thread in threads:
            thread.join()
        assert all(future.result(HANG_S) for future in futures)


def test_a_stop_iteration_reaches_asyncio(io: Files) -> None:
    async def wait() -> None:
        failed: Future[Any] = io.stat("/").then(lambda _: next(iter(())))
        with pytest.raises(RuntimeError) as caught:
            await failed
        assert isinstance(caught.value.__cause__, StopIteration)

    asyncio.run(asyncio.wait_for(wait(), HANG_S))


def test_a_path_of_many_directories(io: Files, tmp_path: Path) -> None:
    deep = os.path.join(tmp_path, *["d"] * 1500)
    try:
        io.make_path(deep).result(HANG_S)
        assert os.path.isdir(deep)
        io.make_path(deep + "/e/").result(HANG_S)
        assert os.path.isdir(deep + "/e")
    finally:  # removal of the tree would recurse as deep
        at = deep + "/e"
        while at != str(tmp_path):
            if os.path.isdir(at):
                os.rmdir(at)
            at = os.path.dirname(at)


def test_an_abandoned_descriptor_has_no_path(io: Files, tmp_path: Path) -> None:
    """Its number may be reused by the next open."""
    opened, gate = ops.open(str(tmp_path)), Gate()
    late = ops.open(str(tmp_path))
    wait, function = gate(), late.function
    late.function = lambda *a, **k: (wait(), function(*a, **k))[1]
    future = io.submit(late)
    assert gate.begun.wait(HANG_S)
    future.cancel()
    gate.open()
    assert io.wait(HANG_S)
    fd = opened()
    try:
        error = io.read(fd, 1).error(HANG_S)
        assert isinstance(error, IsADirectoryError)
        assert error.filename is None
    finally:
        os.close(fd)


def test_ready_continuations_do_not_nest() -> None:
    first = last = ready_to_settle()
    for _ in range(MANY):
        last = last.then(lambda f: f.result() + 1)
    first.settle(0)
    assert last.result(0) == MANY


def _without_threads(program: Callable[[], None]) -> int:
    """Run a program as a user who may have only three more threads; return its exit code."""
    import resource

    child = os.fork()
    if not child:
        code = 3
        try:
            resource.setrlimit(resource.RLIMIT_NPROC, (4, 4))
            # The limit applies per user, so this one runs nothing else.
            os.setuid(100_000 + os.getpid())
            program()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_few_threads_suffice() -> None:
    def program() -> None:
        io = Files(threads=16)
        slow = [io.submit(call(time.sleep, 0.01)) for _ in range(40)]
        for result in slow:
            result.result(HANG_S)
        assert io.close(HANG_S)

    assert _without_threads(program) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_few_threads_do_all_parts() -> None:
    def program() -> None:
        overlap = Overlap(16)
        for _ in range(3):
            done = [0] * 100

            def part(first: int, last: int, done: list[int] = done) -> None:
                for number in range(first, last):
                    done[number] += 1

            overlap.run(part, 0, 100)
            assert done == [1] * 100
        assert overlap.threads < 16
        overlap.close()

    assert _without_threads(program) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_few_threads_do_the_work_of_a_rank() -> None:
    def program() -> None:
        said = threading.Semaphore(0)
        pool = WorkerPool(said.release, 32)

        def which() -> int:
            time.sleep(0.01)
            return pool.number

        numbers = [pool.submit(which) for _ in range(50)]
        while pool.in_flight:
            assert said.acquire(timeout=HANG_S)
            pool.drain()
        used = {future.result() for future in numbers}
        assert used == set(range(len(pool.native_ids)))
        assert 1 <= len(used) < 32
        assert pool.close(HANG_S)

    assert _without_threads(program) == 0
