"""Semaphores, barriers and events between continuations.

ParalleX, the execution model of HPX and PXFS, calls these local control objects. All continuations
share one thread, so a continuation that blocked would delay all others. So each wait is a future
here: a continuation returns it, or continues it with `then`.

A mutex is a semaphore with one permit. A condition variable is an event, or a pending future of
`Scheduler.future`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, overload

from pcircle.aio.futures import Future, follow
from pcircle.aio.scheduler import Scheduler

T = TypeVar("T")


class Semaphore:
    """Limits how many operations, or chains of operations, are in progress at a time.

    >>> limit = Semaphore(io, 4)
    >>> copies = [limit.run(lambda name=name: io.copy_file(name, name + ".bak")) for name in names]
    """

    def __init__(self, scheduler: Scheduler, permits: int) -> None:
        if permits < 1:
            raise ValueError("permits must be at least 1")
        self._scheduler = scheduler
        self._permits = permits
        self._waiting: dict[Future[None], None] = {}  # the oldest first
        self._lock = threading.Lock()

    def acquire(self) -> Future[None]:
        """Return a future that ends when the caller gets a permit; the longest wait comes first.

        If the future ends without an exception, the caller must call `release`. Cancelling the
        future abandons the wait.
        """
        permit: Future[None] = self._scheduler.future(lambda: self._forget(permit))
        with self._lock:
            is_free = self._permits > 0
            if is_free:
                self._permits -= 1
            else:
                self._waiting[permit] = None
        if is_free:
            permit.settle(None)
        return permit

    def release(self) -> None:
        """Return a permit; the longest wait, if any, receives it."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._permits += 1
                    return
                permit = next(iter(self._waiting))
                del self._waiting[permit]
            if permit.settle(None):  # not if the wait was cancelled
                return

    def _forget(self, permit: Future[None]) -> None:
        with self._lock:
            self._waiting.pop(permit, None)

    @overload
    def run(self, start: Callable[[], Future[T]]) -> Future[T]: ...
    @overload
    def run(self, start: Callable[[], T]) -> Future[T]: ...
    def run(self, start: Callable[[], T | Future[T]]) -> Future[T]:
        """Call `start` once a permit is available; return the future of its value.

        If `start` returns a future, that future's outcome is used, and the permit is returned when
        it ends, even with an error. `start` runs as a continuation. It is not called if the
        returned future is cancelled first.
        """
        permit = self.acquire()
        outcome: Future[T] = self._scheduler.future(permit.cancel)

        def begin(_permit: Future[None]) -> None:
            if permit.cancelled:
                return
            if outcome.done:  # cancelled after the permit was granted
                self.release()
                return
            try:
                value = start()
            except BaseException as error:
                self.release()
                outcome.settle(None, error)
                return
            if isinstance(value, Future):
                value.when_done(self.release)
            else:
                self.release()
            follow(outcome, value)

        permit.then(begin)
        return outcome


class Barrier:
    """Makes parties wait for each other; once all have arrived, the barrier can be used again."""

    def __init__(self, scheduler: Scheduler, parties: int) -> None:
        if parties < 1:
            raise ValueError("parties must be at least 1")
        self._scheduler = scheduler
        self._parties = parties
        self._arrived: list[Future[int]] = []
        self._lock = threading.Lock()

    def arrive(self) -> Future[int]:
        """Return a future that ends when the last party arrives; its value numbers this arrival.

        The first arrival has number 0. An arrival counts even if its future is cancelled.
        """
        future: Future[int] = self._scheduler.future()
        complete: list[Future[int]] = []
        with self._lock:
            self._arrived.append(future)
            if len(self._arrived) == self._parties:
                complete, self._arrived = self._arrived, complete
        for number, arrival in enumerate(complete):
            arrival.settle(number)
        return future


class Event:
    """Lets continuations wait until `set` is called; `clear` resets it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._waiting: dict[Future[None], None] = {}
        self._lock = threading.Lock()

    def is_set(self) -> bool:
        """Return whether `set` was called since the last `clear`."""
        return self._is_set

    def wait(self) -> Future[None]:
        """Return a future that ends when the event is set, or at once if it is."""
        future: Future[None] = self._scheduler.future(lambda: self._forget(future))
        with self._lock:
            is_set = self._is_set
            if not is_set:
                self._waiting[future] = None
        if is_set:
            future.settle(None)
        return future

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting.pop(future, None)

    def set(self) -> None:
        """Set the event and end all pending waits."""
        with self._lock:
            self._is_set = True
            ended, self._waiting = list(self._waiting), {}
        for future in ended:
            future.settle(None)

    def clear(self) -> None:
        """Reset the event, so that later waits last until the next `set`."""
        with self._lock:
            self._is_set = False
