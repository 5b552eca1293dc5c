"""A pool of worker threads whose results are handled by one owner thread.

A rank's main thread must answer requests for work at any moment, so it never touches a file: it
submits the work here and continues. Results, and messages that workers send meanwhile, are queued;
the owner handles them when it calls `drain`, and `wake` tells it that there are some. So no state
of the owner is ever touched by two threads, and nothing above this module needs a lock.

Threads are for waiting, not for computing: under the interpreter lock two busy workers are slower
than one. `threads` may change at any time.

`concurrent.futures` differs in three ways that matter: its threads are joined at exit, so a read
that hangs forever hangs the process; its callbacks run on the worker; and a call costs twice as
much.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from pcircle.workers.starting import begin_first

T = TypeVar("T")


class Future(Generic[T]):
    """The outcome of a call, once it has ended. Belongs to the pool's owner thread."""

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], None]] = []

    def result(self) -> T:
        """The call's value; raises its exception, RuntimeError if it has not ended."""
        if not self.done:
            raise RuntimeError("the call has not ended yet")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def error(self) -> BaseException | None:
        """The exception that the call raised, if any."""
        return self._error

    def then(self, callback: Callable[[Future[T]], None]) -> None:
        """Call back on the owner thread when the call has ended; at once if it has."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def settle(self, value: T | None, error: BaseException | None) -> None:
        """Set the outcome; only the pool calls this."""
        self._value = value
        self._error = error
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


class Pool:
    """Up to `threads` workers, started as calls come."""

    def __init__(self, wake: Callable[[], None], threads: int = 1) -> None:
        if threads < 1:
            raise ValueError("a pool has at least one thread")
        self.threads = threads
        self.in_flight = 0
        self.wake = wake
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = (
            SimpleQueue()
        )
        self._said: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._workers: list[threading.Thread] = []
        self._here = threading.local()

    @property
    def number(self) -> int:
        """On a worker: its number, from 0."""
        return self._here.number  # type: ignore[no-any-return]

    @property
    def native_ids(self) -> list[int | None]:
        """The workers' thread ids, as the kernel knows them."""
        return [worker.native_id for worker in self._workers]

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call the function on a worker; takes constant time."""
        future: Future[T] = Future()
        self.in_flight += 1
        self._calls.put((future, function, args))
        if len(self._workers) < min(self.threads, self.in_flight):
            number = len(self._workers)
            begin_first(self._workers, self._work, number, name="worker-")
        return future

    def say(self, function: Callable[..., None], *args: Any) -> None:
        """On a worker: have the owner call the function; calls keep their order."""
        self._said.append((function, args))
        self.wake()

    def drain(self) -> None:
        """On the owner thread: handle the messages and results that are queued now.

        What comes meanwhile waits for the next call, for which the workers wake the owner: busy
        workers must not keep it from everything else.
        """
        said = self._said
        for _ in range(len(said)):
            function, args = said.popleft()
            function(*args)

    def close(self, patience_s: float) -> bool:
        """End the workers; false if one is still stuck in a call after `patience_s`.

        A stuck worker is a daemon and ends with the process.
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
        self._here.number = number
        while (call := self._calls.get()) is not None:
            future, function, args = call
            value, error = None, None
            try:
                value = function(*args)
            except BaseException as caught:  # the owner decides what it means
                error = caught
            self.say(self._settle, future, value, error)
            del call, future, function, args, value, error

    def _settle(self, future: Future[Any], value: Any, error: BaseException | None) -> None:
        self.in_flight -= 1
        future.settle(value, error)
