"""Moves replaced and removed entries to a backup directory on the target's file system.

Removed entries are renamed to their paths in the backup. Missing parent directories are created one
by one, each in its open parent, so no symbolic link is followed. They get the owner, mode and
access control list of the corresponding directory in the target. If an earlier run has used a path,
the new entry gets a suffix: `.1`, `.2` and so on.

A replaced entry reaches the backup no later than the new entry gets its name. So it is not lost if
the process is killed. There are three methods:

1. The old entry is hard-linked into the backup.
2. If hard links are not possible, the new entry is moved to the backup under a temporary name. Then
   both entries are exchanged, and the old one is renamed within the backup.
3. If exchanges are not possible either, the old entry is copied. A directory or special file is
   moved instead, and its name is free until the new entry gets it.

Therefore, every name without `.fcp-` in the backup belongs to a former entry. If the process is
killed between two calls, that entry may remain under its name followed by `.fcp-` and a suffix.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

import msgspec

from pcircle.fs.data import DataCopier
from pcircle.fs.directories import closing_fd, join_path
from pcircle.fs.entry_errors import error_context
from pcircle.fs.naming import NO_SUCH_RENAME, exchange, rename_to_free
from pcircle.fs.open_flags import CREATE_FILE, OPEN_DIRECTORY, OPEN_FILE
from pcircle.fs.safe_open import directory
from pcircle.fs.scan import blocks, encoded
from pcircle.fs.write_access import Admissions
from pcircle.walk.globs import Choose

# Hard links are impossible for directories, on some file systems and without certain permissions.
_NO_LINKS = (errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOENT)
# Some containers return EPERM for system calls that they do not know.
_NO_RENAMES = (*NO_SUCH_RENAME, errno.EPERM)
_AT_ONCE = 64 << 20
_NAME_BYTES = 255
_MAX_NAME_BYTES = 240  # leaves room for a numeric suffix
_LIST = "system.posix_acl_access"


class Backup:
    """Moves entries to the backup directory `place`, which must exist.

    Each thread has its own instance.
    """

    def __init__(self, place: bytes) -> None:
        self._place = place
        self._fd = -1

    def take(self, path: bytes, written: bytes, directory_fd: int) -> None:
        """Move the entry named `written` in a directory to the backup at `path`.

        Raise OSError on failure.
        """
        with error_context("back up"), self._above(path, directory_fd) as fd:
            _rename_anywhere(written, directory_fd, os.path.basename(path), fd)

    def hold(self, path: bytes, directory_fd: int) -> bool:
        """Link an entry of a directory into the backup at `path`.

        Return False if it cannot be linked. Raise OSError on other failures.
        """
        name = os.path.basename(path)
        with error_context("back up"), self._above(path, directory_fd) as fd:
            for suffix in count():
                there = _numbered(name, suffix)
                try:
                    os.link(
                        name, there, src_dir_fd=directory_fd, dst_dir_fd=fd, follow_symlinks=False
                    )
                except FileExistsError:
                    continue
                except OSError as error:
                    if error.errno in _NO_LINKS:
                        return False
                    raise
                break
        return True

    def swap(self, path: bytes, written: bytes, directory_fd: int) -> bool:
        """Exchange the new entry with the old one through the backup.

        The new entry first gets a temporary name in the backup. One call then gives it its final
        name and moves the old entry to the backup. If exchanges are not supported, change nothing
        and return False. Raise OSError on other failures.
        """
        name = os.path.basename(path)
        with error_context("back up"), self._above(path, directory_fd) as fd:
            try:
                there = _rename_to_free(written, directory_fd, _between(name, written), fd)
            except OSError as error:
                if error.errno in _NO_RENAMES:
                    return False
                raise
            try:
                exchange(there, name, fd, directory_fd)
            except FileNotFoundError:  # the old entry has vanished
                os.rename(there, name, src_dir_fd=fd, dst_dir_fd=directory_fd)
                return True
            except OSError as error:
                os.rename(there, written, src_dir_fd=fd, dst_dir_fd=directory_fd)
                if error.errno in _NO_RENAMES:
                    return False
                raise
            try:
                _rename_to_free(there, fd, name, fd)
            except OSError:
                exchange(there, name, fd, directory_fd)
                os.rename(there, written, src_dir_fd=fd, dst_dir_fd=directory_fd)
                raise
        return True

    def copy(self, path: bytes, written: bytes, directory_fd: int) -> bool:
        """Copy an entry to the backup at `path` if it is a file or a symbolic link.

        Return False if it is neither. The copy of a file is named `written` until it is complete
        and on disk. Raise OSError on failure.
        """
        name = os.path.basename(path)
        with error_context("back up"), self._above(path, directory_fd) as fd:
            try:
                status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
            except FileNotFoundError:
                return True  # the old entry has vanished
            with suppress(FileNotFoundError):  # a killed run may have left it
                os.unlink(written, dir_fd=fd)
            if stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(name, dir_fd=directory_fd), written, dir_fd=fd)
            elif stat.S_ISREG(status.st_mode):
                _copy(name, directory_fd, written, fd)
            else:
                return False
            _rename_anywhere(written, fd, name, fd)
        return True

    def make_way(self, path: bytes, written: bytes, directory_fd: int) -> None:
        """Move an entry to the backup at `path`, and then give its name to the new entry.

        The name does not exist between the two calls. Raise OSError on failure.
        """
        name = os.path.basename(path)
        with error_context("back up"), self._above(path, directory_fd) as fd:
            there = _rename_anywhere(name, directory_fd, name, fd)
            try:
                os.rename(written, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
            except OSError:
                os.rename(there, name, src_dir_fd=fd, dst_dir_fd=directory_fd)
                raise

    @contextmanager
    def _above(self, path: bytes, directory_fd: int) -> Iterator[int]:
        """Open the parent directory of a path in the backup, and create it if necessary.

        `directory_fd` is the corresponding directory of the target. Raise OSError on failure.
        """
        if self._fd < 0:
            self._fd = directory(self._place)
        fd = os.dup(self._fd)
        try:
            parts = list(filter(None, os.path.dirname(path).split(b"/")))
            for depth, part in enumerate(parts, 1):
                inner = _below(fd, part, (directory_fd, b"./" + b"../" * (len(parts) - depth)))
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def move(self, path: bytes, way: TargetAccess) -> None:
        """Move an entry to the backup, and restore the times of its parent directory.

        Raise OSError on failure.
        """
        above, name = os.path.split(path)
        with closing_fd(way.open(above)) as fd:
            before = os.fstat(fd)
            try:
                self.take(path, name, fd)
            except PermissionError:
                # Moving a directory changes its `..` entry, so the directory must be writable.
                if not (way.admissions.admit(fd) | way.admissions.admit_entry(name, fd)):
                    raise
                self.take(path, name, fd)
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))

    def close(self) -> None:
        """Release the directory."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class TargetAccess(msgspec.Struct, frozen=True):
    """Opens paths below an open directory, lifting protections temporarily if necessary."""

    top_fd: int
    admissions: Admissions

    def open(self, path: bytes) -> int:
        """Open a directory by its path without following symbolic links.

        Raise OSError on failure.
        """
        return self.admissions.open_below(self.top_fd, path)


