"""One run at a time: locks on the target and on a file next to it, where its state lies.

Two simultaneous runs would undo each other's work, and both would call it complete. The kernel
holds the locks, so a killed run leaves none. The lock on the directory works for every path to it,
such as a bind mount. The lock on the file separates runs that both create the directory; a run
removes the file at its end. Without write access, or where locking is not supported, there is no
lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress

import xxhash

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.safe_open import create, opened
from pcircle.fs.safe_open import place_of as trusted_place

_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # NFS returns EACCES


def place_of(target: bytes, directory: bytes | None) -> bytes:
    """Return the path of the lock file: next to the target, or in `directory`.

    Next to the target only its name matters, because several paths may lead to its parent.
    """
    real = os.path.realpath(target)
    above, name = os.path.split(real)
    known_by = name if directory is None else real
    name = b".fmirror-%016x.lock" % xxhash.xxh3_64_intdigest(known_by)
    return os.path.join(above if directory is None else directory, name)


class Lock:
    """A lock that rank 0 takes once; `end` releases it."""

    def __init__(self) -> None:
        self._fd = self._directory_fd = -1
        self._path = b""

    def take(self, target: bytes, directory: bytes | None) -> None:
        """Lock a target. UsageError if another run holds the lock.

        The file is in `directory`, or next to the target.
        """
        if self._fd < 0:
            self._take_file(place_of(target, directory), target)
        if self._directory_fd < 0:
            self._take_directory(target)

    def _take_file(self, path: bytes, target: bytes) -> None:
        while self._fd < 0:
            try:
                fd = _file(path)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.path.samestat(os.fstat(fd), os.lstat(path)):
                        self._fd, self._path = fd, path
                        return
                finally:
                    if self._fd < 0:
                        os.close(fd)
            except BlockingIOError:
                raise _is_taken(target) from None
            except (FileExistsError, FileNotFoundError):
                if not os.path.isdir(os.path.dirname(path)):
                    return
            except OSError:
                return

    def _take_directory(self, target: bytes) -> None:
        try:
            fd = os.open(target, OPEN_DIRECTORY_FOLLOW)
        except OSError:
            return  # it does not exist yet, or is unreadable
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in _TAKEN:
                return  # the file system does not lock directories
            self.end()
            raise _is_taken(target) from None
        self._directory_fd = fd

    def end(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with suppress(OSError):
                os.unlink(self._path)
            with suppress(OSError):
                os.close(fd)
        if self._directory_fd >= 0:
            fd, self._directory_fd = self._directory_fd, -1
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # also for processes that have inherited it
            with suppress(OSError):
                os.close(fd)


def _is_taken(target: bytes) -> UsageError:
    text = "another run of fmirror is going on there; wait until it has ended"
    return UsageError(f"'{show(target)}': {text}")


def _file(path: bytes) -> int:
    """Open the lock file, creating it if necessary. OSError, also for a file of another program."""
    with suppress(FileExistsError):
        return create(path, 0o600)
    with trusted_place(path) as place:
        if place.status is None:
            raise FileNotFoundError
        if not stat.S_ISREG(place.status.st_mode) or place.status.st_uid != os.geteuid():
            raise PermissionError
        return opened(place, os.O_WRONLY)
