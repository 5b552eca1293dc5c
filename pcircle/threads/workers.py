"""Worker threads: how they are started and measured, the pool of a rank, and helpers of a caller.

All worker threads are daemons, because a thread that hangs in the kernel cannot be ended and must
not keep its process alive. Threads are for waiting, not for computing, because under the
interpreter lock two busy workers are slower than one.

`WorkerPool`: a rank's main thread must be ready to answer requests for work, so it leaves file
operations to workers: it submits them and continues. Results, and messages that workers post
meanwhile, are queued; `wake` notifies the owner, which handles them when it calls `drain`. The
state of the owner is therefore accessed by one thread only, and needs no lock. `threads` may change
at any time. `concurrent.futures` differs in three ways that matter. Its threads are joined at exit,
so a read that hangs forever hangs the process. Its callbacks run on the worker. A call costs twice
as much.

`Overlap`: on a file system with latency, a thousand look-ups in sequence take a thousand round
trips, although the server could answer many at once. So a range is divided into parts. The caller
processes the first part itself and returns when all parts are done. Helper threads are started when
first needed. There are only a few, because they speed up only calls that wait. Calls that only
compute take several times as long with helpers. The duration of the run does not show it, because a
thread that waits for the lock looks like one that waits for a server. A user of `Overlap` should
therefore time single calls now and then. The helpers end with `close`, or when the `Overlap` is
garbage collected, because a program that uses pcircle as a library must not accumulate threads.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

HELPER_PREFIX = "overlap-"
"""The prefix of the names of helper threads, which make calls on behalf of a waiting worker."""
RangeFunction = Callable[[int, int], None]
"""A function of a range, given by its start and its stop (exclusive)."""

_Calls = SimpleQueue[tuple[RangeFunction, int, int] | None]
_Done = SimpleQueue[BaseException | None]


class OperationTimeout:
    """The time limit on file operations in this process, set by `pcircle.threads.deadline`.

    `lost` counts the operations that were abandoned. While a limit is set, file systems may be
    accessed only through functions of `os`.
    """

    limit_s: float | None = None
    lost = 0


class _Worker(threading.Thread):
    """A thread that this module has started, and the thread of the job for which it works."""

    def __init__(self, work: Callable[..., None], args: tuple[object, ...], name: str) -> None:
        super().__init__(target=work, args=args, name=name, daemon=True)
        self.job_thread: threading.Thread = _job_thread()


def _job_thread() -> threading.Thread:
    """Return the thread whose job the calling thread carries out: itself unless it is a worker."""
    current = threading.current_thread()
    return current.job_thread if isinstance(current, _Worker) else current


def has_live_workers() -> bool:
    """Return whether any worker of the calling thread's job is alive.

    A program may run other jobs on other threads. Helpers do not count, because without the worker
    that they help they are idle and about to end.
    """
    workers = [thread for thread in threading.enumerate() if isinstance(thread, _Worker)]
    job = _job_thread()
    return any(worker.job_thread is job and not is_helper(worker) for worker in workers)


def is_helper(thread: threading.Thread) -> bool:
    """Return whether a thread makes calls on behalf of a worker."""
    return thread.name.startswith(HELPER_PREFIX)


def start_thread(
    workers: list[threading.Thread], work: Callable[..., None], *args: object, name: str
) -> bool:
    """Start a thread and append it to `workers`; its name ends with its index.

    Return false if this process may have no more threads.
    """
    worker = _Worker(work, args, f"{name}{len(workers)}")
    try:
        worker.start()
    except RuntimeError:
        return False
    workers.append(worker)
    return True


def require_thread(
    workers: list[threading.Thread], work: Callable[..., None], *args: object, name: str
) -> bool:
    """Start a thread like `start_thread`, but raise RuntimeError if `workers` remains empty."""
    is_started = start_thread(workers, work, *args, name=name)
    if not workers:
        raise RuntimeError("cannot start a thread: this process cannot have more")
    return is_started


def other_threads(threads: Collection[int | None]) -> list[int | None]:
    """Return the native ids of this process's Python threads, except `threads` and helpers."""
    return [
        thread.native_id
        for thread in threading.enumerate()
        if thread.native_id not in threads and not is_helper(thread)
    ]


def count_runnable(threads: Iterable[int | None]) -> int:
    """Return how many of the threads are currently running or waiting for a processor."""
    number = 0
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/stat", "rb") as file:
                number += file.read().rpartition(b")")[2].split()[0] == b"R"
        except OSError:
            continue  # the thread has ended
    return number


def cpu_and_delay_s(threads: Iterable[int | None]) -> tuple[float, float]:
    """Return the total time that threads have run, and have waited for a processor, in seconds.

    Both are zero on kernels without scheduler statistics (CONFIG_SCHED_INFO).
    """
    cpu_ns = delay_ns = 0
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
                fields = file.read().split()
        except OSError:
            continue  # the thread has ended, or the kernel keeps no statistics
        cpu_ns += int(fields[0])
        delay_ns += int(fields[1])
    return cpu_ns / 1e9, delay_ns / 1e9