def paths_to_move(path: bytes, way: TargetAccess, choose: Choose) -> list[bytes]:
    """Return the paths to move, each with everything below it.

    Entries that `choose` excludes stay, and so do their parent directories. Raise OSError if a
    directory cannot be read.
    """
    found, stays, inner = [], set(), [path]
    for here in inner:  # the list grows
        try:
            fd = way.open(here)
        except NotADirectoryError:
            continue
        with closing_fd(fd):
            for block in blocks(fd):
                count = len(block)
                choose(block, here, fd)
                if len(block) < count:
                    stays.add(here)
                names = block.directories + block.files + block.links + block.specials
                below = [join_path(here, name) for name in encoded(names)]
                inner += below[: len(block.directories)]
                found += below
    for here in reversed(inner[1:]):
        if here in stays:
            stays.add(os.path.dirname(here))
    if path not in stays:
        return [path]
    return [entry for entry in found if entry not in stays and os.path.dirname(entry) in stays]


def _numbered(name: bytes, number: int) -> bytes:
    """Return a name with a numeric suffix. Shorten a name that would be too long.

    The number 0 adds no suffix.
    """
    if not number:
        return name
    suffix = b".%d" % number
    end = _NAME_BYTES - len(suffix)
    if len(name) > end:
        while end and name[end] & 0xC0 == 0x80:  # do not cut a UTF-8 character
            end -= 1
    return name[: end or _NAME_BYTES - len(suffix)] + suffix


