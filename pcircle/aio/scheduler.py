"""Runs file operations on pools of threads, and continuations on a thread of their own.

A submitted operation is added to a queue, so submitting any operation takes constant time. Metadata
and data operations have separate queues and threads; the number of threads for each is fixed or
adaptive (`pcircle.threads.thread_tuning`). Continuations run on a dedicated thread, so a slow one
delays other continuations, but occupies no thread for operations. Snyder (2013) left open where
continuations run.

A *composite* operation is a generator that yields operations and receives their results. It is
submitted once and runs on one thread, step by step. When it is cancelled, `Cancelled` is raised at
its next step that is not marked as tidying, and its `finally` blocks still run.

A thread that is hanging in the kernel cannot be ended, but the threads are daemons, so the process
can exit without them. If an operation succeeds after it was cancelled or its deadline passed, the
file that it opened is closed, or the name that it created is removed. Other effects, such as
written data, remain.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import isnan
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from pcircle.aio.futures import Cancelled, Future
from pcircle.aio.operations import DATA, METADATA, Operation, Path
from pcircle.threads.thread_tuning import ThreadCountSearch, Window
from pcircle.threads.workers import cpu_and_delay_s, require_thread

T = TypeVar("T")
S = TypeVar("S", bound="Scheduler")

Composite = Generator[Operation[Any], Any, T]

_WINDOW_S = 0.05
_PATIENCE_S = 5.0


class Scheduler:
    """Runs operations; leaving its context waits until all operations and continuations have ended.

    `threads` is the number of threads for each kind of operation; if it is None, the number is
    adapted, up to `max_threads`. If the block raises an exception, operations that have not started
    are cancelled. Leaving the context then waits at most a few seconds for the others.
    """

    def __init__(self, threads: int | None = None, *, max_threads: int = 64) -> None:
        if threads is not None and threads < 1:
            raise ValueError("threads must be at least 1")
        # The path by which each descriptor was opened.
        self._paths: dict[object, Path | None] = {}
        self._busy = _Count()  # unfinished jobs and continuations
        self._continuations = _Continuations(self._busy)
        self._deadlines = _Deadlines()
        self._orders = _Orders()
        kinds = (METADATA, DATA)
        self._lanes = {kind: _Lane(kind, threads, max_threads, self._busy) for kind in kinds}

    # ---- use -------------------------------------------------------------------

    def submit(
        self,
        work: Operation[T] | Composite[T],
        *,
        deadline_s: float | None = None,
        kind: str | None = None,
    ) -> Future[T]:
        """Queue an operation or a composite operation, and return its future at once.

        If it has not ended after `deadline_s` seconds, its future fails with TimeoutError, and the
        operation is treated as if it had been cancelled. A composite operation counts as DATA
        unless `kind` is given.
        """
        if not isinstance(work, Operation | Generator):
            raise TypeError(f"{work!r} is neither an operation nor a generator of operations")
        if deadline_s is not None and isnan(deadline_s):
            raise ValueError("deadline_s must be a number of seconds")
        if kind is None:
            kind = work.kind if isinstance(work, Operation) else DATA
        future: Future[T] = self.future()
        job = _Submission(self, work, future)
        if isinstance(work, Operation) and work.moves:
            self._orders.put(work.fd, job, self._lanes[kind])
        else:
            self._lanes[kind].put(job)
        if deadline_s is not None:
            path = work.path if isinstance(work, Operation) else None
            self._deadlines.add(time.monotonic() + deadline_s, future, path)
        return future

    def future(self, abort: Callable[[], object] | None = None) -> Future[Any]:
        """Return a pending future for the caller to settle; its continuations run here.

        `abort` is called when the future is cancelled.
        """
        return Future(self._continuations.run, abort)

    def threads(self) -> dict[str, int]:
        """Return the current limit on the number of threads for each kind of operation."""
        return {kind: lane.limit for kind, lane in self._lanes.items()}

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all operations and their continuations have ended; return False on timeout.

        Continuations must not call this method, because they would wait for themselves.
        """
        return self._busy.wait(timeout_s)

    def close(self, patience_s: float = _PATIENCE_S) -> bool:
        """Refuse further operations, and end the threads once the queues are empty.

        Return False if a thread is still running after `patience_s`.
        """
        until_s = time.monotonic() + patience_s
        ended = [lane.close(until_s) for lane in self._lanes.values()]
        self._deadlines.close()
        return self._continuations.close(until_s) and all(ended)

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            for lane in self._lanes.values():
                lane.cancel()
        else:
            self.wait()
        self.close()

    # ---- on the threads --------------------------------------------------------

    def carry_out(self, operation: Operation[T]) -> T:
        """Execute an operation on this thread. Raises OSError, with a path if one is known."""
        if not isinstance(operation, Operation):
            raise TypeError(f"a composite operation yielded no operation: {operation!r}")
        if operation.name == "close" and operation.path is None:
            # Remove the path first: after the call, the number may already belong to another file.
            operation.path = self._paths.pop(operation.fd, None)
        try:
            value = operation()
        except OSError as error:
            if error.filename is None:
                error.filename = self._paths.get(operation.fd)
            raise
        if operation.name in ("open", "creat"):
            self._paths[value] = operation.path
        return value

    def take_back(self, operation: Operation[T], value: T) -> None:
        """Undo an operation that succeeded after its future was cancelled."""
        if operation.name in ("open", "creat"):
            self._paths.pop(value, None)
        operation.take_back(value)


