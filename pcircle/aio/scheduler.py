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

That is so on threads. With io_uring as the backend (`pcircle.aio.uring`) the kernel
overlaps what it can, the threads do the rest, and the steps of a composite operation
follow one another as they end (`pcircle.aio.driven`).

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
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import isnan
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pcircle.aio.climb import Climb, Window
from pcircle.aio.futures import Cancelled, Future
from pcircle.aio.operations import DATA, METADATA, Operation, not_an_operation
from pcircle.aio.spent import spent_s
from pcircle.aio.workers import begin_first

if TYPE_CHECKING:
    from pcircle.aio.driven import Driven

T = TypeVar("T")
S = TypeVar("S", bound="Scheduler")

Composite = Generator[Operation[Any], Any, T]
Backend = Literal["threads", "uring"]

_WINDOW_S = 0.05
_PATIENCE_S = 5.0


class Scheduler:
    """Runs operations; a context manager that waits for all that was submitted.

    `threads` fixes how many run at once of each kind, None adapts it up to
    `most`. After an exception in the block what has not begun is cancelled.

    With `backend` "uring" the kernel overlaps what io_uring has: `threads`, or
    `most` without it, are how many operations of each kind are in flight. An
    OSError says why where it can't be used.
    """

    def __init__(
        self, threads: int | None = None, *, most: int = 64, backend: Backend = "threads"
    ) -> None:
        if threads is not None and threads < 1:
            raise ValueError("at least one thread must do the work")
        self._paths: dict[int, Any] = {}  # what descriptors were opened by
        self.busy = _Count()  # of jobs and continuations
        self._continuations = Continuations(self.busy, "aio-continuations")
        self._deadlines = _Deadlines()
        kinds = (METADATA, DATA)
        self._lanes = {kind: _Lane(kind, threads, most, self.busy) for kind in kinds}
        self._driven: Driven | None = None
        if backend == "uring":
            from pcircle.aio.driven import Driven

            self._driven = Driven(self, threads or most, self._continuations.run)
        elif backend != "threads":
            raise ValueError(f"there is no backend {backend!r}")

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
        if not isinstance(work, Operation | Generator):
            raise TypeError(f"{work!r} is neither an operation nor a generator of operations")
        if deadline_s is not None and isnan(deadline_s):
            raise ValueError("a deadline is a number of seconds")
        if kind is None:
            kind = work.kind if isinstance(work, Operation) else DATA
        future: Future[T]
        if self._driven is not None and self._driven.takes(work):
            future = self._driven.submit(work, kind)
        else:
            future = Future(self._continuations.run)
            self._lanes[kind].put(_Job(self, work, future))
        if deadline_s is not None:
            path = work.path if isinstance(work, Operation) else None
            self._deadlines.add(time.monotonic() + deadline_s, future, path)
        return future

    def threads(self) -> dict[str, int]:
        """How many threads work on each kind, as adapted so far; or places, of io_uring."""
        if self._driven is not None:
            return dict.fromkeys(self._lanes, self._driven.ring.limit)
        return {kind: lane.limit for kind, lane in self._lanes.items()}

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until all that was submitted, and what follows from it, has ended; false if not in time.

        Not to be called by a continuation.
        """
        return self.busy.wait(timeout_s)

    def close(self, patience_s: float = _PATIENCE_S) -> bool:
        """End the threads once the queues are empty; false if one is stuck in an operation."""
        until_s = time.monotonic() + patience_s
        ended = [] if self._driven is None else [self._driven.close(until_s)]
        ended += [lane.close(until_s) for lane in self._lanes.values()]
        self._deadlines.close()
        self._continuations.finish()
        return self._continuations.join(until_s) and all(ended)

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            if self._driven is not None:
                self._driven.drop_waiting()
            for lane in self._lanes.values():
                lane.cancel()
        else:
            self.wait()
        self.close()

    # ---- for what carries out --------------------------------------------------

    def carry_out(self, operation: Operation[T]) -> T:
        """An operation, here and now. OSError with errno and path."""
        if not isinstance(operation, Operation):
            raise not_an_operation(operation)
        self.leaving(operation)
        try:
            value = operation()
        except OSError as error:
            self.name_path(operation, error)
            raise
        self.opened(operation, value)
        return value

    def run_here(self, operation: Operation[T], future: Future[T]) -> None:
        """An operation for its future, here and now."""
        if future.done:
            return
        try:
            value = self.carry_out(operation)
        except BaseException as error:
            future.settle(None, error)
            return
        if not future.settle(value):
            self.take_back(operation, value)

    def take_back(self, operation: Operation[Any], value: Any) -> None:
        """Undo an operation that has ended well, and that nobody wants any more."""
        if operation.name in ("open", "creat"):
            self._paths.pop(value, None)
        operation.take_back(value)

    def on_a_thread(self, kind: str, function: Callable[[], None]) -> None:
        """Have something done that waits, after what was submitted; here, if it is too late."""
        try:
            self._lanes[kind].put(_Errand(function))
        except RuntimeError:
            function()

    def leaving(self, operation: Operation[Any]) -> None:
        """It is about to begin: a descriptor that is closed may be another one's at once."""
        if operation.name == "close" and operation.path is None:
            operation.path = self._paths.pop(operation.fd, None)

    def opened(self, operation: Operation[Any], value: Any) -> None:
        """It has ended well: what it opened is known by its path."""
        if operation.name in ("open", "creat"):
            self._paths[value] = operation.path

    def name_path(self, operation: Operation[Any], error: BaseException) -> None:
        """Have an OSError tell the path, if it does not."""
        if isinstance(error, OSError) and error.filename is None:
            path = self._paths.get(operation.fd) if operation.path is None else operation.path
            if path is not None:
                error.filename = path


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
        if isinstance(work, Operation):
            self.scheduler.run_here(work, future)
        else:
            self._drive(work)

    def drop(self) -> None:
        """It will not begin."""
        self.future.cancel()
        self.run()  # a composite one is closed

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
            if future.done and not (told or getattr(step, "tidying", False)):
                told, error = True, Cancelled()
                continue
            try:
                value = self.scheduler.carry_out(step)
            except BaseException as failure:
                error = failure


