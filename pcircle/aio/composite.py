"""Composite operations: several steps that are submitted as one operation.

Each is a generator of operations; `yield` returns the result of a step or raises its error. After a
failure, a cancellation or a deadline, the steps in the generator's `finally` and `except` blocks
still run, to close descriptors and remove temporary files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pcircle.aio import operations as ops
from pcircle.aio.operations import Operation, Path
from pcircle.core.buffers import aligned

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Steps = Generator[Operation[Any], Any, Any]

_BUFFER_BYTES = 1 << 20
_NOT_HERE = (
    *(errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ETXTBSY),
    errno.EPERM,  # in containers that refuse unknown calls
)


def read_file(path: Path) -> Generator[Operation[Any], Any, bytes]:
    """Return the content of a file. Raises OSError."""
    fd = yield ops.open(path)
    try:
        parts = []
        while part := (yield ops.read(fd, _BUFFER_BYTES)):
            parts.append(part)
    finally:
        yield ops.close(fd)
    return b"".join(parts)


def write_file(
    path: Path, data: ReadableBuffer, *, mode: int = 0o666, sync: bool = True
) -> Generator[Operation[Any], Any, int]:
    """Replace a file atomically; return the number of bytes written. Raises OSError.

    With `sync`, the data is on disk before the file is renamed to `path`.
    """
    temporary = _beside(path)
    fd = yield ops.creat(temporary, mode)
    try:
        try:
            written: int = yield ops.write(fd, data)
            if sync:
                yield ops.fsync(fd)
        finally:
            yield ops.close(fd)
        yield ops.rename(temporary, path)
    except BaseException:
        yield from _quietly(ops.unlink(temporary))
        raise
    return written


def copy_file(source: Path, target: Path) -> Generator[Operation[Any], Any, int]:
    """Copy a regular file with its mode, ACL and times, replacing the target; return its size.

    Unlike `fcp`, it preserves no holes, owners or extended attributes. Raises OSError, or
    ValueError if the source is not a regular file.
    """
    source_fd = yield ops.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = yield ops.fstat(source_fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{source!r} is not a regular file")
        temporary = _beside(target)
        fd = yield ops.creat(temporary, 0o600)
        try:
            try:
                size = yield from _copy_data(source_fd, fd)
                # A mode without its ACL would give the group the rights in the ACL's mask.
                access = yield ops.access_list(source_fd)
                yield ops.give_access(fd, stat.S_IMODE(status.st_mode), access)
                yield ops.utimens(fd, status.st_atime_ns, status.st_mtime_ns)
            finally:
                yield ops.close(fd)
            yield ops.rename(temporary, target)
        except BaseException:
            yield from _quietly(ops.unlink(temporary))
            raise
    finally:
        yield ops.close(source_fd)
    return size


def make_path(path: Path, mode: int = 0o777) -> Generator[Operation[Any], Any, None]:
    """Create a directory and its missing parents, unless it exists. Raises OSError."""
    missing = [os.fspath(path)]
    # Not recursive, because a path may have more components than the recursion limit.
    while missing:
        directory = missing[-1]
        try:
            yield ops.mkdir(directory, mode)
        except FileNotFoundError:
            above = os.path.dirname(directory)
            if above in (directory, directory[:0]):
                raise
            missing.append(above)
            continue
        except FileExistsError:
            if not stat.S_ISDIR((yield ops.stat(directory)).st_mode):
                raise
        missing.pop()


def _copy_data(source_fd: int, target_fd: int) -> Generator[Operation[Any], Any, int]:
    """Copy within the kernel if possible, otherwise through a buffer."""
    offset = 0
    try:
        while count := (yield ops.copy_file_range(source_fd, target_fd, 1 << 30, offset, offset)):
            offset += count
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    # Needed even after a copy in the kernel: some file systems report the end of a file too early.
    buffer = aligned(_BUFFER_BYTES)
    while count := (yield ops.readv(source_fd, [buffer], offset)):
        offset += yield ops.pwrite(target_fd, buffer[:count], offset)
    return offset


def _quietly(step: Operation[Any]) -> Steps:
    with suppress(OSError):  # the original error must be reported
        yield ops.tidying(step)


def _beside(path: Path) -> Path:
    """Return a random temporary path in the directory of `path`."""
    mark = f".aio-{os.urandom(6).hex()}"
    if isinstance(path, bytes):
        return os.path.join(os.path.dirname(path), mark.encode())
    return os.path.join(os.path.dirname(path), mark)
