"""The calls that change an entry: never through a link, by name or by descriptor.

`chmod` follows links. Linux 6.6 has `fchmodat2`, which can avoid that; see `native.change_names`.
On older kernels, and if the change depends on the present state, the entry is opened with O_PATH.
The entry that was examined is then the entry that is changed, even if its name is exchanged. The
descriptor is changed through `/proc/self/fd`, which leads to the entry itself, even if it is a
link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pcircle.fs import native
from pcircle.fs.entry_errors import Changed
from pcircle.fs.status import AT_FDCWD

Target = int | bytes
"""An open file, or the `/proc/self/fd` path of a file that is open with O_PATH."""

NEVER = 1 << 62
"""A deadline that never comes, for native functions."""

_TOO_LONG = b"x" * 5000  # longer than any valid path
_FLAGS = os.O_PATH | os.O_CLOEXEC
ITSELF = _FLAGS | os.O_NOFOLLOW
"""Flags to open an entry with O_PATH, without following links."""
_IS_LINK = "it is a symbolic link now"
_READ_SEARCH, _OVERRIDE = 2, 1  # bits of CapEff


@contextmanager
def held(
    name: bytes, directory_fd: int, *, follow: bool = False
) -> Iterator[tuple[bytes, os.stat_result]]:
    """Open an entry with O_PATH; yield its `/proc/self/fd` path and status.

    With `follow`, open the target of a link. OSError.
    """
    flags = _FLAGS if follow else ITSELF
    fd = os.open(name, flags, dir_fd=directory_fd)
    try:
        yield target_of(fd), os.fstat(fd)
    finally:
        os.close(fd)


def is_link(name: bytes, directory_fd: int) -> bool:
    """Return whether a name is a symbolic link."""
    try:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode)


def target_of(path_fd: int) -> bytes:
    """Return the `/proc/self/fd` path of a file that is open with O_PATH."""
    return b"/proc/self/fd/%d" % path_fd


def change_mode(name: bytes, mode: int, directory_fd: int) -> None:
    """Change the mode of a name in a directory. OSError. Raise Changed for a link."""
    if not sets_modes_by_name():
        _by_path(name, mode, directory_fd)
        return
    (outcome,) = native.numbers(native.change_names(directory_fd, [name], mode, -1, -1, NEVER))
    code = -1 - outcome
    if code == errno.EOPNOTSUPP:
        raise Changed(_IS_LINK)
    elif outcome:
        raise OSError(code, os.strerror(code))


@cache
def sets_modes_by_name() -> bool:
    """Return whether the kernel sets the mode of a name without following links.

    Containers may refuse calls that they do not know, often with EPERM.
    """
    found = native.change_names(AT_FDCWD, [_TOO_LONG], 0, -1, -1, NEVER)
    return native.numbers(found) == [-1 - errno.ENAMETOOLONG]


def _by_path(name: bytes, mode: int, directory_fd: int) -> None:
    with held(name, directory_fd) as (target, status):
        if stat.S_ISLNK(status.st_mode):
            raise Changed(_IS_LINK)
        os.chmod(target, mode)


def ignores_modes() -> bool:
    """Return whether this process may list and search any directory, whatever its mode."""
    try:
        with open("/proc/self/status", "rb") as lines:
            found = next(line for line in lines if line.startswith(b"CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    return bool(int(found.split()[1], 16) & (1 << _OVERRIDE | 1 << _READ_SEARCH))


def access_of(uid: int, gid: int, mode: int) -> int:
    """Return the rights (rwx) of this process on a directory with this owner, group and mode.

    Access control lists and capabilities are not considered.
    """
    if os.geteuid() == uid:
        return mode >> 6 & 7
    if gid == os.getegid() or gid in os.getgroups():
        return mode >> 3 & 7
    return mode & 7
