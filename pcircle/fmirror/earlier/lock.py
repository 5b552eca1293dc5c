"""One run at a time: a lock beside the target, where its state lies.

Two runs at once would undo what the other has done, and both would call it complete. The lock is
the kernel's, on a file that a run removes at its end: so one that was killed holds nothing, and the
next takes what it has left. Where no file can be made, or nothing locked, there is none.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress

from pcircle.errors import UsageError
from pcircle.trusted import create, opened, place_of
from pcircle.ui.names import show


class Lock:
    """Taken once, on rank 0, by the first job that gets so far; `end` gives it up."""

    def __init__(self) -> None:
        self._fd = -1
        self._path = b""

    def take(self, path: bytes, target: bytes) -> None:
        """Lock the file of this path for a run on a target. UsageError if another run has it."""
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
                text = "another run of fmirror is going on there; wait until it has ended"
                raise UsageError(f"'{show(target)}': {text}") from None
            except (FileExistsError, FileNotFoundError):
                if not os.path.isdir(os.path.dirname(path)):
                    return
            except OSError:
                return

    def end(self) -> None:
        """Give it up."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with suppress(OSError):
                os.unlink(self._path)
            with suppress(OSError):
                os.close(fd)


def _file(path: bytes) -> int:
    """Open it, made if need be. OSError, also if it is none that a run has made."""
    with suppress(FileExistsError):
        return create(path, 0o600)
    with place_of(path) as place:
        if place.status is None:
            raise FileNotFoundError
        if not stat.S_ISREG(place.status.st_mode) or place.status.st_uid != os.geteuid():
            raise PermissionError
        return opened(place, os.O_WRONLY)
