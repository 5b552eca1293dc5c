"""Futures with continuations, and what is made of several of them.

A `Future` is the outcome of an operation that may not have ended yet. It can be
waited for (`result`), awaited by asyncio, and continued: ``future.then(fn)`` is
the future of what ``fn(future)`` returns, once `future` has ended, well or not.
A continuation that returns a future is continued by that one. `when_all`,
`when_any` and `dataflow` are of several futures. These are the shapes of HPX,
which PXFS (Snyder 2013; Yang et al. 2013) is built on.

Continuations never run where the operation ran: they are handed to a runner,
which a scheduler gives its futures, so that computing does not hold up I/O.

A future is settled once. Whoever comes second, be it the operation's own late
end, is told so, and has to tidy up what it brought.
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
"""Has a function called soon, somewhere else."""


class Cancelled(Exception):
    """The operation was cancelled before it had an outcome."""


_lock = threading.Lock()  # for all: it is held for some instructions only
_here = threading.local()


def _call_each(callbacks: Iterable[Callable[[], object]]) -> None:
    """Call them, and then what they have called here in turn.

    One in another they would be too deep: a loop of continuations is a chain of futures as long.
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
    """The outcome of an operation, once it has one. May be used by any thread."""

    __slots__ = ("_abort", "_callbacks", "_done", "_error", "_event", "_runner", "_value")

    def __init__(self, runner: Runner, abort: Callable[[], object] | None = None) -> None:
        """`abort` is told when the future is cancelled, to save what work it can."""
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
        """Whether there is an outcome."""
        return self._done

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return isinstance(self._error, Cancelled)

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the value; the operation's exception is raised.

        TimeoutError if there is none after `timeout_s`; the operation goes on.
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
        """Wait; the exception of the operation, None if it went well. TimeoutError as `result`."""
        try:
            self.result(timeout_s)
        except BaseException:
            if not self._done:
                raise
        return self._error

    def settle(self, value: T | None, error: BaseException | None = None) -> bool:
        """The outcome, from whoever has it; false if there was one already."""
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
        """Give up waiting for it; false if there is an outcome.

        An operation that has not begun never does. One that is in the kernel
        can't be taken back: it ends, and what it made or opened is undone.
        """
        return self.give_up(Cancelled())

    def give_up(self, error: BaseException) -> bool:
        """As `cancel`, with an error of one's own as the outcome."""
        return self._end(None, error, abort=True)

    def _when_done(self, callback: Callable[[], object]) -> None:
        """Call back once settled: on the thread that settles it, so only briefly."""
        with _lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()

    # ---- what follows ----------------------------------------------------------

    def then(self, function: Callable[[Future[T]], U | Future[U]]) -> Future[U]:
        """The future of what `function` makes of this one, when it has ended."""
        after: Future[U] = Future(self._runner)

        def go_on() -> None:
            if after.done:
                return  # cancelled
            try:
                value = function(self)
            except BaseException as error:
                after.settle(None, error)
            else:
                _follow(after, value)

        self._when_done(lambda: self._runner(go_on))
        return after

    def __await__(self) -> Generator[Any, None, T]:
        """Await it in asyncio; to cancel the task cancels the operation."""
        import asyncio

        loop = asyncio.get_running_loop()
        mirror: asyncio.Future[T] = loop.create_future()

        def reflect() -> None:
            if mirror.done():
                return
            if self.cancelled:
                mirror.cancel()
            elif isinstance(self._error, StopIteration):  # which would end a coroutine
                error = RuntimeError("the operation raised StopIteration")
                error.__cause__ = self._error
                mirror.set_exception(error)
            elif self._error is not None:
                mirror.set_exception(self._error)
            else:
                mirror.set_result(self._value)  # type: ignore[arg-type]

        self._when_done(lambda: _post(loop, reflect))
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


def _follow(after: Future[U], value: U | Future[U]) -> None:
    """Settle a future by a value, or by what another one comes to."""
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
    inner._when_done(lambda: after.settle(inner._value, inner._error))


def _now(function: Callable[[], None]) -> None:
    function()


def ready(value: T, runner: Runner = _now) -> Future[T]:
    """A future that has its value."""
    future: Future[T] = Future(runner)
    future.settle(value)
    return future


def when_all(futures: Iterable[Future[Any]]) -> Future[list[Future[Any]]]:
    """The futures, as soon as all of them have ended, well or not; a cancel cancels them all."""
    waited = list(futures)

    def abort() -> None:
        for each in waited:
            each.cancel()

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

    for each in waited:
        each._when_done(count)
    return whole


def when_any(futures: Sequence[Future[Any]]) -> Future[int]:
    """The number of the first one to end. ValueError if there are none. The others go on."""
    if not futures:
        raise ValueError("of no futures none is the first")
    first: Future[int] = Future(futures[0]._runner)
    for number, each in enumerate(futures):
        each._when_done(partial(first.settle, number))
    return first


def dataflow(function: Callable[..., U | Future[U]], *arguments: Any) -> Future[U]:
    """The future of the function of these, of futures the values, once all of them are known.

    The exception of the first argument that has one becomes the outcome, and
    the function is not called.
    """
    futures = [each for each in arguments if isinstance(each, Future)]

    def call(_all: Future[list[Future[Any]]]) -> U | Future[U]:
        values = [each.result() if isinstance(each, Future) else each for each in arguments]
        return function(*values)

    return when_all(futures).then(call)
