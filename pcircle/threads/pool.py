"""A pool of worker threads whose results are handled on one owner thread.

A rank's main thread must be ready to answer requests for work, so it leaves file operations to
workers: it submits them here and continues. Results, and messages that workers post meanwhile, are
queued; `wake` notifies the owner, which handles them when it calls `drain`. The state of the owner
is therefore accessed by one thread only, and needs no lock.

Threads are for waiting, not for computing, because under the interpreter lock two busy workers are
slower than one. `threads` may change at any time.

`concurrent.futures` differs in three ways that matter. Its threads are joined at exit, so a read
that hangs forever hangs the process. Its callbacks run on the worker. A call costs twice as much.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from pcircle.threads.threads import require_thread

T = TypeVar("T")


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
