"""The scheduler: file operations on threads of their own, and what follows on another.

An operation that is submitted waits in a queue; as many run at once as pay
(see `pcircle.aio.climb`), or as was asked for, metadata and data apart. So
submitting takes constant time, whatever the operation is. Continuations run on
a thread that does nothing else: one that computes for long delays other
continuations, never an operation. The thesis (Snyder 2013) left that open.

A *composite* operation is a generator that yields operations and gets their
outcomes. It reads top to bottom, is one submission and holds one place: its
steps run one after another on one thread. Cancelled, it is told so by an
exception where it stands, but not in place of a step that tidies up, and its
`finally` parts still run.

Threads that hang in the kernel can't be ended. They are daemons: a process may
exit without them. What an operation brings after its future was cancelled, or
after its deadline, is undone (a descriptor closed, a name removed).
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from pcircle.aio.climb import Climb, Window
from pcircle.aio.futures import Cancelled, Future
from pcircle.aio.operations import DATA, METADATA, Operation
from pcircle.aio.spent import spent_s

T = TypeVar("T")
S = TypeVar("S", bound="Scheduler")

Composite = Generator[Operation[Any], Any, T]

_WINDOW_S = 0.05
_PATIENCE_S = 5.0


class Scheduler:
    """Runs operations; a context manager that waits for all that was submitted.

    `threads` fixes how many run at once of each kind, None adapts it up to
    `most`. After an exception in the block what has not begun is cancelled.
    """

    def __init__(self, threads: int | None = None, *, most: int = 64) -> None:
        if threads is not None and threads < 1:
            raise ValueError("at least one thread must do the work")
        self._paths: dict[int, Any] = {}  # what descriptors were opened by
        self._busy = _Count()  # of jobs and continuations
        self._continuations = _Continuations(self._busy)
        self._deadlines = _Deadlines()
        kinds = (METADATA, DATA)
        self._lanes = {kind: _Lane(kind, threads, most, self._busy) for kind in kinds}

    # ---- use -------------------------------------------------------------------

    def submit(
        self,
        work: Operation[T] | Composite[T],
        *,
        deadline_s: float | None = None,
        kind: str | None = None,
    ) -> Future[T]:
        """Have an operation, or a composite one, carried out; takes constant time.

        With no outcome after `deadline_s` seconds the future fails with
        TimeoutError, and the operation as if it had been cancelled. A composite
        one counts as DATA unless `kind` says otherwise.
        """
        if kind is None:
            kind = work.kind if isinstance(work, Operation) else DATA
        future: Future[T] = Future(self._continuations.run)
        if deadline_s is not None:
            path = work.path if isinstance(work, Operation) else None
            self._deadlines.add(time.monotonic() + deadline_s, future, path)
        self._lanes[kind].put(_Job(self, work, future))
        return future

    def threads(self) -> dict[str, int]:
        """How many threads work on each kind, as adapted so far."""
        return {kind: lane.limit for kind, lane in self._lanes.items()}

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until all that was submitted, and what follows from it, has ended; false if not in time.

        Not to be called by a continuation.
        """
        return self._busy.wait(timeout_s)

    def close(self, patience_s: float = _PATIENCE_S) -> bool:
        """End the threads once the queues are empty; false if one is stuck in an operation."""
        until_s = time.monotonic() + patience_s
        ended = [lane.close(until_s) for lane in self._lanes.values()]
        self._deadlines.close()
        return self._continuations.close(until_s) and all(ended)

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            for lane in self._lanes.values():
                lane.cancel()
        else:
            self.wait()
        self.close()

    # ---- on the threads --------------------------------------------------------

    def carry_out(self, operation: Operation[T]) -> T:
        """An operation, here and now. OSError with errno and path."""
        try:
            value = operation()
        except OSError as error:
            if error.filename is None and operation.fd >= 0:
                error.filename = self._paths.get(operation.fd)
            raise
        if operation.name in ("open", "creat"):
            self._paths[value] = operation.path  # type: ignore[index]
        elif operation.name == "close":
            self._paths.pop(operation.fd, None)
        return value


class _Job:
    """Something submitted, and its future."""

    __slots__ = ("future", "scheduler", "work")

    def __init__(
        self, scheduler: Scheduler, work: Operation[Any] | Composite[Any], future: Future[Any]
    ) -> None:
        self.scheduler = scheduler
        self.work = work
        self.future = future

    def run(self) -> None:
        work, future = self.work, self.future
        if not isinstance(work, Operation):
            self._drive(work)
            return
        if future.done:
            return
        try:
            value = self.scheduler.carry_out(work)
        except BaseException as error:
            future.settle(None, error)
            return
        if not future.settle(value):
            _undo(work, value)

    def _drive(self, steps: Composite[Any]) -> None:
        future, value, told = self.future, None, False
        error: BaseException | None = None
        if future.done:
            steps.close()
            return
        while True:
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                future.settle(end.value)
                return
            except BaseException as failure:
                future.settle(None, failure)
                return
            value, error = None, None
            if future.done and not (told or step.tidying):
                told, error = True, Cancelled()
                continue
            try:
                value = self.scheduler.carry_out(step)
            except BaseException as failure:
                error = failure


