"""Futures with continuations, and functions that combine several futures.

A `Future` represents the outcome of an operation that may not have ended yet. A caller can wait for
the outcome (`result`), await it in asyncio, or continue with it: ``future.then(fn)`` calls
``fn(future)`` when `future` has ended, with a value or an error, and is the future of the returned
value. If the continuation returns a future, that future's outcome is used. `when_all`, `when_any`
and `dataflow` combine several futures. These names come from HPX, on which PXFS is built (Snyder
2013; Yang et al. 2014).

Continuations run on a thread of their own, so that computing does not delay I/O. The scheduler
gives its futures a runner that queues continuations for that thread. Only after the scheduler was
closed do they run on the thread that settles the future.

A future is settled only once. `settle` returns False to later callers, such as an operation that
ends after it was cancelled; they must undo their work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
U = TypeVar("U")

Runner = Callable[[Callable[[], None]], None]
"""Schedules a call of a function, normally on another thread."""


class Cancelled(Exception):
    """An operation was cancelled before it had an outcome."""


_lock = threading.Lock()  # shared by all futures, because it is held only for a few instructions
_here = threading.local()


def _call_each(callbacks: Iterable[Callable[[], object]]) -> None:
    """Call the callbacks, and then the callbacks that they trigger on this thread.

    Triggered callbacks are queued, because a loop of continuations forms a long chain of futures,
    and nested calls would exceed the recursion limit.
    """
    waiting: deque[Callable[[], object]] | None = getattr(_here, "waiting", None)
    if waiting is not None:
        waiting.extend(callbacks)
        return
    waiting = _here.waiting = deque(callbacks)
    try:
        while waiting:
            waiting.popleft()()
    finally:
        _here.waiting = None


class Future(Generic[T]):
    """The outcome of an operation that may not have ended yet. Safe to use from any thread."""

    __slots__ = ("_abort", "_callbacks", "_done", "_error", "_event", "_runner", "_value")

    def __init__(self, runner: Runner, abort: Callable[[], object] | None = None) -> None:
        """Create a pending future; `abort` is called when it is cancelled."""
        self._runner = runner
        self._abort = abort
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._event: threading.Event | None = None

    # ---- its state -------------------------------------------------------------

    @property
    def done(self) -> bool:
        """True if the future has an outcome."""
        return self._done

    @property
    def cancelled(self) -> bool:
        """True if the future was cancelled."""
        return isinstance(self._error, Cancelled)

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the value and return it, or raise the operation's exception.

        Raises TimeoutError if there is no outcome after `timeout_s`; the operation continues.
        """
        if not self._done:
            with _lock:
                if self._event is None:
                    self._event = threading.Event()
                    if self._done:
                        self._event.set()
                event = self._event
            if not event.wait(timeout_s):
                raise TimeoutError(f"no outcome after {timeout_s} s")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def error(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait for the outcome; return the operation's exception, or None if it succeeded.

        Raises TimeoutError like `result`.
        """
        try:
            self.result(timeout_s)
        except BaseException:
            if not self._done:
                raise
        return self._error

    def settle(self, value: T | None, error: BaseException | None = None) -> bool:
        """Set the outcome; return False if it was already set."""
        return self._end(value, error, abort=False)

    def _end(self, value: T | None, error: BaseException | None, *, abort: bool) -> bool:
        with _lock:
            if self._done:
                return False
            self._value, self._error = value, error
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
            event, aborting, self._abort = self._event, self._abort, None
        if event is not None:
            event.set()
        if abort and aborting is not None:
            callbacks.append(aborting)
        if callbacks:
            _call_each(callbacks)
        return True

    def cancel(self) -> bool:
        """Cancel the operation; return False if it already has an outcome.

        An operation that has not started is not executed. A call in progress cannot be stopped.
        When it ends, a file that it opened is closed and a name that it created is removed; its
        other effects remain. A composite operation ends at its next step.
        """
        return self._end(None, Cancelled(), abort=True)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback`, which must be brief, when the future is settled.

        The callback runs on the thread that settles the future or, if the future is already
        settled, on this thread.
        """
        with _lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()

    # ---- continuations ---------------------------------------------------------

    def then(self, function: Callable[[Future[T]], U | Future[U]]) -> Future[U]:
        """Call ``function(self)`` when this future has ended; return the future of its value."""
        after: Future[U] = Future(self._runner)

        def go_on() -> None:
            if after.done:
                return  # cancelled
            try:
                value = function(self)
            except BaseException as error:
                after.settle(None, error)
            else:
                follow(after, value)

        self.when_done(lambda: self._runner(go_on))
        return after

    def __await__(self) -> Generator[Any, None, T]:
        """Await the future in asyncio; cancelling the task cancels the operation."""
        import asyncio

        loop = asyncio.get_running_loop()
        mirror: asyncio.Future[T] = loop.create_future()

        def reflect() -> None:
            if mirror.done():
                return
            if self.cancelled:
                mirror.cancel()
            elif isinstance(self._error, StopIteration):  # would end a coroutine
                error = RuntimeError("the operation raised StopIteration")
                error.__cause__ = self._error
                mirror.set_exception(error)
            elif self._error is not None:
                mirror.set_exception(self._error)
            else:
                mirror.set_result(self._value)  # type: ignore[arg-type]

        self.when_done(lambda: _post(loop, reflect))
        try:
            return (yield from mirror.__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise


def _post(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        if not loop.is_closed():
            raise


def follow(after: Future[U], value: U | Future[U]) -> None:
    """Settle a future with a value, or with the outcome of another future."""
    if not isinstance(value, Future):
        after.settle(value)
        return
    inner = value
    with _lock:
        done = after._done
        if not done:
            after._abort = inner.cancel
    if done:
        inner.cancel()
    inner.when_done(lambda: after.settle(inner._value, inner._error))


def _now(function: Callable[[], None]) -> None:
    function()


def when_all(futures: Iterable[Future[Any]]) -> Future[list[Future[Any]]]:
    """Return a future that ends, with the list of futures, when all of them have ended.

    Cancelling it cancels all of them.
    """
    waited = list(futures)

    def abort() -> None:
        for future in waited:
            future.cancel()

    whole: Future[list[Future[Any]]] = Future(waited[0]._runner if waited else _now, abort)
    left = len(waited)
    if not left:
        whole.settle([])

    def count() -> None:
        nonlocal left
        with _lock:
            left -= 1
            last = left == 0
        if last:
            whole.settle(waited)

    for future in waited:
        future.when_done(count)
    return whole


def when_any(futures: Sequence[Future[Any]]) -> Future[int]:
    """Return a future of the index of the first future that ends; the others continue.

    Raises ValueError if the sequence is empty.
    """
    if not futures:
        raise ValueError("when_any requires at least one future")
    first: Future[int] = Future(futures[0]._runner)
    for number, future in enumerate(futures):
        future.when_done(partial(first.settle, number))
    return first


def dataflow(function: Callable[..., U | Future[U]], *arguments: object) -> Future[U]:
    """Call `function` with the values of its arguments once all futures among them have ended.

    Return the future of its value. If arguments fail, the function is not called, and the future
    fails with the exception of the first failed argument.
    """
    futures = [argument for argument in arguments if isinstance(argument, Future)]

    def call(_all: Future[list[Future[Any]]]) -> U | Future[U]:
        values = [
            argument.result() if isinstance(argument, Future) else argument
            for argument in arguments
        ]
        return function(*values)

    return when_all(futures).then(call)
