"""Temporary write access to the entries that a run has to change.

A copy has the modes and flags of its source. A directory may prevent even its owner from listing,
searching or modifying it, and a file or directory may be immutable or append-only. A run that
updates or removes copies first removes these obstacles, and restores them if the entry remains.

Only the owner of a directory is granted rights, never any other user. Inode flags are removed only
by a run that preserves flags, because then the flags of the target were copied from the source. All
changes are made through an open descriptor, so a name that is redirected in the meantime does no
harm. At worst, a killed run leaves a directory with more rights for its owner, or an entry without
its flags.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

from pcircle.fs.attributes.mounts import is_same_mount
from pcircle.fs.attributes.xattrs import FORBIDDING, give_flags, read_flags
from pcircle.fs.entry_errors import MOUNT, EntryError
from pcircle.fs.open_flags import OPEN_DIRECTORY, OPEN_DIRECTORY_PATH, OPEN_FILE

T = TypeVar("T")

_ALL = stat.S_IRWXU
_MODE_BITS = 0o7777
_DENIED = (errno.EACCES, errno.EPERM)
_ATTEMPTS = 100  # repeated, as another rank may restore the flags of an inode with several names


class Obstacle(msgspec.Struct, frozen=True):
    """The obstacle to changing an entry: the mode of a directory, or inode flags.

    `mode` is None if the mode is not an obstacle.
    """

    mode: int | None
    flags: int

    def restore(self, fd: int) -> None:
        """Restore the obstacle, unless the mode was changed in the meantime.

        Raises OSError.
        """
        if self.mode is not None and os.fstat(fd).st_mode & _MODE_BITS == self.mode | _ALL:
            os.chmod(_path_of(fd), self.mode)
        if self.flags:
            give_flags(fd, read_flags(fd) | self.flags)


class WriteAccess(msgspec.Struct, frozen=True):
    """Obstacles that a run removes temporarily: missing rights of the owner, and inode flags."""

    owner: bool = False
    flags: bool = False

    @property
    def any(self) -> bool:
        """Return whether any obstacle is removed."""
        return self.owner or self.flags

    def may_have_caused(self, error: OSError) -> bool:
        """Return whether a removable obstacle may have caused an error."""
        return self.any and error.errno in _DENIED

    def obstacle(self, fd: int, status: os.stat_result | None = None) -> Obstacle | None:
        """Return the obstacle to changing an open entry, or None. Raises OSError.

        `status` is from an earlier look-up; another rank may have changed the mode since.
        """
        mode = None
        if self.owner:
            now = os.fstat(fd)
            status = now if status is None else status
            is_closed = stat.S_ISDIR(status.st_mode) and status.st_mode & _ALL != _ALL
            if is_closed and status.st_uid == os.geteuid():
                is_open = now.st_mode & _ALL == _ALL  # another rank has removed the obstacle
                if is_open or not _is_exempt(fd):
                    mode = status.st_mode & _MODE_BITS
        flags = read_flags(fd) & FORBIDDING if self.flags else 0
        return None if mode is None and not flags else Obstacle(mode, flags)

    def admit(self, fd: int) -> Obstacle | None:
        """Remove and return the obstacle to changing an open entry; None if nothing was removed.

        A directory may have been opened with `O_PATH`.
        """
        try:
            found = self.obstacle(fd)
            if found is None:
                return None
            mode, flags = found.mode, found.flags
            if flags and not give_flags(fd, read_flags(fd) & ~FORBIDDING):
                return None
            if mode is not None:
                os.chmod(_path_of(fd), mode | _ALL)
        except OSError:  # the change itself will report the failure
            return None
        return found

    def change(
        self,
        act: Callable[[], T],
        name: bytes,
        directory_fd: int,
        check: Callable[[os.stat_result], None] | None = None,
    ) -> T:
        """Call `act`, which changes a name; if flags forbid that, remove them during the call.

        The flags are restored if the entry still exists, under this name or a new one. `check`
        raises OSError if the entry must keep its flags. Raises OSError.
        """
        try:
            return act()
        except PermissionError as error:
            if error.errno != errno.EPERM or not self.flags:
                raise
            if not _may_have_flags(name, directory_fd):
                raise
        for attempt in range(_ATTEMPTS):
            with self.unprotected(name, directory_fd, check):
                try:
                    return act()
                except PermissionError:
                    if attempt == _ATTEMPTS - 1:
                        raise
        raise AssertionError  # the last attempt returns or raises

    @contextmanager
    def unprotected(
        self,
        name: bytes,
        directory_fd: int,
        check: Callable[[os.stat_result], None] | None = None,
    ) -> Iterator[None]:
        """Remove the flags that forbid changes from an entry; restore them if it remains.

        Flags that another rank has removed are restored by that rank. Raises OSError.
        """
        if not self.flags or not _may_have_flags(name, directory_fd):
            yield
            return
        fd = os.open(name, OPEN_FILE, dir_fd=directory_fd)
        try:
            if check is not None:
                check(os.fstat(fd))
            present = read_flags(fd)
            lifted = present & FORBIDDING
            if lifted:
                give_flags(fd, present & ~FORBIDDING)
            try:
                yield
            finally:
                if lifted and os.fstat(fd).st_nlink:
                    give_flags(fd, read_flags(fd) | lifted)
        finally:
            os.close(fd)


class Admissions:
    """Removes obstacles to changing entries for some steps of one thread, then restores them.

    Leaving the context restores them. Each entry takes a descriptor, so there should be only a few
    at a time.
    """

    def __init__(self, access: WriteAccess) -> None:
        self._access = access
        self._admitted: list[tuple[int, Obstacle]] = []

    def __enter__(self) -> Admissions:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        while self._admitted:
            fd, obstacle = self._admitted.pop()
            try:
                # The entry may belong to another user by now.
                with suppress(OSError):
                    obstacle.restore(fd)
            finally:
                os.close(fd)

    def admit(self, fd: int) -> bool:
        """Remove the obstacle to changing an open entry; return whether there was one."""
        found = self._access.admit(fd)
        if found is not None:
            self._admitted.append((os.dup(fd), found))
        return found is not None

    def admit_entry(self, name: bytes, directory_fd: int) -> bool:
        """Remove the obstacle to changing or moving a named entry; return whether there was one.

        Raises OSError.
        """
        if not (self._access.any and _may_have_flags(name, directory_fd)):
            return False
        try:
            fd = os.open(name, OPEN_FILE, dir_fd=directory_fd)
        except PermissionError:
            try:
                fd = os.open(name, OPEN_DIRECTORY_PATH, dir_fd=directory_fd)
            except NotADirectoryError:
                return False
        try:
            return self.admit(fd)
        finally:
            os.close(fd)

    def open_below(self, directory_fd: int, path: bytes) -> int:
        """Open a directory at a path below an open directory, removing obstacles if necessary.

        Raises OSError.
        """
        fd = os.dup(directory_fd)
        for name in filter(None, path.split(b"/")):
            try:
                inner = self._opened(name, fd)
            finally:
                os.close(fd)
            fd = inner
        return fd

    def _opened(self, name: bytes, directory_fd: int) -> int:
        try:
            return os.open(name, OPEN_DIRECTORY, dir_fd=directory_fd)
        except PermissionError:
            if not self._access.owner:
                raise
        self.admit(directory_fd)  # it may forbid looking up names
        inner, found = open_admitted(name, directory_fd, self._access)
        if found is not None:
            self._admitted.append((os.dup(inner), found))
        return inner


def open_admitted(
    name: bytes, directory_fd: int, access: WriteAccess
) -> tuple[int, Obstacle | None]:
    """Open a directory that could not be listed; return its descriptor and obstacle.

    Raises OSError.
    """
    fd = os.open(name, OPEN_DIRECTORY_PATH, dir_fd=directory_fd)
    try:
        if not is_same_mount(fd, directory_fd):
            raise EntryError(MOUNT, "it is a mount point")
        found = access.admit(fd)
        return os.open(b".", OPEN_DIRECTORY, dir_fd=fd), found
    finally:
        os.close(fd)


def _may_have_flags(name: bytes, directory_fd: int) -> bool:
    """Return whether a name is a file or directory, the only kinds that may be opened.

    Raises OSError.
    """
    mode = os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _is_exempt(fd: int) -> bool:
    """Return whether this process bypasses permissions, as root does with all capabilities."""
    return os.access(_path_of(fd), os.R_OK | os.W_OK | os.X_OK, effective_ids=True)


def _path_of(fd: int) -> bytes:
    """Return a path that leads to the entry to which a descriptor refers.

    It is needed because an `O_PATH` descriptor itself does not permit changes.
    """
    return b"/proc/self/fd/%d" % fd