def _undo(operation: Operation[Any], value: Any) -> None:
    if operation.undo is not None:
        with suppress(OSError):  # somebody else has; nobody is left to be told
            operation.undo(value)


class _Lane:
    """The operations of one kind: those that wait, and the threads that they run on."""

    def __init__(self, kind: str, threads: int | None, most: int, busy: _Count) -> None:
        self._busy = busy
        self.kind = kind
        self.climb = None if threads is not None else Climb(most)
        self.limit = threads or 1
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._state = threading.Condition()
        self._submitted = 0
        self._finished = 0
        self._closing = False
        self._began_s = time.monotonic()
        self._seen = 0
        self._spent = (0.0, 0.0)

    def put(self, job: _Job) -> None:
        if self._closing:
            raise RuntimeError("the scheduler is closed")
        self._busy.add()
        with self._state:
            self._submitted += 1
        self._jobs.put(job)
        # One more thread only if all have something to do.
        if len(self._workers) < min(self.limit, self._submitted - self._finished):
            self._begin()

    def cancel(self) -> None:
        """Cancel what has not begun."""
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job.future.cancel()
                job.run()  # a composite one is closed
                self._ended()

    def close(self, until_s: float) -> bool:
        with self._state:
            self._closing = True
            self._state.notify_all()
        for _ in self._workers:
            self._jobs.put(None)
        for worker in self._workers:
            worker.join(max(0.0, until_s - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def _begin(self) -> None:
        with self._state:
            number = len(self._workers)
            if number >= self.limit:
                return
            name = f"aio-{self.kind}-{number}"
            worker = threading.Thread(target=self._work, args=(number,), name=name, daemon=True)
            self._workers.append(worker)
        worker.start()

    def _work(self, number: int) -> None:
        while True:
            if number >= self.limit:
                with self._state:
                    self._state.wait_for(lambda: number < self.limit or self._closing)
            job = self._jobs.get()
            if job is None:
                return
            job.run()
            del job
            self._ended()
            if self.climb is not None and time.monotonic() - self._began_s > _WINDOW_S:
                self._look()

    def _ended(self) -> None:
        with self._state:
            self._finished += 1
        self._busy.remove()

    def _look(self) -> None:
        """At the end of a window: adapt the number of threads."""
        assert self.climb is not None
        with self._state:
            now_s = time.monotonic()
            elapsed_s, self._began_s = now_s - self._began_s, now_s
            if elapsed_s <= _WINDOW_S or self._closing:
                return
            done, self._seen = self._finished - self._seen, self._finished
            cpu_s, delay_s = spent_s([w.native_id for w in self._workers[: self.limit]])
            before, self._spent = self._spent, (cpu_s, delay_s)
            idle = self._submitted - self._finished < self.limit
            if not idle:  # else it is not the file system that is measured
                used = max(0.0, cpu_s - before[0]), max(0.0, delay_s - before[1])
                self.limit = self.climb.update(Window(done, elapsed_s, *used))
                self._spent = spent_s([w.native_id for w in self._workers[: self.limit]])
            self._state.notify_all()
            waiting = self._submitted - self._finished
        while len(self._workers) < min(self.limit, waiting):
            self._begin()


class _Count:
    """Of what is under way."""

    def __init__(self) -> None:
        self._number = 0
        self._state = threading.Condition()

    def add(self) -> None:
        with self._state:
            self._number += 1

    def remove(self) -> None:
        with self._state:
            self._number -= 1
            if not self._number:
                self._state.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        with self._state:
            return self._state.wait_for(lambda: not self._number, timeout_s)


class _Continuations:
    """The thread on which continuations run, begun with the first one."""

    def __init__(self, busy: _Count) -> None:
        self._busy = busy
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, function: Callable[[], None]) -> None:
        """Have a function called, after those before."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    name = "aio-continuations"
                    self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                    self._thread.start()
        self._busy.add()
        self._calls.put(function)

    def close(self, until_s: float) -> bool:
        """Run what is left, and end the thread."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._calls.put(None)
        self._thread.join(max(0.0, until_s - time.monotonic()))
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (function := self._calls.get()) is not None:
            function()
            self._busy.remove()


class _Deadlines:
    """Futures that must have an outcome in time, and the thread that sees to it."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Future[Any], Any]] = []
        self._numbers = count()
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def add(self, until_s: float, future: Future[Any], path: Any) -> None:
        with self._state:
            heappush(self._heap, (until_s, next(self._numbers), future, path))
            if self._thread is None:
                name = "aio-deadlines"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            elif self._heap[0][2] is future:
                self._state.notify()

    def close(self) -> None:
        with self._state:
            self._closing = True
            self._state.notify()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)

    def _work(self) -> None:
        while True:
            with self._state:
                while not self._closing and (not self._heap or self._heap[0][0] > time.monotonic()):
                    wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
                    self._state.wait(wait_s)
                if self._closing:
                    return
                _, _, future, path = heappop(self._heap)
            future.settle(None, TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path))