def _below(fd: int, name: bytes, like: tuple[int, bytes]) -> int:
    """Open a subdirectory, and create it if necessary.

    A new directory gets the access rights of the directory `like`, given as an open directory and a
    path from there.
    """
    for suffix in count():
        there = _numbered(name, suffix)
        is_new = False
        with suppress(FileExistsError):
            os.mkdir(there, 0o700, dir_fd=fd)
            is_new = True
        with suppress(NotADirectoryError):  # an earlier run has moved a file there
            inner = os.open(there, OPEN_DIRECTORY, dir_fd=fd)
            if is_new:
                _give_access(inner, like)
            return inner
    raise AssertionError  # the loop is infinite


def _give_access(fd: int, like: tuple[int, bytes]) -> None:
    """Give a new directory the owner, access control list and mode of another directory.

    The owner keeps all permissions. If these attributes cannot be set, the directory stays private.
    """
    with suppress(OSError), closing_fd(os.open(like[1], OPEN_DIRECTORY, dir_fd=like[0])) as old:
        status = os.fstat(old)
        mode = stat.S_IMODE(status.st_mode) | stat.S_IRWXU
        with suppress(PermissionError):
            os.fchown(fd, status.st_uid, status.st_gid)
        own = os.fstat(fd)
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
        try:
            os.setxattr(fd, _LIST, os.getxattr(old, _LIST))
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                raise
            with suppress(OSError):  # the new directory may have inherited a list
                os.removexattr(fd, _LIST)
        os.fchmod(fd, mode)


def _between(name: bytes, written: bytes) -> bytes:
    """Return a temporary name for an exchange; omit a `name` that would make it too long."""
    return (name if len(name) + len(written) <= _MAX_NAME_BYTES else b".fcp-swap") + written


def _rename_to_free(written: bytes, source_fd: int, name: bytes, fd: int) -> bytes:
    """Rename an entry to a free name, with a suffix if necessary, and return that name.

    Raise OSError on failure; its errno is one of `NO_SUCH_RENAME` if the file system does not
    support this call.
    """
    for suffix in count():
        there = _numbered(name, suffix)
        with suppress(FileExistsError):
            rename_to_free(written, there, source_fd, fd)
            return there
    raise AssertionError  # the loop is infinite


def _rename_anywhere(written: bytes, source_fd: int, name: bytes, fd: int) -> bytes:
    """Rename an entry to a free name, whatever the file system supports.

    If there is no rename that refuses to replace an entry, look for a free name first. Raise
    OSError on failure.
    """
    try:
        return _rename_to_free(written, source_fd, name, fd)
    except OSError as error:
        if error.errno not in _NO_RENAMES:
            raise
    for suffix in count():
        there = _numbered(name, suffix)
        try:
            os.stat(there, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(written, there, src_dir_fd=source_fd, dst_dir_fd=fd)
            return there
    raise AssertionError  # the loop is infinite


def _copy(name: bytes, source_fd: int, written: bytes, fd: int) -> None:
    """Copy a file to a new name, with as many of its attributes as possible.

    Raise OSError on failure.
    """
    with closing_fd(os.open(name, OPEN_FILE, dir_fd=source_fd)) as old:
        status = os.fstat(old)
        new = os.open(written, CREATE_FILE, 0o600, dir_fd=fd)
        try:
            with closing_fd(new):
                mover, done = DataCopier(), 0
                while part := mover.move(old, new, done, _AT_ONCE):
                    done += part
                size = os.fstat(old).st_size  # the file may have been truncated meanwhile
                if done < size:  # the file ends with a hole
                    os.ftruncate(new, size)
                _give_attributes(old, new, status)
                os.fsync(new)
        except OSError:
            os.unlink(written, dir_fd=fd)
            raise


def _give_attributes(old: int, new: int, status: os.stat_result) -> None:
    """Give a copy as many attributes of a file as possible.

    Raise OSError if its owner, mode or times cannot be set.
    """
    mode = stat.S_IMODE(status.st_mode)
    try:
        os.chown(new, status.st_uid, status.st_gid)
    except PermissionError:
        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # these bits would apply to the wrong owner
    with suppress(OSError):
        for name in os.listxattr(old):
            with suppress(OSError):
                os.setxattr(new, name, os.getxattr(old, name))
    os.fchmod(new, mode)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
