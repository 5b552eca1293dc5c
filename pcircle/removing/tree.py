"""Removing what one name stands for, on one thread and within another job.

For who finds it while something else is under way and can't wait for a job of its own. As there
each name goes relative to its open directory, never through a link, nor on another mount; and of
the directories that lie in each other only the last ones are open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from pcircle.fs.beneath import opener
from pcircle.fs.directories import join_path
from pcircle.fs.scan import Steadiness, blocks, encoded, listed_first, rewound
from pcircle.fs.trouble import BUSY, Changed, Trouble
from pcircle.fs.write_access import Obstacle, WriteAccess, open_admitted
from pcircle.walk.attributes import LETTERS
from pcircle.walk.choosing import Choose

_ABOVE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
_MOST_OPEN = 32
_TOGETHER = 256  # names between two looks at whether to stop
_TRIES = 3


class Listener(Protocol):
    """Hears what becomes of entries, by their paths, and says how fast and how long they may go."""

    def due(self, count: int) -> None:
        """Wait until so many entries may be removed."""

    def is_stopping(self) -> bool:
        """Whether the job is to end, whatever is left."""

    def gone(self, path: bytes, kind: str) -> None:
        """An entry has gone; its kind is a letter as of `find -type`."""

    def failed(self, path: bytes, doing: str, error: OSError) -> None:
        """An entry could not be removed."""


class _Level:
    """A directory that is being emptied; `below` are those in it that are left to be.

    If it stays it gets its `obstacle` back.
    """

    __slots__ = ("below", "fd", "identity", "obstacle", "path", "stays", "tries")

    def __init__(self, path: bytes, fd: int, obstacle: Obstacle | None = None) -> None:
        self.path = path
        self.fd = fd
        self.obstacle = obstacle
        self.identity: tuple[int, int] | None = None  # once it was closed
        self.below: list[bytes] = []
        self.stays = False
        self.tries = 0

    def admit(self, access: WriteAccess) -> bool:
        """Let its entries be removed; return whether it was in the way."""
        found = access.admit(self.fd)
        self.obstacle = self.obstacle or found
        return found is not None

    def restore(self) -> None:
        """It stays."""
        if self.obstacle is not None:
            with suppress(OSError):  # what keeps it has been reported
                self.obstacle.restore(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            status = os.fstat(self.fd)
            self.identity = status.st_dev, status.st_ino
            fd, self.fd = self.fd, -1
            os.close(fd)

    def open_from(self, inner: int) -> None:
        """Open it again from a directory in it. OSError, Changed if that was moved."""
        if self.fd < 0:
            self.fd = os.open(b"..", _ABOVE, dir_fd=inner)
            status = os.fstat(self.fd)
            if (status.st_dev, status.st_ino) != self.identity:
                raise Changed("the directory was moved while it was removed")


class TreeRemover:
    """One thread's. What `choose` leaves out of a directory stays, and so does the directory.

    `access` says what is taken away that keeps entries from being removed. Of the directory in
    which the first one lies it is not put back.
    """

    def __init__(
        self, listener: Listener, choose: Choose | None = None, access: WriteAccess | None = None
    ) -> None:
        self._listener = listener
        self._access = access or WriteAccess()
        self._choose = choose
        self._open = opener()
        self._steadiness = Steadiness()

    def remove(self, path: bytes, directory_fd: int) -> None:
        """Remove the entry of this path, in an open directory, with all that is in it."""
        above, _, name = path.rpartition(b"/")
        try:
            mode = os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            self._listener.failed(path, "remove", error)
            return
        top = _Level(above, directory_fd)
        if not stat.S_ISDIR(mode):
            self._unlink(top, LETTERS.get(stat.S_IFMT(mode), "?"), [name])
            return
        top.below.append(name)
        self._walk([top])

    def _walk(self, levels: list[_Level]) -> None:
        """Remove what is below the first level, deepest first."""
        try:
            while len(levels) > 1 or levels[0].below:
                if self._listener.is_stopping():
                    return
                if levels[-1].below:
                    self._enter(levels)
                else:
                    self._leave(levels)
        finally:
            for level in reversed(levels[1:]):
                if level.fd >= 0:
                    level.restore()
                level.close()

    def _enter(self, levels: list[_Level]) -> None:
        above = levels[-1]
        name = above.below.pop()
        path = join_path(above.path, name)
        try:
            level = self._level(name, path, above)
        except FileNotFoundError:
            return
        except OSError as error:
            if not (error.errno == errno.EACCES and self._goes_empty(name, path, above.fd)):
                self._fail(above, path, error)
            return
        levels.append(level)
        if len(levels) > _MOST_OPEN:
            levels[1 - _MOST_OPEN].close()
        self._empty(level)

    def _level(self, name: bytes, path: bytes, above: _Level) -> _Level:
        """Open a directory of another one. OSError."""
        try:
            return _Level(path, self._open(name, above.fd))
        except PermissionError as error:
            if not self._access.helps(error):
                raise
        above.admit(self._access)
        return _Level(path, *open_admitted(name, above.fd, self._access))

    def _goes_empty(self, name: bytes, path: bytes, directory_fd: int) -> bool:
        """Whether a directory that can't be listed could be removed, as it was empty."""
        self._listener.due(1)
        try:
            os.rmdir(name, dir_fd=directory_fd)
        except OSError:
            return False
        self._listener.gone(path, "d")
        return True

    def _empty(self, level: _Level) -> None:
        """Remove what is no directory, and note what is."""
        try:
            found = blocks(rewound(level.fd))
            if not self._steadiness.of(os.fstat(level.fd).st_dev):
                found = listed_first(found)
            for block in found:
                count = len(block)
                if self._choose is not None:
                    self._choose(block, level.path, level.fd)
                    level.stays |= len(block) < count
                for kind, some in (("f", block.files), ("l", block.links), ("s", block.specials)):
                    self._unlink(level, kind, encoded(some))
                level.below += encoded(block.directories)
        except OSError as error:
            self._fail(level, level.path, error)

    def _unlink(self, level: _Level, kind: str, names: Sequence[bytes]) -> None:
        listener, fd = self._listener, level.fd
        for at in range(0, len(names), _TOGETHER):
            some = names[at : at + _TOGETHER]
            listener.due(len(some))
            if listener.is_stopping():
                return
            for name in some:
                path = join_path(level.path, name)
                try:
                    self._change(partial(os.unlink, name, dir_fd=fd), name, level)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    level.stays = True
                    listener.failed(path, "remove", error)
                else:
                    listener.gone(path, kind)

    def _leave(self, levels: list[_Level]) -> None:
        """All in a directory was looked at: remove it, unless something of it stays.

        What has come since it was listed is removed, too, some times.
        """
        level, above = levels[-1], levels[-2]
        name = level.path.rpartition(b"/")[2]
        try:
            above.open_from(level.fd)
        except OSError as error:  # nothing above can be reached any more
            self._fail(above, level.path, error)
            for each in levels[1:]:
                each.close()
            del levels[1:]
            levels[0].below.clear()
            return
        try:
            if level.stays:
                above.stays = True
                level.restore()
            else:
                self._listener.due(1)
                self._change(partial(os.rmdir, name, dir_fd=above.fd), name, above)
                self._listener.gone(level.path, "d")
        except FileNotFoundError:
            pass  # somebody else has removed it
        except OSError as error:
            if error.errno in _NOT_EMPTY and level.tries < _TRIES:
                level.tries += 1
                self._empty(level)
                return
            if error.errno in _NOT_EMPTY:
                error = Trouble(BUSY, "someone is writing here")
            level.restore()
            self._fail(above, level.path, error)
        levels.pop().close()

    def _change(self, remove: Callable[[], None], name: bytes, level: _Level) -> None:
        """Remove a name of a directory, and what keeps this run from it. OSError."""
        try:
            remove()
        except PermissionError as error:
            if not self._access.helps(error):
                raise
            level.admit(self._access)
            self._access.change(remove, name, level.fd)

    def _fail(self, stays: _Level, path: bytes, error: OSError) -> None:
        """A directory can't be removed, so another one stays."""
        stays.stays = True
        self._listener.failed(path, "remove directory", error)