class _LaneJob(Protocol):
    """A unit of work in the queue of a lane."""

    def run(self) -> None: ...
    def cancel(self) -> None: ...


class _Submission(Generic[T]):
    """A submitted operation or composite operation, and its future."""

    __slots__ = ("future", "scheduler", "work")

    def __init__(
        self, scheduler: Scheduler, work: Operation[T] | Composite[T], future: Future[T]
    ) -> None:
        self.scheduler = scheduler
        self.work = work
        self.future = future

    def run(self) -> None:
        if isinstance(self.work, Operation):
            self._run(self.work)
        else:
            self._drive(self.work)

    def cancel(self) -> None:
        """Cancel a job that has not started."""
        self.future.cancel()
        self.run()  # closes the generator of a composite operation

    def _run(self, operation: Operation[T]) -> None:
        if self.future.done:
            return
        try:
            value = self.scheduler.carry_out(operation)
        except BaseException as error:
            self.future.settle(None, error)
            return
        if not self.future.settle(value):
            self.scheduler.take_back(operation, value)

    def _drive(self, steps: Composite[T]) -> None:
        future, value, notified = self.future, None, False
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
            if future.done and not (notified or getattr(step, "tidying", False)):
                notified, error = True, Cancelled()
                continue
            try:
                value = self.scheduler.carry_out(step)
            except BaseException as failure:
                error = failure


class _Orders:
    """Runs the jobs that use the position of a descriptor in order, one at a time per descriptor.

    Each job has a turn in the queue of its lane. A turn runs all waiting jobs of its descriptor in
    order, unless another turn is already running them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, deque[_LaneJob]] = {}
        self._running: set[int] = set()

    def put(self, fd: int, job: _LaneJob, lane: _Lane) -> None:
        """Queue a job. Raises RuntimeError if the scheduler is closed."""
        with self._lock:  # queue the turn and the job atomically
            lane.put(_Turn(self, fd))
            self._waiting.setdefault(fd, deque()).append(job)

    def run(self, fd: int) -> None:
        """Run the waiting jobs of a descriptor, unless another thread is running them."""
        with self._lock:
            if fd in self._running:
                return
            self._running.add(fd)
        while (job := self._next(fd)) is not None:
            job.run()

    def cancel(self, fd: int) -> None:
        """Cancel the last waiting job of a descriptor."""
        with self._lock:
            waiting = self._waiting.get(fd)
            job = waiting.pop() if waiting else None
        if job is not None:
            job.cancel()

    def _next(self, fd: int) -> _LaneJob | None:
        with self._lock:
            waiting = self._waiting.get(fd)
            if waiting:
                return waiting.popleft()
            self._waiting.pop(fd, None)
            self._running.discard(fd)
            return None


class _Turn:
    """A placeholder in a lane's queue for a job in `_Orders`."""

    __slots__ = ("_fd", "_orders")

    def __init__(self, orders: _Orders, fd: int) -> None:
        self._orders = orders
        self._fd = fd

    def run(self) -> None:
        self._orders.run(self._fd)

    def cancel(self) -> None:
        """Cancel a job that has not started."""
        self._orders.cancel(self._fd)


