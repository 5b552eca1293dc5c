"""Futures: settled once, independent continuations, combinations, use with asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pcircle.aio import Cancelled, Files, Future, Operation, dataflow, when_all, when_any

HANG_S = 30.0


def call(function: Callable[..., Any], *arguments: object) -> Operation[Any]:
    return Operation("call", function, *arguments)


class Gate:
    """An operation that blocks until the gate opens; `begun` is set when it has started."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._open = threading.Event()
        self.undone: list[object] = []

    def __call__(self) -> Operation[str]:
        def wait() -> str:
            self.begun.set()
            assert self._open.wait(HANG_S)
            return "through"

        return Operation("wait", wait, undo=self.undone.append)

    def open(self) -> None:
        self._open.set()


def started_gate(io: Files) -> tuple[Gate, Future[str]]:
    """Return a gate with a deadline that its thread has reached in time.

    An operation that has not started by its deadline never does: a thread that waits for a
    processor misses a short one.
    """
    deadline_s = 0.05
    while True:
        gate = Gate()
        future = io.submit(gate(), deadline_s=deadline_s)
        while not gate.begun.wait(0.001) and not future.done:
            pass
        if gate.begun.is_set():
            return gate, future
        deadline_s *= 2


def test_values_and_errors(io: Files) -> None:
    assert io.submit(call(divmod, 7, 2)).result(HANG_S) == (3, 1)
    failed = io.submit(call(divmod, 7, 0))
    with pytest.raises(ZeroDivisionError):
        failed.result(HANG_S)
    assert isinstance(failed.error(), ZeroDivisionError)
    assert io.submit(call(divmod, 7, 2)).error(HANG_S) is None


def test_waiting_too_long_raises_timeout_error(io: Files) -> None:
    gate = Gate()
    future = io.submit(gate())
    with pytest.raises(TimeoutError):
        future.result(0.01)
    with pytest.raises(TimeoutError):
        future.error(0.01)
    gate.open()
    assert future.result(HANG_S) == "through"


def test_continuations(io: Files) -> None:
    """A continuation receives the previous future; a future that it returns is the result."""
    thread = io.submit(call(threading.current_thread))
    after = thread.then(lambda f: (f.result(), threading.current_thread()))
    worker, other = after.result(HANG_S)
    assert worker is not other
    assert "continuation" in other.name
    chain: Future[Any] = io.submit(call(int, "1"))
    for _ in range(50):
        chain = chain.then(lambda f: io.submit(call(sum, (f.result(), 1))))
    assert chain.result(HANG_S) == 51
    failed = io.submit(call(int, "x")).then(lambda f: type(f.error()))
    assert failed.result(HANG_S) is ValueError
    with pytest.raises(ValueError, match="invalid"):
        io.submit(call(int, "x")).then(lambda f: f.result()).result(HANG_S)


def test_a_continuation_that_computes_delays_no_operation(io: Files) -> None:
    computing, done = threading.Event(), threading.Event()

    def compute(_: Future[Any]) -> bool:
        computing.set()
        return done.wait(HANG_S)

    long = io.submit(call(int)).then(compute)
    assert computing.wait(HANG_S)
    when_all([io.submit(call(int, "1")) for _ in range(100)]).result(HANG_S)
    done.set()
    assert long.result(HANG_S)


def test_when_all_and_when_any(io: Files) -> None:
    gate = Gate()
    futures = [io.submit(gate()), io.submit(call(int, "x"))]
    assert when_any(futures).result(HANG_S) == 1
    both = when_all(futures)
    assert not both.done
    gate.open()
    assert [type(f.error()) for f in both.result(HANG_S)] == [type(None), ValueError]
    assert when_all([]).result(0) == []
    with pytest.raises(ValueError, match="at least one future"):
        when_any([])


def test_dataflow(io: Files) -> None:
    numbers = [io.submit(call(int, str(number))) for number in range(5)]
    assert dataflow(lambda *values: sum(values), *numbers, 90).result(HANG_S) == 100
    called: list[int] = []
    broken = dataflow(called.append, io.submit(call(int, "x")))
    with pytest.raises(ValueError, match="invalid"):
        broken.result(HANG_S)
    assert called == []
    assert dataflow(lambda: 5).result(HANG_S) == 5


def test_a_cancelled_pending_operation_never_starts(io: Files) -> None:
    gates = [Gate(), Gate(), Gate()]
    held = [io.submit(gate()) for gate in gates]
    called: list[int] = []
    waiting = io.submit(call(called.append, 1))
    assert waiting.cancel()
    assert waiting.cancelled
    assert not waiting.cancel()
    with pytest.raises(Cancelled):
        waiting.result(0)
    for gate in gates:
        gate.open()
    when_all(held).result(HANG_S)
    assert io.wait(HANG_S)
    assert called == []


def test_late_results_are_undone(io: Files) -> None:
    gate = Gate()
    future = io.submit(gate())
    assert gate.begun.wait(HANG_S)
    assert future.cancel()
    gate.open()
    assert io.wait(HANG_S)
    assert gate.undone == ["through"]


def test_deadlines(io: Files) -> None:
    gate, late = started_gate(io)
    in_time = io.submit(call(int, "1"), deadline_s=HANG_S)
    assert in_time.result(HANG_S) == 1
    with pytest.raises(TimeoutError) as caught:
        late.result(HANG_S)
    assert caught.value.errno
    gate.open()
    assert io.wait(HANG_S)
    assert gate.undone == ["through"]


def test_a_cancel_reaches_the_future_of_a_continuation(io: Files) -> None:
    gate = Gate()
    outer: Future[str] = io.submit(call(int)).then(lambda _: io.submit(gate()))
    assert gate.begun.wait(HANG_S)
    deadline_s = time.monotonic() + HANG_S
    while outer._abort is None and time.monotonic() < deadline_s:
        time.sleep(0.001)
    assert outer.cancel()
    gate.open()
    assert io.wait(HANG_S)
    assert gate.undone == ["through"]


def test_asyncio(io: Files, tmp_path: object) -> None:
    async def main() -> int:
        fd = await io.open("/proc/self/status")
        try:
            data = await io.read(fd, 100)
        finally:
            await io.close_fd(fd)
        with pytest.raises(FileNotFoundError):
            await io.open(f"{tmp_path}/none")
        several = await asyncio.gather(*[_await(io.stat("/proc")) for _ in range(20)])
        return len(data) + len(several)

    assert asyncio.run(main()) == 120


async def _await(future: Future[os.stat_result]) -> os.stat_result:
    return await future


def test_to_cancel_a_task_cancels_the_operation(io: Files) -> None:
    gate = Gate()

    async def main() -> None:
        future = io.submit(gate())
        assert gate.begun.wait(HANG_S), "what has not begun is not undone either"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_wait(future), 0.05)

    async def _wait(future: Future[str]) -> str:
        return await future

    asyncio.run(main())
    gate.open()
    assert io.wait(HANG_S)
    assert gate.undone == ["through"]
