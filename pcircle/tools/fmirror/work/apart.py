"""Whether two directories are one, such as when a union file system shows one in the other.

Neither device nor inode numbers show that, and looked up names may be cached. So a file with a
random name is created on each side and looked up on the other.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pcircle.fs.entry_errors import SAME_FILE, Trouble, trying

_TRIES, _PAUSE_S = 200, 0.005
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def _alone(directory_fd: int) -> Iterator[None]:
    """Keep other ranks and threads of the run out, which would record our times as old.

    Without locks, or if another program holds the lock, it continues.
    """
    locked = False
    for _ in range(_TRIES):
        try:
            fcntl.flock(directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
            break
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            break
    try:
        yield
    finally:
        if locked:
            fcntl.flock(directory_fd, fcntl.LOCK_UN)


class Apart:
    """Compares directories for one thread. The files have names that begin with `prefix`."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._last: tuple[tuple[int, int], ...] = ()

    def prove(self, fds: tuple[int, int]) -> None:
        """Prove that two open directories are different; the last pair is cached.

        Trouble if they are one, OSError if that is unknown.
        """
        pair = tuple((status.st_dev, status.st_ino) for status in map(os.fstat, fds))
        if pair == self._last:
            return
        with trying("compare with its copy the directory of"), _alone(fds[0]):
            times = [(status.st_atime_ns, status.st_mtime_ns) for status in map(os.fstat, fds)]
            try:
                are_one = self._shows(*fds) or self._shows(*fds[::-1])
            finally:
                for fd, ns in zip(fds, times, strict=True):
                    with suppress(OSError):  # of another user's directory that we may write in
                        os.utime(fd, ns=ns)
        if are_one:
            raise Trouble(SAME_FILE, "its directory in A and the one in B are the same")
        self._last = pair

    def _shows(self, here: int, there: int) -> bool:
        """Return whether a name created in one directory appears in the other. OSError."""
        name = self._prefix + b"probe-" + os.urandom(16).hex().encode()
        os.close(os.open(name, _FLAGS, 0o600, dir_fd=here))
        try:
            os.stat(name, dir_fd=there, follow_symlinks=False)
            return True
        except FileNotFoundError:
            return False
        finally:
            os.unlink(name, dir_fd=here)
