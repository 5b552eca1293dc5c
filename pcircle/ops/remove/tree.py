"""Removes a tree in one thread, as part of another job.

`TreeRemover` removes an entry and everything below it. It serves jobs that find the entry during
other work and cannot start a separate removal job; `docs/design.rst` compares it with the remover
of the walk. Each name is removed relative to its open directory, links are never followed, and
other mounts are not entered. Only the innermost directories of a deep path are kept open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import BUSY, Changed, EntryError
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.openat2 import opener
from pcircle.fs.scan import StableListing, blocks, encoded, listed_first, rewound
from pcircle.fs.write_access import Obstacle, WriteAccess, open_admitted
from pcircle.ops.remove.plan import MAX_TRIES, NAMES_PER_CHECK, NOT_EMPTY
from pcircle.walk.attributes import LETTERS
from pcircle.walk.globs import Choose

_MAX_OPEN = 32


class RemovalListener(Protocol):
    """Receives the outcome for each path, and limits the rate and duration of the removal."""

    def due(self, count: int) -> bool:
        """Wait until `count` entries may be removed, and return whether there is a limit."""
        ...

    def is_stopping(self) -> bool:
        """Return whether the job must stop before it is complete."""
        ...

    def gone(self, path: bytes, kind: str) -> None:
        """Record a removed entry; `kind` is a letter as in `find -type`."""

    def failed(self, path: bytes, doing: str, error: OSError) -> None:
        """Record an entry that could not be removed."""


class _Level:
    """A directory that is being emptied; `below` contains the remaining subdirectories.

    `obstacle` contains the attributes to restore if the directory stays.
    """

    __slots__ = ("below", "fd", "identity", "obstacle", "path", "stays", "tries")

    def __init__(self, path: bytes, fd: int, obstacle: Obstacle | None = None) -> None:
        self.path = path
        self.fd = fd
        self.obstacle = obstacle
        self.identity: tuple[int, int] | None = None  # set when the directory is closed
        self.below: list[bytes] = []
        self.stays = False
        self.tries = 0

    def admit(self, access: WriteAccess) -> bool:
        """Clear obstacles to the removal of entries; return whether there were any."""
        found = access.admit(self.fd)
        self.obstacle = self.obstacle or found
        return found is not None

    def restore(self) -> None:
        """Restore the attributes of a directory that stays."""
        if self.obstacle is not None:
            with suppress(OSError):  # the reason why the directory stays is already reported
                self.obstacle.restore(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            status = os.fstat(self.fd)
            self.identity = status.st_dev, status.st_ino
            fd, self.fd = self.fd, -1
            os.close(fd)

    def open_from(self, inner: int) -> None:
        """Reopen the directory from a subdirectory.

        Raises OSError, or Changed if the subdirectory was moved.
        """
        if self.fd < 0:
            self.fd = os.open(b"..", OPEN_DIRECTORY_FOLLOW, dir_fd=inner)
            status = os.fstat(self.fd)
            if (status.st_dev, status.st_ino) != self.identity:
                raise Changed("the directory was moved while it was removed")


class TreeRemover:
    """Removes trees in one thread.

    Entries that `choose` excludes stay, and so do their directories. `access` specifies the
    obstacles to removal that are cleared. Obstacles that were cleared in the directory of the top
    entry are not restored.
    """

    def __init__(
        self,
        listener: RemovalListener,
        choose: Choose | None = None,
        access: WriteAccess | None = None,
    ) -> None:
        self._listener = listener
        self._access = access or WriteAccess()
        self._choose = choose
        self._open = opener()
        self._steadiness = StableListing()

    def remove(self, path: bytes, directory_fd: int) -> None:
        """Remove the entry with this path and everything below it; its parent is open."""
        parent, _, name = path.rpartition(b"/")
        try:
            mode = os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            self._listener.failed(path, "remove", error)
            return
        top = _Level(parent, directory_fd)
        if not stat.S_ISDIR(mode):
            self._unlink(top, LETTERS.get(stat.S_IFMT(mode), "?"), [name])
            return
        top.below.append(name)
        self._walk([top])

    def _walk(self, levels: list[_Level]) -> None:
        """Remove everything below the first level, deepest first."""
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
        parent = levels[-1]
        name = parent.below.pop()
        path = join_path(parent.path, name)
        try:
            level = self._level(name, path, parent)
        except FileNotFoundError:
            return
        except OSError as error:
            if not (error.errno == errno.EACCES and self._remove_if_empty(name, path, parent.fd)):
                self._fail(parent, path, error)
            return
        levels.append(level)
        if len(levels) > _MAX_OPEN:
            levels[1 - _MAX_OPEN].close()
        self._empty(level)

    def _level(self, name: bytes, path: bytes, parent: _Level) -> _Level:
        """Open a subdirectory. Raises OSError."""
        try:
            return _Level(path, self._open(name, parent.fd))
        except PermissionError as error:
            if not self._access.may_have_caused(error):
                raise
        parent.admit(self._access)
        return _Level(path, *open_admitted(name, parent.fd, self._access))

    def _remove_if_empty(self, name: bytes, path: bytes, directory_fd: int) -> bool:
        """Try to remove a directory that cannot be listed; return whether it was empty."""
        self._listener.due(1)
        try:
            os.rmdir(name, dir_fd=directory_fd)
        except OSError:
            return False
        self._listener.gone(path, "d")
        return True

    def _empty(self, level: _Level) -> None:
        """Remove the entries that are not directories, and collect the directories."""
        try:
            found = blocks(rewound(level.fd))
            if not self._steadiness.of(os.fstat(level.fd).st_dev):
                found = listed_first(found)
            for block in found:
                count = len(block)
                if self._choose is not None:
                    self._choose(block, level.path, level.fd)
                    level.stays |= len(block) < count
                for kind, batch in (("f", block.files), ("l", block.links), ("s", block.specials)):
                    self._unlink(level, kind, encoded(batch))
                level.below += encoded(block.directories)
        except OSError as error:
            self._fail(level, level.path, error)

    def _unlink(self, level: _Level, kind: str, names: Sequence[bytes]) -> None:
        listener, fd = self._listener, level.fd
        for place, name in enumerate(names):
            is_limited = listener.due(1)
            if (is_limited or not place % NAMES_PER_CHECK) and listener.is_stopping():
                return
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
        """Remove a directory after its contents, unless an entry in it stays.

        Entries that were created after the listing are also removed, in a limited number of
        attempts.
        """
        level, parent = levels[-1], levels[-2]
        name = level.path.rpartition(b"/")[2]
        try:
            parent.open_from(level.fd)
        except OSError as error:  # the parents are no longer reachable
            self._fail(parent, level.path, error)
            for closed in levels[1:]:
                closed.close()
            del levels[1:]
            levels[0].below.clear()
            return
        try:
            if level.stays:
                parent.stays = True
                level.restore()
            else:
                self._listener.due(1)
                self._change(partial(os.rmdir, name, dir_fd=parent.fd), name, parent)
                self._listener.gone(level.path, "d")
        except FileNotFoundError:
            pass  # another process removed it
        except OSError as error:
            if error.errno in NOT_EMPTY and level.tries < MAX_TRIES:
                level.tries += 1
                self._empty(level)
                return
            if error.errno in NOT_EMPTY:
                error = EntryError(BUSY, "another process is creating entries here")
            level.restore()
            self._fail(parent, level.path, error)
        levels.pop().close()

    def _change(self, remove: Callable[[], None], name: bytes, level: _Level) -> None:
        """Remove a name from a directory, and clear obstacles if necessary. Raises OSError."""
        try:
            remove()
        except PermissionError as error:
            if not self._access.may_have_caused(error):
                raise
            level.admit(self._access)
            self._access.change(remove, name, level.fd)

    def _fail(self, stays: _Level, path: bytes, error: OSError) -> None:
        """Report a directory that cannot be removed, and keep its parent too."""
        stays.stays = True
        self._listener.failed(path, "remove directory", error)
