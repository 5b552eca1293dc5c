"""Calls on files that may hang: each is made by a thread of its own, and given up after a time.

A call that a dead server never answers holds its thread in the kernel, where nothing can end it:
not a signal, often not even SIGKILL. So with a time limit the worker does not make such calls
itself. It has a helper, hands the call over and waits for the answer. If none comes in time the
call fails as one that timed out, the entry is named as any other that failed, and the worker goes
on with a new helper; the old one stays behind until the system answers, and what it then returns
is dropped.

While a limit holds the functions of `os` that ask a file system are replaced by ones that do this,
for the worker threads of the process, and for names that are looked up before there are any. All
tools that read come to files by these functions. Their twins in Python replace the native functions
(`pcircle.fs.stats.within_limit`), since these call `os`. What is read goes through memory of the
helper's own, so that an answer that comes late is written nowhere else. This costs some 20 µs a
call, and without a limit nothing.
"""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any

from pcircle.buffers import aligned
from pcircle.errors import StoppedEarly
from pcircle.workers.starting import HELPER, Limit, begin

_BY_WORKERS = (
    *("access", "close", "fstat", "getxattr", "listdir", "listxattr", "lseek", "posix_fadvise"),
)
_BY_ALL = ("stat", "lstat", "readlink")
MAX_LOST = 256
"""How many calls of a process may hang before it stops: each holds a thread."""

_SLICES = 8  # of a limit: while the process is stopped one of them ends at the most
_ENTRIES = 256  # of a directory at a time
_STARTED = ("worker-", HELPER)  # the names of threads that work on files
_NAME = HELPER + "deadline-"


class _Lost(TimeoutError):
    """No answer came in time; a file system may say itself that a call has timed out."""


class _Helper:
    """A thread that makes calls for another one, one at a time."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., Any], Any, Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_lost = False
        if not begin([], self._work, name=_NAME):
            raise StoppedEarly("this process may have no more threads (ulimit -u)")
        self.memory = aligned(0x1000)

    def call(self, limit_s: float, function: Callable[..., Any], args: Any, options: Any) -> Any:
        """What a call returns or raises; `_Lost` after the limit: it is lost then."""
        self._calls.put((function, args, options))
        try:
            value, error = self._answer(limit_s)
        except Empty:
            with self._lock:
                self._is_lost = self._answers.empty()
            if self._is_lost:
                text = f"no answer within {limit_s:g} s"
                raise _Lost(errno.ETIMEDOUT, text) from None
            value, error = self._answers.get()
        if error is not None:
            raise error
        return value

    def _answer(self, limit_s: float) -> tuple[Any, BaseException | None]:
        """The answer. Empty if none comes in time: a process that was stopped has lost none."""
        for _ in range(_SLICES - 1):
            try:
                return self._answers.get(timeout=limit_s / _SLICES)
            except Empty:
                pass  # one slice of the time is over
        return self._answers.get(timeout=limit_s / _SLICES)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            with self._lock:
                if (
                    self._is_lost
                ):  # on a busy machine, before it began: a descriptor may be another's
                    return
            function, args, options = call
            value: Any = None
            error: BaseException | None = None
            try:
                value = function(*args, **options)
            except BaseException as caught:  # it is the other thread's
                error = caught
            with self._lock:
                if self._is_lost:
                    if function is _OPEN and error is None:
                        _CLOSE(value)
                    return
                self._answers.put((value, error))
            del call, function, args, options, value, error


_OPEN, _CLOSE, _SCANDIR, _PREADV, _READV = os.open, os.close, os.scandir, os.preadv, os.readv
_OWN = threading.local()


def _is_worker() -> bool:
    known: bool | None = getattr(_OWN, "is_worker", None)
    if known is None:
        name = threading.current_thread().name
        known = name.startswith(_STARTED) and not name.startswith(_NAME)
        _OWN.is_worker = known
    return known


def _is_helper() -> bool:
    return threading.current_thread().name.startswith(_NAME)


def _helper() -> _Helper:
    helper: _Helper | None = getattr(_OWN, "helper", None)
    if helper is None:
        helper = _OWN.helper = _Helper()
    return helper


def _call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Have a call made within the limit."""
    limit_s = Limit.limit_s
    if limit_s is None:
        return function(*args, **options)
    try:
        return _helper().call(limit_s, function, args, options)
    except _Lost:
        _OWN.helper = None
        Limit.lost += 1
        if Limit.lost > MAX_LOST:
            text = f"{MAX_LOST} operations do not return (--op-timeout)"
            raise StoppedEarly(f"the file system does not answer: {text}") from None
        raise


