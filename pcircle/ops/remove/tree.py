"""Removal of a tree in one thread, the plan and counters of a removal, and trash directories.

`TreeRemover` removes an entry and everything below it, in one thread and within another job. It
serves jobs that find the entry while they do something else and cannot wait for a removal job. Each
name is removed relative to its open directory, links are never followed, and other mounts are not
entered. Only the last few directories of a nested chain are open.

Rank 0 decides the plan of a removal job once.

Entries are moved to a trash directory at once and removed later. Each run creates a directory in
the trash that only its user can enter, and in it a directory for each PATH, so nothing is ever
replaced. Emptying the trash ignores directories of any other form.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import BUSY, Changed, EntryError
from pcircle.fs.open_flags import OPEN_DIRECTORY, OPEN_DIRECTORY_FOLLOW, OPEN_ENTRY_PATH
from pcircle.fs.openat2 import is_same_mount, opener
from pcircle.fs.safe_open import directory
from pcircle.fs.scan import StableListing, blocks, encoded, listed_first, rewound
from pcircle.fs.write_access import Obstacle, WriteAccess, open_admitted
from pcircle.jobs.change_task import ChangeCounters, ChangePlan
from pcircle.walk.attributes import LETTERS
from pcircle.walk.globs import Choose
from pcircle.walk.roots import Root

_MAX_OPEN = 32


class RemovalListener(Protocol):
    """Receives the outcome for each path, and controls speed and duration of the removal."""

    def due(self, count: int) -> None:
        """Wait until `count` entries may be removed."""

    def is_stopping(self) -> bool:
        """Return whether the job stops before it is complete."""
        ...

    def gone(self, path: bytes, kind: str) -> None:
        """Record a removed entry; `kind` is a letter as in `find -type`."""

    def failed(self, path: bytes, doing: str, error: OSError) -> None:
        """Record an entry that could not be removed."""


class _Level:
    """A directory that is being emptied; `below` has the subdirectories still to do.

    If the directory stays, its `obstacle` is restored.
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
        """Permit the removal of entries; return whether anything had to be changed for that."""
        found = access.admit(self.fd)
        self.obstacle = self.obstacle or found
        return found is not None

    def restore(self) -> None:
        """Restore the attributes of a directory that stays."""
        if self.obstacle is not None:
            with suppress(OSError):  # the reason why it stays has been reported
                self.obstacle.restore(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            status = os.fstat(self.fd)
            self.identity = status.st_dev, status.st_ino
            fd, self.fd = self.fd, -1
            os.close(fd)

    def open_from(self, inner: int) -> None:
        """Reopen the directory from a subdirectory. OSError; Changed if that was moved."""
        if self.fd < 0:
            self.fd = os.open(b"..", OPEN_DIRECTORY_FOLLOW, dir_fd=inner)
            status = os.fstat(self.fd)
            if (status.st_dev, status.st_ino) != self.identity:
                raise Changed("the directory was moved while it was removed")


class TreeRemover:
    """Removes trees in one thread.

    Entries that `choose` removes from a listing stay, and so do their directories. `access`
    describes the obstacles to removal that are cleared. They are not restored in the directory that
    contains the first entry.
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
        """Remove the entry with this path, in an open directory, with everything below it."""
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
        """Open a subdirectory. OSError."""
        try:
            return _Level(path, self._open(name, parent.fd))
        except PermissionError as error:
            if not self._access.helps(error):
                raise
        parent.admit(self._access)
        return _Level(path, *open_admitted(name, parent.fd, self._access))

    def _remove_if_empty(self, name: bytes, path: bytes, directory_fd: int) -> bool:
        """Try to remove a directory that cannot be listed, which succeeds if it is empty."""
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
        for at in range(0, len(names), NAMES_PER_CHECK):
            batch = names[at : at + NAMES_PER_CHECK]
            listener.due(len(batch))
            if listener.is_stopping():
                return
            for name in batch:
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
        """Remove a complete directory, unless something in it stays.

        Entries created since it was listed are removed too, a limited number of times.
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
            pass  # removed by another process
        except OSError as error:
            if error.errno in NOT_EMPTY and level.tries < MAX_TRIES:
                level.tries += 1
                self._empty(level)
                return
            if error.errno in NOT_EMPTY:
                error = EntryError(BUSY, "someone is writing here")
            level.restore()
            self._fail(parent, level.path, error)
        levels.pop().close()

    def _change(self, remove: Callable[[], None], name: bytes, level: _Level) -> None:
        """Remove a name from a directory, clearing obstacles if necessary. OSError."""
        try:
            remove()
        except PermissionError as error:
            if not self._access.helps(error):
                raise
            level.admit(self._access)
            self._access.change(remove, name, level.fd)

    def _fail(self, stays: _Level, path: bytes, error: OSError) -> None:
        """Report a directory that cannot be removed, so its parent `stays` too."""
        stays.stays = True
        self._listener.failed(path, "remove directory", error)


# ---- limits, plan and counters -------------------------------------------------------------------

NAMES_PER_CHECK = 256
"""The number of names between two checks whether the job stops."""
MAX_TRIES = 3
"""The number of times that a directory is emptied while entries are created in it."""
NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)