class _Errand:
    """Something that follows from what was submitted, and is not dropped."""

    __slots__ = ("run",)

    def __init__(self, function: Callable[[], None]) -> None:
        self.run = function

    def drop(self) -> None:
        self.run()


class _Lane:
    """The operations of one kind: those that wait, and the threads that they run on."""

    def __init__(self, kind: str, threads: int | None, most: int, busy: _Count) -> None:
        self._busy = busy
        self.kind = kind
        self.climb = None if threads is not None else Climb(most)
        self.limit = threads or 1
        self._jobs: SimpleQueue[_Job | _Errand | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._state = threading.Condition()
        self._submitted = 0
        self._finished = 0
        self._closing = False
        self._began_s = time.monotonic()
        self._seen = 0
        self._spent = (0.0, 0.0)

    def put(self, job: _Job | _Errand) -> None:
        with self._state:
            if self._closing:
                raise RuntimeError("the scheduler is closed")
            self._busy.add()
            self._submitted += 1
            self._jobs.put(job)  # before what ends the threads
            # One more thread only if all have something to do.
            if len(self._workers) < min(self.limit, self._submitted - self._finished):
                self._begin()

    def cancel(self) -> None:
        """Cancel what has not begun."""
        with suppress(Empty):  # the threads take from it as well
            while True:
                job = self._jobs.get_nowait()
                if job is None:  # for a thread that is to end
                    self._jobs.put(None)
                    return
                job.drop()
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

    def _begin(self) -> bool:
        """One more thread; false if it isn't allowed, or any more."""
        with self._state:
            number = len(self._workers)
            if number >= self.limit or self._closing:
                return False
            return begin_first(self._workers, self._work, number, name=f"aio-{self.kind}-")

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
        while len(self._workers) < min(self.limit, waiting) and self._begin():
            pass


class _Count:
    """Of what is under way."""

    def __init__(self) -> None:
        self._number = 0
        self._state = threading.Condition()

    def add(self) -> None:
        with self._state:
            self._number += 1

    def remove(self, number: int = 1) -> None:
        with self._state:
            self._number -= number
            if not self._number:
                self._state.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        with self._state:
            return self._state.wait_for(lambda: not self._number, timeout_s)


class Continuations:
    """A thread on which functions run one after another, begun with the first one.

    After its end they run where they come from: there may be late ones.
    """

    def __init__(self, busy: _Count, name: str) -> None:
        self._busy = busy
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._finishing = False

    def run(self, function: Callable[[], None]) -> None:
        """Have a function called, after those before."""
        with self._lock:
            late = self._finishing
            if not late:
                if self._thread is None:
                    name = self._name
                    self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                    self._thread.start()
                self._busy.add()
                self._calls.put(function)
        if late:
            function()

    def finish(self) -> None:
        """Run what is left, then end the thread."""
        with self._lock:
            self._finishing = True
            self._calls.put(None)

    def join(self, until_s: float) -> bool:
        """Wait for its end; false if it has not come in time."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(max(0.0, until_s - time.monotonic()))
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (function := self._calls.get()) is not None:
            function()
            self._busy.remove()


class _Deadlines:
    """Futures that must have an outcome in time, and the thread that sees to it."""

    def __init__(self) -> None:
        # Times, numbers that tell them apart, futures (None once settled), paths.
        self._heap: list[list[Any]] = []
        self._settled = 0  # of these, about
        self._numbers = count()
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def add(self, until_s: float, future: Future[Any], path: Any) -> None:
        due = [until_s, next(self._numbers), future, path]
        with self._state:
            heappush(self._heap, due)
            if self._thread is None:
                name = "aio-deadlines"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            elif self._heap[0] is due:
                self._state.notify()
        future._when_done(partial(self._forget, due))

    def close(self) -> None:
        """End the thread when no future is left that waits."""
        with self._state:
            self._closing = True
            self._state.notify()

    def _forget(self, due: list[Any]) -> None:
        """Settled: its value is not kept until then."""
        with self._state:
            due[2] = due[3] = None
            self._settled += 1
            if 2 * self._settled > len(self._heap):
                self._clear()
            if self._closing:
                self._state.notify()

    def _clear(self) -> None:
        self._heap[:] = [due for due in self._heap if due[2] is not None]
        heapify(self._heap)
        self._settled = 0

    def _work(self) -> None:
        while (due := self._next()) is not None:
            _, _, future, path = due
            if future is not None:
                future.give_up(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path))

    def _next(self) -> list[Any] | None:
        """Wait for the next one; None at the end."""
        heap, state = self._heap, self._state
        with state:
            while True:
                if self._closing:
                    self._clear()
                    if not heap:
                        self._thread = None
                        return None
                wait_s = heap[0][0] - time.monotonic() if heap else threading.TIMEOUT_MAX
                if wait_s <= 0:
                    return heappop(heap)
                state.wait(min(wait_s, threading.TIMEOUT_MAX))
