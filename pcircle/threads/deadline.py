"""Limit the time of each file operation by making it on a helper thread.

A call that a dead server never answers holds its thread in the kernel, where nothing can end it: no
signal, and often not even SIGKILL. If there is a time limit, a worker therefore hands each file
operation to a helper thread and waits for the result. When the limit expires, the call fails with
ETIMEDOUT, the entry is reported like any other failure, and the worker continues with a new helper.
The old helper remains until the system call returns, and its late result is dropped.

While a limit is set, functions of `os` that access file systems are replaced by versions that apply
it to the calls of worker threads. Look-ups are limited on all threads, because some precede the
workers. Tools that read files use these functions for every access. The native functions are
replaced by their Python twins (`pcircle.fs.stats.within_limit`), which call `os`. Data is read into
the helper's own memory, so that a late result never overwrites anything else. A limit costs some 20
µs per call; without a limit there is no cost.
"""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pcircle.core.buffers import aligned
from pcircle.core.errors import StoppedEarly
from pcircle.threads.workers import HELPER_PREFIX, OperationTimeout, start_thread

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    _Call: TypeAlias = tuple[Callable[..., object], tuple[object, ...], dict[str, object]]
    _Outcome: TypeAlias = tuple[Any, BaseException | None]

T = TypeVar("T")

_WORKER_FUNCTIONS = (
    *("access", "close", "fstat", "getxattr", "listdir", "listxattr", "lseek", "posix_fadvise"),
)
_LOOK_UP_FUNCTIONS = ("stat", "lstat", "readlink")
MAX_LOST_CALLS = 256
"""The number of abandoned calls after which the process stops, because each holds a thread."""

# A wait is divided into slices, at most one of which ends while the process is suspended (SIGSTOP).
_SLICES = 8
_BATCH_ENTRIES = 256  # entries of a directory per call
_WORKER_PREFIXES = ("worker-", HELPER_PREFIX)  # of the names of threads that work on files
_NAME = HELPER_PREFIX + "deadline-"


class _TimedOutError(TimeoutError):
    """The error of an abandoned call, as opposed to an ETIMEDOUT of the file system itself."""


class _CallHelper:
    """A thread that makes calls on behalf of another thread, one at a time."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._results: SimpleQueue[_Outcome] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_lost = False
        if not start_thread([], self._work, name=_NAME):
            raise StoppedEarly("this process cannot have more threads (ulimit -u)")
        self.memory = aligned(0x1000)

    def call(
        self,
        limit_s: float,
        function: Callable[..., T],
        args: tuple[object, ...],
        options: dict[str, object],
    ) -> T:
        """Make a call and return or raise its result; raise `_TimedOutError` after the limit."""
        self._calls.put((function, args, options))
        try:
            value, error = self._wait_for_result(limit_s)
        except Empty:
            with self._lock:
                self._is_lost = self._results.empty()
            if self._is_lost:
                text = f"no response within {limit_s:g} s"
                raise _TimedOutError(errno.ETIMEDOUT, text) from None
            value, error = self._results.get()
        if error is not None:
            raise error
        result: T = value
        return result

    def _wait_for_result(self, limit_s: float) -> _Outcome:
        """Wait for the result; raise `queue.Empty` after the limit.

        The time in which the process was suspended counts as at most one slice.
        """
        for _ in range(_SLICES - 1):
            try:
                return self._results.get(timeout=limit_s / _SLICES)
            except Empty:
                pass  # one slice of the time is over
        return self._results.get(timeout=limit_s / _SLICES)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            with self._lock:
                # On a busy machine the call may have been abandoned before it started, and its
                # descriptor may have been reused.
                if self._is_lost:
                    return
            function, args, options = call
            value: Any = None
            error: BaseException | None = None
            try:
                value = function(*args, **options)
            except BaseException as exception:  # raised by `call`
                error = exception
            with self._lock:
                if self._is_lost:
                    if function is _OPEN and error is None:
                        _CLOSE(value)
                    return
                self._results.put((value, error))
            del call, function, args, options, value, error


_OPEN, _CLOSE, _SCANDIR, _PREADV, _READV = os.open, os.close, os.scandir, os.preadv, os.readv
_LOCAL = threading.local()


def _is_worker() -> bool:
    known: bool | None = getattr(_LOCAL, "is_worker", None)
    if known is None:
        name = threading.current_thread().name
        known = name.startswith(_WORKER_PREFIXES) and not name.startswith(_NAME)
        _LOCAL.is_worker = known
    return known


def _is_helper() -> bool:
    return threading.current_thread().name.startswith(_NAME)


def _helper() -> _CallHelper:
    helper: _CallHelper | None = getattr(_LOCAL, "helper", None)
    if helper is None:
        helper = _LOCAL.helper = _CallHelper()
    return helper


def _call(function: Callable[..., T], *args: object, **options: object) -> T:
    """Make a call within the limit, if one is set."""
    limit_s = OperationTimeout.limit_s
    if limit_s is None:
        return function(*args, **options)
    try:
        return _helper().call(limit_s, function, args, options)
    except _TimedOutError:
        _LOCAL.helper = None
        OperationTimeout.lost += 1
        if OperationTimeout.lost > MAX_LOST_CALLS:
            text = f"{MAX_LOST_CALLS} operations did not return (--op-timeout)"
            raise StoppedEarly(f"the file system does not respond: {text}") from None
        raise


def _with_timeout(function: Callable[..., T], *, always: bool) -> Callable[..., T]:
    @functools.wraps(function)
    def wrapper(*args: object, **options: object) -> T:
        if _is_worker() or (always and not _is_helper()):
            return _call(function, *args, **options)
        return function(*args, **options)

    return wrapper


def call_with_timeout(function: Callable[..., T], *args: object) -> T:
    """Call a function that accesses a file system. On a worker thread, the limit applies."""
    return _call(function, *args) if _is_worker() else function(*args)


class _TimedScan:
    """An `os.scandir` iterator that fetches entries in batches, each within the limit.

    After a timeout the directory is never closed, because the kernel is still using it.
    """

    def __init__(self, directory: int | str) -> None:
        self._scan = _call(_SCANDIR, directory)
        self._batch: list[os.DirEntry[str]] = []
        self._is_lost = False

    def __enter__(self) -> _TimedScan:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._is_lost:
            _call(self._scan.close)

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self

    def __next__(self) -> os.DirEntry[str]:
        if not self._batch:
            try:
                self._batch = _call(_next_batch, self._scan)[::-1]
            except _TimedOutError:
                self._is_lost = True
                raise
            if not self._batch:
                raise StopIteration
        return self._batch.pop()


def _next_batch(scan: Iterator[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Return the next entries of a scan, after looking up their types if necessary."""
    batch = list(islice(scan, _BATCH_ENTRIES))
    for entry in batch:
        with suppress(OSError):
            entry.is_dir(follow_symlinks=False)
    return batch


