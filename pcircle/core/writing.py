"""Writing all of it: what everybody uses who writes to a descriptor.

A kernel may take less than it is given, and the rest is written by another call. A file system's
server may even take nothing, and give no reason: to try again might have no end, and to go on would
lose what was to be written, so that is an error.
"""

from __future__ import annotations

import errno
import io
import os
from contextlib import suppress
from typing import IO, Any

__all__ = [
    "WholeFile",
    "close_new",
    "discard",
    "is_left",
    "left",
    "write_all",
    "write_at",
    "write_stream",
]


def left(data: Any, written: int) -> memoryview:
    """What is still to be written when a call has taken so many bytes. OSError if none were."""
    if not written:
        raise OSError(errno.ENOSPC, "no more data could be written")
    return memoryview(data).cast("B")[written:]


def write_all(fd: int, data: Any) -> int:
    """Write all of a buffer at the file's position; how many bytes. OSError."""
    size = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
    written = os.write(fd, data)
    missing = size - written
    while missing:
        data = left(data, written)
        written = os.write(fd, data)
        missing -= written
    return size


def write_at(fd: int, data: Any, offset: int) -> int:
    """Write all of a buffer at an offset; how many bytes. OSError."""
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
    """A file under a buffered writer, which would try again for ever where nothing is taken."""

    def write(self, data: Any) -> int:
        written = super().write(data)
        if memoryview(data).nbytes:
            left(data, written)
        return written


def discard(file: IO[Any]) -> None:
    """Close a temporary file that nobody reads any more, whatever it still has to write."""
    with suppress(OSError):
        file.close()


def close_new(fd: int, path: bytes) -> None:
    """Close a file that was just created; remove it if that fails. OSError."""
    try:
        os.close(fd)
    except OSError:
        with suppress(OSError):  # the first error is the one to report
            os.unlink(path)
        raise


def is_left(error: OSError) -> bool:
    """Whether the reader of a pipe has gone, as head does when it has what it wanted."""
    return error.errno == errno.EPIPE


def write_stream(stream: IO[Any] | None, data: bytes) -> None:
    """Write a result to a standard stream, past its buffer. OSError.

    The stream is None where the process was started without the descriptor. One without a
    descriptor (StringIO, a notebook's) is written as it is.
    """
    if stream is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    stream.flush()  # what others printed to it comes first
    try:
        fd = stream.fileno()
    except io.UnsupportedOperation:
        binary = isinstance(stream, io.RawIOBase | io.BufferedIOBase)
        stream.write(data if binary else data.decode())
        return
    write_all(fd, data)