def _replaced(function: Callable[..., Any], *, always: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def replaced(*args: Any, **options: Any) -> Any:
        if _is_worker() or (always and not _is_helper()):
            return _call(function, *args, **options)
        return function(*args, **options)

    return replaced


def timed(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that asks a file system: on a worker within the limit, if one holds."""
    return _call(function, *args) if _is_worker() else function(*args)


class _Scan:
    """A scan of a directory whose entries are fetched within the limit, some at a time.

    One that was given up is never closed: the kernel is still at it.
    """

    def __init__(self, *args: Any) -> None:
        self._scan: Any = _call(_SCANDIR, *args)
        self._some: list[Any] = []
        self._is_lost = False

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """As of `os.scandir`."""
        if not self._is_lost:
            _call(self._scan.close)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._some:
            try:
                self._some = _call(_some_of, self._scan)[::-1]
            except _Lost:
                self._is_lost = True
                raise
            if not self._some:
                raise StopIteration
        return self._some.pop()


def _some_of(scan: Any) -> list[Any]:
    """The next entries of a scan, with their kinds, which may have to be asked for."""
    some = list(islice(scan, _ENTRIES))
    for entry in some:
        with suppress(OSError):
            entry.is_dir(follow_symlinks=False)
    return some


def _scandir(*args: Any) -> Any:
    return _Scan(*args) if _is_worker() else _SCANDIR(*args)


def _readv(fd: int, buffers: Any, *, offset: int | None = None) -> int:
    """As os.readv and os.preadv, by way of the helper's memory."""
    wanted = sum(memoryview(buffer).nbytes for buffer in buffers)
    helper = _helper()
    if len(helper.memory) < wanted:
        helper.memory = aligned(wanted)
    own = helper.memory[:wanted]
    function, args = (_READV, ()) if offset is None else (_PREADV, (offset,))
    count: int = _call(function, fd, [own], *args)
    begin_ = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        size = min(len(view), count - begin_)
        view[:size] = own[begin_ : begin_ + size]
        begin_ += size
    return count


def _worker_readv(fd: int, buffers: Any) -> int:
    return _readv(fd, buffers) if _is_worker() else _READV(fd, buffers)


def _worker_preadv(fd: int, buffers: Any, offset: int, *flags: int) -> int:
    if _is_worker() and not flags:
        return _readv(fd, buffers, offset=offset)
    return _PREADV(fd, buffers, offset, *flags)


def _open(*args: Any, **options: Any) -> int:
    made: int = _call(_OPEN, *args, **options) if _is_worker() else _OPEN(*args, **options)
    return made


@contextmanager
def limited(limit_s: float | None) -> Iterator[None]:
    """While entered, calls of this process on files end within the limit; None: no limit."""
    if limit_s is None:
        yield
        return
    changed: dict[str, Any] = {
        name: _replaced(getattr(os, name), always=name in _BY_ALL)
        for name in (*_BY_WORKERS, *_BY_ALL)
    }
    changed |= {"open": _open, "scandir": _scandir}
    changed |= {"readv": _worker_readv, "preadv": _worker_preadv}
    former = {name: getattr(os, name) for name in changed}
    Limit.limit_s, Limit.lost = limit_s, 0
    try:
        for name, function in changed.items():
            setattr(os, name, function)
        yield
    finally:
        for name, function in former.items():
            setattr(os, name, function)
        Limit.limit_s = None