class PoolFuture(Generic[T]):
    """The outcome of a submitted call. Used only by the pool's owner thread."""

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done: bool = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[PoolFuture[T]], None]] = []

    def result(self) -> T:
        """Return the call's value or raise its exception.

        Raises RuntimeError if the call has not ended.
        """
        if not self.done:
            raise RuntimeError("the call has not ended yet")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def error(self) -> BaseException | None:
        """Return the exception that the call raised, or None."""
        return self._error

    def then(self, callback: Callable[[PoolFuture[T]], None]) -> None:
        """Call `callback` on the owner thread once the call has ended, possibly immediately."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def settle(self, value: T | None, error: BaseException | None) -> None:
        """Set the outcome; called only by the pool."""
        self._value = value
        self._error = error
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


class WorkerPool:
    """A pool of up to `threads` workers, started as calls arrive."""

    def __init__(self, wake: Callable[[], None], threads: int = 1) -> None:
        if threads < 1:
            raise ValueError("a pool has at least one thread")
        self.threads = threads
        self.in_flight: int = 0
        self.wake = wake
        self._calls: SimpleQueue[
            tuple[PoolFuture[Any], Callable[..., object], tuple[object, ...]] | None
        ] = SimpleQueue()
        self._posts: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._workers: list[threading.Thread] = []
        self._local = threading.local()

    @property
    def number(self) -> int:
        """The number of the calling worker, counted from 0."""
        return self._local.number  # type: ignore[no-any-return]

    @property
    def native_ids(self) -> list[int | None]:
        """The workers' thread ids in the kernel."""
        return [worker.native_id for worker in self._workers]

    def submit(self, function: Callable[..., T], *args: object) -> PoolFuture[T]:
        """Queue a function to be called on a worker."""
        future: PoolFuture[T] = PoolFuture()
        self.in_flight += 1
        self._calls.put((future, function, args))
        if len(self._workers) < min(self.threads, self.in_flight):
            number = len(self._workers)
            require_thread(self._workers, self._work, number, name="worker-")
        return future

    def post(self, function: Callable[..., None], *args: object) -> None:
        """Have the owner call a function, in the order of the posts. Called by workers."""
        self._posts.append((function, args))
        self.wake()

    def drain(self) -> None:
        """Handle the messages and results that are queued now. Called on the owner thread.

        Results that arrive meanwhile wait for the next `drain`; the workers wake the owner again
        for it. Otherwise busy workers could keep the owner from its other duties.
        """
        posts = self._posts
        for _ in range(len(posts)):
            function, args = posts.popleft()
            function(*args)

    def close(self, patience_s: float) -> bool:
        """End the workers; return false if one is still stuck in a call after `patience_s`.

        A stuck worker is a daemon thread and ends with the process.
        """
        for _ in self._workers:
            self._calls.put(None)
        until_s = time.monotonic() + patience_s
        for worker in self._workers:
            worker.join(max(0.0, until_s - time.monotonic()))
        stuck = any(worker.is_alive() for worker in self._workers)
        self._workers.clear()
        return not stuck

    def _work(self, number: int) -> None:
        self._local.number = number
        while (call := self._calls.get()) is not None:
            future, function, args = call
            value, error = None, None
            try:
                value = function(*args)
            except BaseException as exception:  # the owner decides how to handle it
                error = exception
            self.post(self._settle, future, value, error)
            del call, future, function, args, value, error

    def _settle(self, future: PoolFuture[T], value: T | None, error: BaseException | None) -> None:
        self.in_flight -= 1
        future.settle(value, error)


class Overlap:
    """Helper threads that process up to `threads` parts of a range at once, with the caller."""

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError("threads must be at least 1")
        self.threads: int = threads
        self._calls: _Calls = SimpleQueue()
        self._done: _Done = SimpleQueue()
        self._helpers: list[threading.Thread] = []
        weakref.finalize(self, _end, self._helpers, self._calls).atexit = False

    def run(self, function: RangeFunction, start: int, stop: int) -> None:
        """Call the function for each part of the range; raise the first exception of any part."""
        parts = min(self.threads, stop - start)
        while len(self._helpers) < parts - 1:
            if not start_thread(self._helpers, _help, self._calls, self._done, name=HELPER_PREFIX):
                self.threads = parts = len(self._helpers) + 1
        if parts <= 1:
            function(start, stop)
            return
        edges = [start + (stop - start) * number // parts for number in range(parts + 1)]
        for first, last in pairwise(edges[1:]):
            self._calls.put((function, first, last))
        try:
            function(edges[0], edges[1])
        finally:
            errors = [self._done.get() for _ in range(parts - 1)]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """End the helper threads, without waiting for one that is stuck."""
        _end(self._helpers, self._calls)


def _end(helpers: list[threading.Thread], calls: _Calls) -> None:
    for _ in helpers:
        calls.put(None)
    helpers.clear()


def _help(calls: _Calls, done: _Done) -> None:
    while (call := calls.get()) is not None:
        done.put(_error_of(*call))
        del call  # the function may reference the `Overlap`, which would never be collected


def _error_of(function: RangeFunction, start: int, stop: int) -> BaseException | None:
    try:
        function(start, stop)
    except BaseException as error:  # raised by `run`
        return error
    return None
