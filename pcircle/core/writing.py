"""Complete writes to file descriptors.

A kernel may write less than it was given, so the remainder needs another call. The server of a
network file system may even write nothing without reporting an error. This module treats that as an
error, because retrying might never end, and ignoring it would lose data.

The module also selects the streams of a tool. A command uses those of its process. If a program
calls a tool as a function, the tool uses those of its `Caller`.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Any, AnyStr, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer


def left(data: ReadableBuffer, written: int) -> memoryview:
    """Return the data that remains after a write. Raises OSError if `written` is 0."""
    if not written:
        raise OSError(errno.ENOSPC, "no more data could be written")
    return memoryview(data).cast("B")[written:]


def write_all(fd: int, data: ReadableBuffer) -> int:
    """Write a whole buffer at the current position and return its size. Raises OSError."""
    size = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
    written = os.write(fd, data)
    missing = size - written
    while missing:
        data = left(data, written)
        written = os.write(fd, data)
        missing -= written
    return size


def write_at(fd: int, data: ReadableBuffer, offset: int) -> int:
    """Write a whole buffer at an offset and return its size. Raises OSError."""
    size = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
    written = os.pwrite(fd, data, offset)
    missing = size - written
    while missing:
        data = left(data, written)
        offset += written
        written = os.pwrite(fd, data, offset)
        missing -= written
    return size


class WholeFile(io.FileIO):
    """A raw file that raises OSError if nothing was written.

    It is used for buffered writers, which would otherwise retry forever.
    """

    def write(self, data: ReadableBuffer) -> int:
        written = super().write(data)
        if memoryview(data).nbytes:
            left(data, written)
        return written


def discard(file: IO[AnyStr]) -> None:
    """Close a temporary file that is no longer needed, ignoring errors of pending writes."""
    with suppress(OSError):
        file.close()


def close_new(fd: int, path: bytes) -> None:
    """Close a file that was just created, or remove it if closing fails. Raises OSError."""
    try:
        os.close(fd)
    except OSError:
        with suppress(OSError):  # the first error is the one to report
            os.unlink(path)
        raise


def is_broken_pipe(error: OSError) -> bool:
    """Return whether the reader of a pipe has exited, as `head` does after enough lines."""
    return error.errno == errno.EPIPE


def write_stream(stream: IO[Any] | None, data: bytes) -> None:
    """Write a result to a standard stream, bypassing its buffer.

    The stream is None if the process was started without that descriptor. A stream that has no
    descriptor, such as a StringIO or the stream of a notebook, is written to directly. Raises
    OSError.
    """
    if stream is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    stream.flush()  # text printed earlier comes first
    try:
        fd = stream.fileno()
    except io.UnsupportedOperation:
        target: IO[Any] = getattr(stream, "buffer", stream)
        binary = isinstance(target, io.RawIOBase | io.BufferedIOBase)
        target.write(data if binary else data.decode())
        return
    write_all(fd, data)


class Caller(Protocol):
    """The program that called a tool as a function, with the streams that the tool uses.

    `report` is the result of the tool. `signal` is the signal that stopped the job.
    """

    output: TextIO
    errors: TextIO
    has_progress: bool
    report: Any
    signal: int | None

    def show(self, view: Any) -> None:
        """Pass on a view of the running job."""

    def watch(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Call `stop` once the program requests it; return a function that ends the watch."""
        ...


CALLER: ContextVar[Caller | None] = ContextVar("CALLER", default=None)
"""The program that called the tool; None in a command, and on ranks in other processes."""


def standard_output() -> TextIO | None:
    """Return the stream for results. It is None if the process was started without it."""
    caller = CALLER.get()
    return sys.stdout if caller is None else caller.output


def standard_error() -> TextIO | None:
    """Return the stream for messages. It is None if the process was started without it."""
    caller = CALLER.get()
    return sys.stderr if caller is None else caller.errors