def _scandir(*args: Any) -> Any:
    return _TimedScan(*args) if _is_worker() else _SCANDIR(*args)


def _readv(fd: int, buffers: Sequence[WriteableBuffer], *, offset: int | None = None) -> int:
    """Read like `os.readv`, or with an offset like `os.preadv`, by way of the helper's memory."""
    length = sum(memoryview(buffer).nbytes for buffer in buffers)
    helper = _helper()
    if len(helper.memory) < length:
        helper.memory = aligned(length)
    received = helper.memory[:length]
    function, args = (_READV, ()) if offset is None else (_PREADV, (offset,))
    count: int = _call(function, fd, [received], *args)
    start = 0
    for buffer in buffers:
        target = memoryview(buffer).cast("B")
        size = min(len(target), count - start)
        target[:size] = received[start : start + size]
        start += size
    return count


def _worker_readv(fd: int, buffers: Sequence[WriteableBuffer]) -> int:
    return _readv(fd, buffers) if _is_worker() else _READV(fd, buffers)


def _worker_preadv(fd: int, buffers: Sequence[WriteableBuffer], offset: int, *flags: int) -> int:
    if _is_worker() and not flags:
        return _readv(fd, buffers, offset=offset)
    return _PREADV(fd, buffers, offset, *flags)


def _open(*args: Any, **options: Any) -> int:
    return _call(_OPEN, *args, **options) if _is_worker() else _OPEN(*args, **options)


@contextmanager
def operation_timeout(limit_s: float | None) -> Iterator[None]:
    """Limit the time of file operations while the context is active, unless `limit_s` is None."""
    if limit_s is None:
        yield
        return
    replacements: dict[str, Callable[..., object]] = {
        name: _with_timeout(getattr(os, name), always=name in _LOOK_UP_FUNCTIONS)
        for name in (*_WORKER_FUNCTIONS, *_LOOK_UP_FUNCTIONS)
    }
    replacements |= {"open": _open, "scandir": _scandir}
    replacements |= {"readv": _worker_readv, "preadv": _worker_preadv}
    original = {name: getattr(os, name) for name in replacements}
    OperationTimeout.limit_s, OperationTimeout.lost = limit_s, 0
    try:
        for name, function in replacements.items():
            setattr(os, name, function)
        yield
    finally:
        for name, function in original.items():
            setattr(os, name, function)
        OperationTimeout.limit_s = None
