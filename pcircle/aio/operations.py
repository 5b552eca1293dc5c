"""File operations as objects: the function to call, its arguments, and how to undo the call.

The functions here create an `Operation`, which has no effect until a scheduler executes it.
Composite operations are generators that yield such objects. An operation is one system call, or a
few that belong together (a batch of names, a complete write).

A failed operation raises OSError with errno and, if possible, a path. This is the path of the
operation, or the one by which the scheduler opened the descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pcircle.core.encoding import attributes, exact, to_scan
from pcircle.core.writing import write_all, write_at
from pcircle.fs.attributes import acls

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

T = TypeVar("T")

METADATA, DATA = "metadata", "data"

Path = str | bytes

_COPY_BYTES = 1 << 30


class Operation(Generic[T]):
    """A blocking call of `function` with `arguments`.

    `kind` is METADATA or DATA, which have separate queues and threads. `path` is for error
    messages; `fd` is the descriptor that the operation uses, or -1. `moves` means that the
    operation uses the position of `fd`, or closes it. Such operations on the same descriptor run in
    the order of their submission. If the operation succeeds after its future was cancelled or
    overdue, `undo` is called with the result. A `tidying` operation is executed even if its
    composite was cancelled.
    """

    __slots__ = (
        "arguments",
        "fd",
        "function",
        "keywords",
        "kind",
        "moves",
        "name",
        "path",
        "tidying",
        "undo",
    )

    def __init__(
        self,
        name: str,
        function: Callable[..., T],
        *arguments: object,
        kind: str = METADATA,
        path: Path | None = None,
        fd: int = -1,
        moves: bool = False,
        undo: Callable[[T], None] | None = None,
        **keywords: object,
    ) -> None:
        self.name: str = name
        self.function: Callable[..., T] = function
        self.arguments: tuple[object, ...] = arguments
        self.keywords: dict[str, object] = keywords
        self.kind: str = kind
        self.path: Path | None = path
        self.fd: int = fd
        self.moves: bool = moves
        self.undo: Callable[[T], None] | None = undo
        self.tidying: bool = False

    def __call__(self) -> T:
        """Execute the operation on this thread. Raises OSError, with a path if one is known."""
        try:
            if self.keywords:
                return self.function(*self.arguments, **self.keywords)
            return self.function(*self.arguments)
        except OSError as error:
            if error.filename is None and self.path is not None:
                error.filename = self.path
            raise

    def take_back(self, value: T) -> None:
        """Undo the operation, because its result is no longer needed."""
        if self.undo is not None:
            with suppress(OSError):  # no caller is left to be notified
                self.undo(value)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


def tidying(operation: Operation[T]) -> Operation[T]:
    """Mark an operation to run even if its composite is cancelled; return the operation."""
    operation.tidying = True
    return operation


# ---- files ---------------------------------------------------------------------


def open(
    path: Path, flags: int = os.O_RDONLY, mode: int = 0o666, *, dir_fd: int | None = None
) -> Operation[int]:
    """Open a file; the descriptor is not inherited by child processes."""
    call = Operation(
        "open", os.open, path, flags | os.O_CLOEXEC, mode, path=path, undo=os.close, dir_fd=dir_fd
    )
    return call


def creat(path: Path, mode: int = 0o666, *, dir_fd: int | None = None) -> Operation[int]:
    """Create and open a new file. Raises FileExistsError if the path exists.

    Unlike creat(2), it never truncates an existing file, so a late creation can be undone.
    """

    def undo(fd: int) -> None:
        os.close(fd)
        os.unlink(path, dir_fd=dir_fd)

    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return Operation("creat", os.open, path, flags, mode, path=path, undo=undo, dir_fd=dir_fd)


def close(fd: int) -> Operation[None]:
    """Close a descriptor."""
    return tidying(Operation("close", os.close, fd, fd=fd, moves=True))


def read(fd: int, size: int) -> Operation[bytes]:
    """Read at most `size` bytes at the current position."""
    return Operation("read", os.read, fd, size, kind=DATA, fd=fd, moves=True)


def pread(fd: int, size: int, offset: int) -> Operation[bytes]:
    """Read at most `size` bytes at an offset."""
    return Operation("pread", os.pread, fd, size, offset, kind=DATA, fd=fd)


def readv(fd: int, buffers: Sequence[WriteableBuffer], offset: int | None = None) -> Operation[int]:
    """Read into buffers at an offset or the current position; the result is the number of bytes."""
    if offset is None:
        return Operation("readv", os.readv, fd, buffers, kind=DATA, fd=fd, moves=True)
    return Operation("readv", os.preadv, fd, buffers, offset, kind=DATA, fd=fd)


def write(fd: int, data: ReadableBuffer) -> Operation[int]:
    """Write all data at the current position; the result is the number of bytes."""
    return Operation("write", write_all, fd, data, kind=DATA, fd=fd, moves=True)


def pwrite(fd: int, data: ReadableBuffer, offset: int) -> Operation[int]:
    """Write all data at an offset; the result is the number of bytes."""
    return Operation("pwrite", write_at, fd, data, offset, kind=DATA, fd=fd)


def writev(fd: int, buffers: Sequence[ReadableBuffer], offset: int | None = None) -> Operation[int]:
    """Write buffers in one call; the result is the number of bytes that the kernel accepted."""
    if offset is None:
        return Operation("writev", os.writev, fd, buffers, kind=DATA, fd=fd, moves=True)
    return Operation("writev", os.pwritev, fd, buffers, offset, kind=DATA, fd=fd)


def lseek(fd: int, offset: int, whence: int = os.SEEK_SET) -> Operation[int]:
    """Move the position; the result is the new position."""
    return Operation("lseek", os.lseek, fd, offset, whence, fd=fd, moves=True)


def seek_hole(fd: int, offset: int) -> Operation[int]:
    """Move the position to the next hole. Raises OSError (ENXIO) beyond the end of the file."""
    return Operation("seek_hole", os.lseek, fd, offset, os.SEEK_HOLE, fd=fd, moves=True)


def seek_data(fd: int, offset: int) -> Operation[int]:
    """Move the position to the next data. Raises OSError (ENXIO) if no data follows."""
    return Operation("seek_data", os.lseek, fd, offset, os.SEEK_DATA, fd=fd, moves=True)


def ftruncate(fd: int, size: int) -> Operation[None]:
    """Set the size of an open file."""
    return Operation("ftruncate", os.ftruncate, fd, size, fd=fd)


def truncate(path: Path, size: int) -> Operation[None]:
    """Set the size of a file."""
    return Operation("truncate", os.truncate, path, size, path=path)


def fallocate(fd: int, offset: int, length: int) -> Operation[None]:
    """Allocate space for a range."""
    return Operation("fallocate", os.posix_fallocate, fd, offset, length, fd=fd)


def fsync(fd: int) -> Operation[None]:
    """Flush a file to disk."""
    return Operation("fsync", os.fsync, fd, kind=DATA, fd=fd)


def copy_file_range(
    source_fd: int, target_fd: int, count: int, source_offset: int, target_offset: int
) -> Operation[int]:
    """Copy a range within the kernel; the result is the number of bytes, 0 at end of file."""
    count = min(count, _COPY_BYTES)
    arguments = (source_fd, target_fd, count, source_offset, target_offset)
    return Operation("copy_file_range", os.copy_file_range, *arguments, kind=DATA, fd=target_fd)


# ---- attributes ----------------------------------------------------------------


def fstat(fd: int) -> Operation[os.stat_result]:
    """Return the status of an open file."""
    return Operation("fstat", os.fstat, fd, fd=fd)


def stat(path: Path, *, dir_fd: int | None = None) -> Operation[os.stat_result]:
    """Return the status of a path, following links."""
    return Operation("stat", os.stat, path, path=path, dir_fd=dir_fd)


def lstat(path: Path, *, dir_fd: int | None = None) -> Operation[os.stat_result]:
    """Return the status of a path, without following links."""
    return Operation("lstat", os.stat, path, path=path, dir_fd=dir_fd, follow_symlinks=False)


def stats(names: Sequence[Path], dir_fd: int) -> Operation[list[os.stat_result | OSError]]:
    """Stat many names in a directory as one operation; each yields a status or an error."""

    def all_of_them() -> list[os.stat_result | OSError]:
        found: list[os.stat_result | OSError] = []
        for name in names:
            try:
                found.append(os.stat(name, dir_fd=dir_fd, follow_symlinks=False))
            except OSError as error:
                found.append(error)
        return found

    return Operation("stats", all_of_them, fd=dir_fd)


def fchown(fd: int, uid: int, gid: int) -> Operation[None]:
    """Set the owner and group of an open file."""
    return Operation("fchown", os.fchown, fd, uid, gid, fd=fd)


def fchmod(fd: int, mode: int) -> Operation[None]:
    """Set the mode of an open file."""
    return Operation("fchmod", os.fchmod, fd, mode, fd=fd)


def utimens(fd: int, atime_ns: int, mtime_ns: int) -> Operation[None]:
    """Set the access and modification times of an open file."""
    return Operation("utimens", os.utime, fd, fd=fd, ns=(atime_ns, mtime_ns))


def listxattr(target: Path | int) -> Operation[list[str]]:
    """List the names of extended attributes of a path or an open file."""
    return Operation("listxattr", attributes, target, **_of(target))


def getxattr(target: Path | int, attribute: str) -> Operation[bytes]:
    """Read an extended attribute of a path or an open file."""
    return Operation("getxattr", os.getxattr, target, attribute, **_of(target))


def setxattr(target: Path | int, attribute: str, value: bytes) -> Operation[None]:
    """Set an extended attribute of a path or an open file."""
    return Operation("setxattr", os.setxattr, target, attribute, value, **_of(target))


def access_list(fd: int) -> Operation[bytes | None]:
    """Read an open file's access control list; the result is None if it has none."""
    return Operation("access_list", acls.read_list, fd, fd=fd)


