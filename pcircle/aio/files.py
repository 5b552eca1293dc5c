"""A scheduler whose methods submit file operations and return futures at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

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
    """A scheduler with a method for each operation of `operations` and `composite`.

    >>> with Files() as io:
    ...     size = io.open("/etc/hostname").then(lambda fd: io.fstat(fd.result()))
    ...     print(size.result().st_size)
    """

    open = _method(operations.open)
    creat = _method(operations.creat)
    close_fd = _method(operations.close)
    read = _method(operations.read)
    pread = _method(operations.pread)
    readv = _method(operations.readv)
    write = _method(operations.write)
    pwrite = _method(operations.pwrite)
    writev = _method(operations.writev)
    lseek = _method(operations.lseek)
    seek_hole = _method(operations.seek_hole)
    seek_data = _method(operations.seek_data)
    ftruncate = _method(operations.ftruncate)
    truncate = _method(operations.truncate)
    fallocate = _method(operations.fallocate)
    fsync = _method(operations.fsync)
    copy_file_range = _method(operations.copy_file_range)
    fstat = _method(operations.fstat)
    stat = _method(operations.stat)
    lstat = _method(operations.lstat)
    stats = _method(operations.stats)
    fchown = _method(operations.fchown)
    fchmod = _method(operations.fchmod)
    utimens = _method(operations.utimens)
    listxattr = _method(operations.listxattr)
    getxattr = _method(operations.getxattr)
    setxattr = _method(operations.setxattr)
    readdir = _method(operations.readdir)
    unlink = _method(operations.unlink)
    rename = _method(operations.rename)
    link = _method(operations.link)
    symlink = _method(operations.symlink)
    mknod = _method(operations.mknod)
    mkdir = _method(operations.mkdir)
    rmdir = _method(operations.rmdir)
    read_file = _method(composite.read_file)
    write_file = _method(composite.write_file)
    copy_file = _method(composite.copy_file)
    make_path = _method(composite.make_path)
