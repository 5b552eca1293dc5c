"""Which attributes a copy is given, and the order in which that is safe.

Owner first, because changing it clears the set-user-id bits; then the mode,
which brings them back; then the times, which everything before would move.
Until then a file that is to have a preserved mode is 0600 and nobody else's.

Changing the owner needs privilege. Without it, as with cp, the group alone is
tried, no failure is reported, and the set-user-id and set-group-id bits are
not given to a file that belongs to somebody else than in the source.
"""

from __future__ import annotations

import errno
import os
import stat

import msgspec

_ID_BITS = stat.S_ISUID | stat.S_ISGID
_NOT_ALLOWED = (errno.EPERM, errno.EINVAL)


class Keep(msgspec.Struct, frozen=True, array_like=True):
    """Which attributes of the source a copy keeps."""

    mode: bool = False
    ownership: bool = False
    timestamps: bool = False

    @property
    def any(self) -> bool:
        """Whether there is anything to set."""
        return self.mode or self.ownership or self.timestamps


def settle_file(fd: int, source: os.stat_result, keep: Keep) -> None:
    """Give an open file the attributes to keep. OSError if one can't be set."""
    mode = stat.S_IMODE(source.st_mode)
    if keep.ownership and not _chown_file(fd, source):
        mode &= ~_ID_BITS
    if keep.mode:
        os.fchmod(fd, mode)
    if keep.timestamps:
        os.utime(fd, ns=(source.st_atime_ns, source.st_mtime_ns))


def _chown_file(fd: int, source: os.stat_result) -> bool:
    try:
        os.fchown(fd, source.st_uid, source.st_gid)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED or not os.geteuid():
            raise
    else:
        return True
    try:
        os.fchown(fd, -1, source.st_gid)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
    now = os.fstat(fd)
    return (now.st_uid, now.st_gid) == (source.st_uid, source.st_gid)


def settle_name(name: bytes, dir_fd: int, source: os.stat_result, keep: Keep) -> None:
    """Give a name that is not opened (a link, a directory) the attributes; never follows."""
    mode = stat.S_IMODE(source.st_mode)
    link = stat.S_ISLNK(source.st_mode)
    if keep.ownership and not _chown_name(name, dir_fd, source):
        mode &= ~_ID_BITS
    if keep.mode and not link:
        os.chmod(name, mode, dir_fd=dir_fd)
    if keep.timestamps:
        times = (source.st_atime_ns, source.st_mtime_ns)
        os.utime(name, ns=times, dir_fd=dir_fd, follow_symlinks=False)


def _chown_name(name: bytes, dir_fd: int, source: os.stat_result) -> bool:
    try:
        os.chown(name, source.st_uid, source.st_gid, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED or not os.geteuid():
            raise
    else:
        return True
    try:
        os.chown(name, -1, source.st_gid, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
    now = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    return (now.st_uid, now.st_gid) == (source.st_uid, source.st_gid)
