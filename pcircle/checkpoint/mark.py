"""The mark of a target: by what a resumed run knows the very target that an earlier run has left.

Inode numbers do not tell: file systems number their roots as they always do, so a target that was
made anew has the one that was recorded. A file system's own identity would, but what is called so
is another one after a remount here, the same after mkfs there, and unknown over NFS. So a run that
keeps a checkpoint leaves an empty file in the target whose name, `.fcp-mark-`, the checkpoint's
hash and 16 random hex digits, is in the checkpoint's header: it is seen from every node, and is
only in that target.

A copy of one directory has it in the directory's copy, any other in the directory that takes the
copies. It is removed with the checkpoint. Where it can't be made a later run begins anew.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pcircle.fs.xattrs import FORBIDDING, give_flags, read_flags

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def new_mark(checkpoint: bytes) -> bytes:
    """A name for a mark that no other one has, for the checkpoint of this path."""
    return _prefix(checkpoint) + os.urandom(8).hex().encode()


def _prefix(checkpoint: bytes) -> bytes:
    return b".fcp-mark-" + checkpoint.rpartition(b"-")[2] + b"-"


def leave(name: bytes, directory_fd: int) -> None:
    """Make a mark in a directory, if it is not there."""
    with suppress(OSError):  # then nothing of what is recorded will be trusted
        os.close(os.open(name, _FLAGS, 0o600, dir_fd=directory_fd))


class Mark(NamedTuple):
    """A mark and the directory, by its absolute path, that is to have it."""

    directory: bytes
    name: bytes

    def stands(self) -> bool:
        """Whether it is there."""
        return bool(self.name) and os.path.lexists(os.path.join(self.directory, self.name))

    def remove(self) -> None:
        """Remove it, if it is there. OSError if that fails."""
        path = os.path.join(self.directory, self.name)
        # Whether it is there can't be seen in a directory that its mode closes to its owner.
        with suppress(FileNotFoundError, NotADirectoryError):
            if self.name:
                remove_from(self.directory, lambda: os.unlink(path), keep_times=True)

    @classmethod
    def remove_all(cls, directory: bytes, checkpoint: bytes) -> None:
        """Remove those of a checkpoint whose header can't be read. OSError if that fails."""
        with suppress(FileNotFoundError):
            for name in os.listdir(directory):
                if name.startswith(_prefix(checkpoint)):
                    cls(directory, name).remove()


def remove_from(directory: bytes, remove: Callable[[], None], *, keep_times: bool) -> None:
    """Remove something from a directory that may be finished by now; `keep_times` of it.

    It may have the source's mode and inode flags, which forbid it, and keeps them. OSError.
    """
    before = os.stat(directory)
    try:
        remove()
    except PermissionError:
        with _opened_up(directory, before):
            remove()
            if keep_times:
                _set_times(directory, before)
        return
    if keep_times:
        _set_times(directory, before)


def _set_times(directory: bytes, before: os.stat_result) -> None:
    with suppress(PermissionError):  # of another user's directory that we may write in
        os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def _opened_up(directory: bytes, before: os.stat_result) -> Iterator[None]:
    """Give the owner of a directory all rights to it for a while, and take its inode flags away."""
    fd = -1
    with suppress(PermissionError):  # who may not read it has set no flags either
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