def give_access(fd: int, mode: int, access: bytes | None) -> Operation[None]:
    """Set the mode and, if the file system supports it, the access control list of an open file."""
    return Operation("give_access", acls.give_access, fd, mode, access, fd=fd)


def _of(target: Path | int) -> dict[str, Any]:
    return {"fd": target} if isinstance(target, int) else {"path": target}


# ---- names ---------------------------------------------------------------------


def readdir(fd: int, max_names: int = 0) -> Operation[list[str]]:
    """List at most `max_names` names of an open directory, or all if 0, as one operation."""

    def names() -> list[str]:
        with os.scandir(to_scan(fd)) as entries:
            found = [exact(entry.name) for entry in entries]
        return found[:max_names] if max_names else found

    return Operation("readdir", names, fd=fd, moves=True)


def unlink(path: Path, *, dir_fd: int | None = None) -> Operation[None]:
    """Remove a name that is not a directory."""
    return Operation("unlink", os.unlink, path, path=path, dir_fd=dir_fd)


def rename(
    source: Path, target: Path, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> Operation[None]:
    """Rename an entry, replacing an existing target."""
    return Operation(
        "rename",
        os.rename,
        source,
        target,
        path=source,
        src_dir_fd=src_dir_fd,
        dst_dir_fd=dst_dir_fd,
    )


def link(source: Path, target: Path) -> Operation[None]:
    """Create a hard link to a file."""

    def undo(_: None) -> None:
        os.unlink(target)

    call = os.link
    return Operation("link", call, source, target, path=source, undo=undo, follow_symlinks=False)


def symlink(text: Path, path: Path, *, dir_fd: int | None = None) -> Operation[None]:
    """Create a symbolic link."""

    def undo(_: None) -> None:
        os.unlink(path, dir_fd=dir_fd)

    return Operation("symlink", os.symlink, text, path, path=path, undo=undo, dir_fd=dir_fd)


def mknod(path: Path, mode: int, device: int = 0) -> Operation[None]:
    """Create a special file."""

    def undo(_: None) -> None:
        os.unlink(path)

    return Operation("mknod", os.mknod, path, mode, device, path=path, undo=undo)


def mkdir(path: Path, mode: int = 0o777, *, dir_fd: int | None = None) -> Operation[None]:
    """Create a directory."""

    def undo(_: None) -> None:
        os.rmdir(path, dir_fd=dir_fd)

    return Operation("mkdir", os.mkdir, path, mode, path=path, undo=undo, dir_fd=dir_fd)


def rmdir(path: Path, *, dir_fd: int | None = None) -> Operation[None]:
    """Remove an empty directory."""
    return Operation("rmdir", os.rmdir, path, path=path, dir_fd=dir_fd)