WHOLE = "w"
"""Kind of a log entry (`RemovalLog`): directories, each followed by all its files."""


class RemovalPlan(ChangePlan, frozen=True, kw_only=True):
    """The options of a removal.

    With `recursive` the contents of directories are removed too, with `enter_mounts` also on other
    mounts. `listed` removes only what a list names. `keep_root` keeps each PATH itself.
    `keep_times` preserves the times of remaining directories. `force_modes` gives the owner access
    to directories, with `restores` only until they are complete. `lifts_flags` clears inode flags
    that forbid removal. With `trash` each PATH is moved to this directory of the run. `sized` looks
    up the sizes of files. `holders` has device and inode of the parent of each PATH, where known.
    `gone` has the numbers of the PATHs that previous runs of this job have removed.
    """

    recursive: bool = False
    keep_root: bool = False
    keep_times: bool = False
    force_modes: bool = False
    restores: bool = False
    lifts_flags: bool = False
    listed: bool = False
    sized: bool = False
    holders: tuple[tuple[int, int], ...] = ()
    trash: bytes = b""
    enter_mounts: bool = False
    gone: tuple[int, ...] = ()


class RemovalCounters(ChangeCounters):
    """Counters of a removal; `vanished` entries disappeared before they could be removed.

    `named_bytes` is the disk usage of files, counted for each name, and `freed_bytes` that of files
    whose last name was removed.
    """

    vanished: int
    named_bytes: int
    freed_bytes: int

    @property
    def settled(self) -> int:
        return self.completed + self.failed + self.kept + self.vanished


# ---- trash ---------------------------------------------------------------------------------------

_NAME = re.compile(rb"frm-\d{8}T\d{6}-\d+")


def create_run(option: str, path: bytes) -> bytes:
    """Create the directory of a run in a trash and return its path. UsageError."""
    name = time.strftime("frm-%Y%m%dT%H%M%S-").encode() + b"%d" % os.getpid()
    fd = _open(option, path)
    try:
        os.mkdir(name, 0o700, dir_fd=fd)
    except OSError as error:
        text = f"{option}: cannot write to '{show(path)}': {error.strerror}"
        raise UsageError(text) from None
    finally:
        os.close(fd)
    return os.path.join(os.getcwdb(), path, name)  # the kernel resolves '..'


def move_to_run(name: bytes, directory_fd: int, run: bytes, number: int) -> None:
    """Move an entry to the directory of a run, for PATH `number`. OSError."""
    above, own = os.path.split(run)
    trash = directory(above)
    try:
        fd = os.open(own, OPEN_DIRECTORY, dir_fd=trash)
    finally:
        os.close(trash)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(1, os.strerror(1))
        os.mkdir(b"%d" % number, 0o700, dir_fd=fd)
        target = os.open(b"%d" % number, OPEN_DIRECTORY, dir_fd=fd)
        try:
            os.rename(name, name, src_dir_fd=directory_fd, dst_dir_fd=target)
        except OSError:
            os.rmdir(b"%d" % number, dir_fd=fd)
            raise
        finally:
            os.close(target)
    finally:
        os.close(fd)


def remove_empty_run(run: bytes) -> None:
    """Remove the directory of a run if it is empty."""
    above, own = os.path.split(run)
    try:
        fd = directory(above)
        try:
            os.rmdir(own, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError:  # not empty, or inaccessible: leave it
        pass


def list_runs(option: str, path: bytes) -> tuple[Root, ...]:
    """Return the directories of this user's runs in a trash. UsageError."""
    fd = _open(option, path)
    try:
        found = sorted(os.fsencode(name) for name in os.listdir(fd))
        return tuple(
            Root(path, b"", os.path.join(path, name), name)
            for name in found
            if _NAME.fullmatch(name) and _is_own(name, fd)
        )
    finally:
        os.close(fd)


def _open(option: str, path: bytes) -> int:
    try:
        fd = directory(path)
        try:
            return os.open(b".", OPEN_DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError as error:
        text = f"{option}: cannot open '{show(path)}': {error.strerror or error}"
        raise UsageError(text) from None


def _is_own(name: bytes, directory_fd: int) -> bool:
    """Return whether it is a directory of this user and not a mount point."""
    fd = os.open(name, OPEN_ENTRY_PATH, dir_fd=directory_fd)
    try:
        status = os.fstat(fd)
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        return is_own and is_same_mount(fd, directory_fd)
    finally:
        os.close(fd)
