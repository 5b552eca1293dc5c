"""The mark that identifies the target of a checkpoint.

A resumed run must know that the target is the very one that a previous run wrote to. Inode numbers
cannot show that, because file systems assign their first inodes deterministically, so a recreated
target has the same number. File system IDs are no help either: some change at each remount, some
survive mkfs, and NFS has none. So a run with a checkpoint creates an empty file in the target whose
name consists of `.fcp-mark-`, the checkpoint's hash and 16 random hexadecimal digits. The
checkpoint's header records the name. The mark is visible from every node and exists only in that
target.

A copy of one directory has the mark in the copied directory, any other copy in the directory that
receives the copies. The mark is removed together with the checkpoint. If it cannot be created, a
later run starts from the beginning.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pcircle.fs.attributes.xattrs import FORBIDDING, give_flags, read_flags
from pcircle.fs.open_flags import CREATE_FILE, OPEN_DIRECTORY_FOLLOW


def new_mark(checkpoint: bytes) -> bytes:
    """Return a unique mark name for the checkpoint at this path."""
    return _prefix(checkpoint) + os.urandom(8).hex().encode()


def _prefix(checkpoint: bytes) -> bytes:
    return b".fcp-mark-" + checkpoint.rpartition(b"-")[2] + b"-"


def create_mark(name: bytes, directory_fd: int) -> None:
    """Create a mark in a directory unless it exists."""
    with suppress(OSError):  # without a mark the records are ignored
        os.close(os.open(name, CREATE_FILE, 0o600, dir_fd=directory_fd))


class TargetMark(NamedTuple):
    """A mark and the absolute path of the directory that should contain it."""

    directory: bytes
    name: bytes

    def exists(self) -> bool:
        """Return whether the mark exists."""
        return bool(self.name) and os.path.lexists(os.path.join(self.directory, self.name))

    def remove(self) -> None:
        """Remove the mark if it exists. OSError if that fails."""
        path = os.path.join(self.directory, self.name)
        # Existence cannot be checked in a directory whose mode denies access to its owner.
        with suppress(FileNotFoundError, NotADirectoryError):
            if self.name:
                remove_from(self.directory, lambda: os.unlink(path), keep_times=True)

    @classmethod
    def remove_all(cls, directory: bytes, checkpoint: bytes) -> None:
        """Remove all marks of a checkpoint whose header is unreadable. OSError if that fails."""
        with suppress(FileNotFoundError):
            for name in os.listdir(directory):
                if name.startswith(_prefix(checkpoint)):
                    cls(directory, name).remove()


def remove_from(directory: bytes, remove: Callable[[], None], *, keep_times: bool) -> None:
    """Remove something from a directory that may already have its final attributes.

    The source's mode and inode flags may forbid the removal; they are restored afterwards, and with
    `keep_times` so are the times. OSError.
    """
    before = os.stat(directory)
    try:
        remove()
    except PermissionError:
        with _temporarily_writable(directory, before):
            remove()
            if keep_times:
                _set_times(directory, before)
        return
    if keep_times:
        _set_times(directory, before)


def _set_times(directory: bytes, before: os.stat_result) -> None:
    with suppress(PermissionError):  # another user's directory that is writable for us
        os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def _temporarily_writable(directory: bytes, before: os.stat_result) -> Iterator[None]:
    """Temporarily grant the owner all permissions and clear inode flags that forbid changes."""
    fd = -1
    with suppress(PermissionError):  # an unreadable directory has no flags set by us
        fd = os.open(directory, OPEN_DIRECTORY_FOLLOW)
    try:
        flags = read_flags(fd) if fd >= 0 else 0
        lifted = flags & FORBIDDING and give_flags(fd, flags & ~FORBIDDING)
        try:
            os.chmod(directory, stat.S_IMODE(before.st_mode) | stat.S_IRWXU)
            try:
                yield
            finally:
                os.chmod(directory, stat.S_IMODE(before.st_mode))
        finally:
            if lifted:
                give_flags(fd, flags)
    finally:
        if fd >= 0:
            os.close(fd)