class _Lane:
    """The queue of one kind of operation, and the threads that run it."""

    def __init__(self, kind: str, threads: int | None, max_threads: int, busy: _Count) -> None:
        self._busy = busy
        self.kind = kind
        self.search = None if threads is not None else ThreadCountSearch(max_threads)
        self.limit = threads or 1
        self._jobs: SimpleQueue[_LaneJob | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._state = threading.Condition()
        self._submitted = 0
        self._finished = 0
        self._closing = False
        self._began_s = time.monotonic()
        self._seen = 0
        self._spent = (0.0, 0.0)

    def put(self, job: _LaneJob) -> None:
        with self._state:
            if self._closing:
                raise RuntimeError("the scheduler is closed")
            self._busy.add()
            self._submitted += 1
            # Under the lock, so that it precedes any None that ends a thread.
            self._jobs.put(job)
            # Start another thread only if all are busy.
            if len(self._workers) < min(self.limit, self._submitted - self._finished):
                self._begin()

    def cancel(self) -> None:
        """Cancel the jobs that have not started."""
        with suppress(Empty):  # the threads may take the last jobs
            while True:
                job = self._jobs.get_nowait()
                if job is None:  # the None that ends a thread
                    self._jobs.put(None)
                    return
                job.cancel()
                self._ended()

    def close(self, until_s: float) -> bool:
        """End the threads once the queue is empty; return False on timeout."""
        with self._state:
            self._closing = True
            self._state.notify_all()
        for _ in self._workers:
            self._jobs.put(None)
        for worker in self._workers:
            worker.join(max(0.0, until_s - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def _begin(self) -> bool:
        """Start another thread; return False if that is not permitted or not possible."""
        with self._state:
            number = len(self._workers)
            if number >= self.limit or self._closing:
                return False
            return require_thread(self._workers, self._work, number, name=f"aio-{self.kind}-")

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
            if self.search is not None and time.monotonic() - self._began_s > _WINDOW_S:
                self._look(self.search)

    def _ended(self) -> None:
        with self._state:
            self._finished += 1
        self._busy.remove()

    def _look(self, search: ThreadCountSearch) -> None:
        """Adapt the number of threads if a window has ended."""
        with self._state:
            now_s = time.monotonic()
            elapsed_s, self._began_s = now_s - self._began_s, now_s
            if elapsed_s <= _WINDOW_S or self._closing:
                return
            done, self._seen = self._finished - self._seen, self._finished
            cpu_s, delay_s = cpu_and_delay_s([w.native_id for w in self._workers[: self.limit]])
            before, self._spent = self._spent, (cpu_s, delay_s)
            idle = self._submitted - self._finished < self.limit
            # With idle threads, the window measures the submitter, not the file system.
            if not idle:
                used = max(0.0, cpu_s - before[0]), max(0.0, delay_s - before[1])
                self.limit = search.update(Window(done, elapsed_s, *used))
                self._spent = cpu_and_delay_s([w.native_id for w in self._workers[: self.limit]])
            self._state.notify_all()
            waiting = self._submitted - self._finished
        while len(self._workers) < min(self.limit, waiting) and self._begin():
            pass


class _Count:
    """The number of jobs and continuations that are queued or in progress."""

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
    """The thread that runs continuations one after another; the first one starts it.

    After the scheduler is closed, late continuations run on the thread that submits them.
    """

    def __init__(self, busy: _Count) -> None:
        self._busy = busy
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._finishing = False

    def run(self, function: Callable[[], None]) -> None:
        """Queue a function, or call it at once if the scheduler is closed."""
        with self._lock:
            late = self._finishing
            if not late:
                if self._thread is None:
                    name = "aio-continuations"
                    self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                    self._thread.start()
                self._busy.add()
                self._calls.put(function)
        if late:
            function()

    def close(self, until_s: float) -> bool:
        """End the thread once its queue is empty; return False on timeout."""
        with self._lock:
            self._finishing = True
            self._calls.put(None)
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(max(0.0, until_s - time.monotonic()))
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (function := self._calls.get()) is not None:
            function()
            self._busy.remove()


class _Deadline:
    """The function that settles an overdue future, and the path for its error."""

    __slots__ = ("path", "settle")

    def __init__(self, future: Future[T], path: Path | None) -> None:
        self.settle: Callable[[None, BaseException], bool] | None = future.settle
        self.path = path

    def forget(self) -> None:
        """Drop the future, so that its value is not kept in memory until the deadline."""
        self.settle = self.path = None


class _Deadlines:
    """Futures with a deadline, and the thread that settles overdue ones."""

    def __init__(self) -> None:
        # The second element is unique, so that tuples with equal times never compare `_Deadline`s.
        self._heap: list[tuple[float, int, _Deadline]] = []
        self._settled = 0  # approximate number of settled futures in the heap
        self._numbers = count()
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def add(self, until_s: float, future: Future[T], path: Path | None) -> None:
        deadline = _Deadline(future, path)
        due = until_s, next(self._numbers), deadline
        with self._state:
            heappush(self._heap, due)
            if self._thread is None:
                name = "aio-deadlines"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            elif self._heap[0] is due:
                self._state.notify()
        future.when_done(partial(self._forget, deadline))

    def close(self) -> None:
        """End the thread once all futures are settled."""
        with self._state:
            self._closing = True
            self._state.notify()

    def _forget(self, deadline: _Deadline) -> None:
        """Drop a settled future, so that its value is not kept in memory until the deadline."""
        with self._state:
            deadline.forget()
            self._settled += 1
            if 2 * self._settled > len(self._heap):
                self._clear()
            if self._closing:
                self._state.notify()

    def _clear(self) -> None:
        self._heap[:] = [due for due in self._heap if due[2].settle is not None]
        heapify(self._heap)
        self._settled = 0

    def _work(self) -> None:
        while (deadline := self._next()) is not None:
            settle = deadline.settle
            if settle is not None:
                text = os.strerror(errno.ETIMEDOUT)
                settle(None, TimeoutError(errno.ETIMEDOUT, text, deadline.path))

    def _next(self) -> _Deadline | None:
        """Wait for the next deadline to pass and return it.

        Return None once all futures are settled after `close`.
        """
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
                    return heappop(heap)[2]
                state.wait(min(wait_s, threading.TIMEOUT_MAX))
