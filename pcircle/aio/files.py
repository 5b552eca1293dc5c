"""A scheduler whose methods submit file operations and return futures at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

from pcircle.aio import composite, operations
from pcircle.aio.futures import Future
from pcircle.aio.operations import Operation
from pcircle.aio.scheduler import Composite, Scheduler

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    make: Callable[P, Operation[T] | Composite[T]],
) -> Callable[Concatenate[Scheduler, P], Future[T]]:
    def submit(self: Scheduler, /, *arguments: P.args, **keywords: P.kwargs) -> Future[T]:
        return self.submit(make(*arguments, **keywords))

    submit.__name__ = submit.__qualname__ = make.__name__
    submit.__doc__ = make.__doc__
    return submit


class Files(Scheduler):
    """A scheduler with a method for most functions of `operations` and `composite`.

    The method for `operations.close` is `close_fd`, because `close` closes the scheduler.

    >>> with Files() as io:
    ...     size = io.open("/etc/hostname").then(lambda fd: io.fstat(fd.result()))
    ...     print(size.result().st_size)
    """

    open: Final = _method(operations.open)
    creat: Final = _method(operations.creat)
    close_fd: Final = _method(operations.close)
    read: Final = _method(operations.read)
    pread: Final = _method(operations.pread)
    readv: Final = _method(operations.readv)
    write: Final = _method(operations.write)
    pwrite: Final = _method(operations.pwrite)
    writev: Final = _method(operations.writev)
    lseek: Final = _method(operations.lseek)
    seek_hole: Final = _method(operations.seek_hole)
    seek_data: Final = _method(operations.seek_data)
    ftruncate: Final = _method(operations.ftruncate)
    truncate: Final = _method(operations.truncate)
    fallocate: Final = _method(operations.fallocate)
    fsync: Final = _method(operations.fsync)
    copy_file_range: Final = _method(operations.copy_file_range)
    fstat: Final = _method(operations.fstat)
    stat: Final = _method(operations.stat)
    lstat: Final = _method(operations.lstat)
    stats: Final = _method(operations.stats)
    fchown: Final = _method(operations.fchown)
    fchmod: Final = _method(operations.fchmod)
    utimens: Final = _method(operations.utimens)
    listxattr: Final = _method(operations.listxattr)
    getxattr: Final = _method(operations.getxattr)
    setxattr: Final = _method(operations.setxattr)
    readdir: Final = _method(operations.readdir)
    unlink: Final = _method(operations.unlink)
    rename: Final = _method(operations.rename)
    link: Final = _method(operations.link)
    symlink: Final = _method(operations.symlink)
    mknod: Final = _method(operations.mknod)
    mkdir: Final = _method(operations.mkdir)
    rmdir: Final = _method(operations.rmdir)
    read_file: Final = _method(composite.read_file)
    write_file: Final = _method(composite.write_file)
    copy_file: Final = _method(composite.copy_file)
    make_path: Final = _method(composite.make_path)
