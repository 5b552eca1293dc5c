"""Rename files without replacing existing entries, exchange names, and sync directories.

A rename replaces its target, but a hard link does not. Therefore a complete file gets its name by a
link and then loses its temporary name. On file systems without hard links (FAT, some FUSE file
systems), `renameat2` with RENAME_NOREPLACE renames it in one step. If that is not available, the
name is claimed by an exclusively created empty file, which the rename replaces. Only in this case
can an interruption leave an empty file.
"""

from __future__ import annotations

import errno
import os

from pcircle.fs.open_flags import CREATE_FILE

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)
NO_SUCH_RENAME = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of an unsupported exchange, or rename without replacement."""

_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2  # linux/fs.h


def give_free_name(written: bytes, name: bytes, directory_fd: int) -> None:
    """Rename `written` to `name` in one directory.

    Raises FileExistsError, with nothing changed, if the name exists.
    """
    try:
        os.link(
            written,
            name,
            src_dir_fd=directory_fd,
            dst_dir_fd=directory_fd,
            follow_symlinks=False,
        )
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        os.unlink(written, dir_fd=directory_fd)
        return
    try:
        rename_to_free(written, name, directory_fd)
    except OSError as error:
        if error.errno not in NO_SUCH_RENAME:
            raise
        claim_and_rename(written, name, directory_fd)


def rename_to_free(
    written: bytes, name: bytes, directory_fd: int, to_fd: int | None = None
) -> None:
    """Rename a file without replacing an existing entry.

    `to_fd` is the directory of the new name, if it is another one. Raises OSError, with ENOSYS if
    the C library has no `renameat2`.
    """
    _rename(
        written, name, (directory_fd, directory_fd if to_fd is None else to_fd), _RENAME_NOREPLACE
    )


def exchange(one: bytes, other: bytes, directory_fd: int, other_fd: int | None = None) -> None:
    """Exchange two entries of any kind atomically.

    `other_fd` is the directory of the second name, if it is another one. Raises OSError, with an
    errno in `NO_SUCH_RENAME` if this is not supported.
    """
    fds = directory_fd, directory_fd if other_fd is None else other_fd
    _rename(one, other, fds, _RENAME_EXCHANGE)


def _rename(written: bytes, name: bytes, fds: tuple[int, int], flags: int) -> None:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if library.renameat2(fds[0], written, fds[1], name, flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def claim_and_rename(written: bytes, name: bytes, directory_fd: int) -> None:
    """Claim the name with an empty file, and then replace this file. Raises FileExistsError."""
    os.close(os.open(name, CREATE_FILE, 0o600, dir_fd=directory_fd))
    try:
        os.rename(written, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except OSError:
        os.unlink(name, dir_fd=directory_fd)
        raise


def sync_directory(directory_fd: int, *, searched: bool) -> None:
    """Flush a directory's entries to disk. Raises OSError.

    A directory that is not readable (`searched`) cannot be synced on its own, so all file systems
    are synced. An error that means that the file system cannot sync directories is ignored.
    """
    if searched:
        os.sync()
        return
    try:
        os.fsync(directory_fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
