"""The state of an entry (owner, group, mode, access control lists), and the calls that change it.

`apply` changes an entry from one state to another with as few calls as possible. Unless the state
includes access control lists, no call grants permissions that neither state grants. For `--undo`,
the old state is stored as text, the *mark* of `pcircle.jobs.plan_file`.

The calls change an entry by name or by descriptor. They follow a symbolic link only with `-L`.
Because `chmod` follows links, entries are changed by name with `fchmodat2`, which exists since
Linux 6.6 (see `native.change_names`). On older kernels, and if the change depends on the current
state, the entry is opened with O_PATH. So the entry that was examined is changed, even if its name
is exchanged. It is changed through `/proc/self/fd`, which leads to the entry itself, even if that
is a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import msgspec

from pcircle.fs import native
from pcircle.fs.attributes import acls
from pcircle.fs.attributes.modes import SET_ID
from pcircle.fs.entry_errors import Changed
from pcircle.fs.status import AT_FDCWD
from pcircle.walk.attributes import LETTERS

_UNTOUCHED, _NONE = b"-", b"0"
_FIELDS = 7
_MAX_ID, _MAX_MODE = (1 << 32) - 2, 0o7777


class EntryState(NamedTuple):
    """The state of an entry at one moment.

    `access` and `default` are access control lists in kernel form, or None. If `with_lists` is not
    set, the lists are unknown and remain unchanged.
    """

    uid: int
    gid: int
    mode: int
    access: bytes | None = None
    default: bytes | None = None
    with_lists: bool = False


def state_of(status: os.stat_result, target: Target | None = None) -> EntryState:
    """Return the state of an entry, and read its lists if a `target` is given.

    Raise OSError if a list cannot be read.
    """
    mode = stat.S_IMODE(status.st_mode)
    if target is None or stat.S_ISLNK(status.st_mode):
        return EntryState(status.st_uid, status.st_gid, mode)
    is_directory = stat.S_ISDIR(status.st_mode)
    access = acls.read_list(target, acls.ACCESS)
    default = acls.read_list(target, acls.DEFAULT) if is_directory else None
    return EntryState(status.st_uid, status.st_gid, mode, access, default, True)


def with_set_id_cleared(mode: int) -> int:
    """Return the mode that a regular file has after the kernel has changed its owner."""
    if mode & stat.S_IXGRP:
        mode &= ~stat.S_ISGID
    return mode & ~stat.S_ISUID


def apply(
    target: Target, old: EntryState, new: EntryState, *, owner: bool = False, bits: bool = False
) -> None:
    """Change an entry from one state to another.

    If `owner` or `bits` is set, the owner or the mode is set even if it does not change. The owner
    is changed before the mode, because a change of owner clears set-id bits. Permissions that the
    new mode does not grant are withdrawn even earlier, so that the new owner and group never have
    them. Raise OSError if a call fails.
    """
    mode = old.mode
    owns = (new.uid, new.gid) != (old.uid, old.gid)
    if owns and mode & ~new.mode & 0o777:
        mode &= new.mode & 0o777
        os.chmod(target, mode)
    if owns or owner:
        uid = new.uid if owner or new.uid != old.uid else -1
        gid = new.gid if owner or new.gid != old.gid else -1
        os.chown(target, uid, gid)
        if mode & SET_ID:
            mode = stat.S_IMODE(os.stat(target).st_mode)
    if new.with_lists and new.access != old.access:
        if new.access is None:
            acls.replace_list(target, new.mode)
            mode = mode & ~0o777 | new.mode & 0o777
        else:
            os.setxattr(target, acls.ACCESS, new.access)
            mode = acls.mode_with(mode, new.access)
    if new.mode != mode or bits:
        os.chmod(target, new.mode)
    if new.with_lists and new.default != old.default:
        if new.default is None:
            acls.drop_default(target)
        else:
            os.setxattr(target, acls.DEFAULT, new.default)


# ---- marks ---------------------------------------------------------------------------------------


def mark_of(status: os.stat_result, old: EntryState) -> bytes:
    """Return the mark of an entry: its type, its inode, and the state to restore."""
    kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?").encode()
    lists = [_UNTOUCHED, _UNTOUCHED]
    if old.with_lists:
        lists = [_NONE if acl is None else acl.hex().encode() for acl in old[3:5]]
    numbers = b"%d,%d,%d,%o" % (status.st_ino, old.uid, old.gid, old.mode)
    return b",".join([kind, numbers, *lists])


def _number(digits: bytes) -> int:
    if not digits.isdigit():
        raise ValueError("not a number")
    return int(digits)


class ParsedMark(msgspec.Struct, frozen=True):
    """A parsed mark: the type and inode that the entry must have, and the state to restore."""

    kind: str
    inode: int
    state: EntryState


def read_mark(mark: bytes) -> ParsedMark:
    """Parse a mark of `mark_of`; raise ValueError if it is invalid."""
    fields = mark.split(b",")
    if len(fields) != _FIELDS:
        raise ValueError("not a state")
    inode, uid, gid = map(_number, fields[1:4])
    mode = int(fields[4], 8) if fields[4].isdigit() else -1
    if max(uid, gid) > _MAX_ID or not 0 <= mode <= _MAX_MODE:
        raise ValueError("not a state")
    with_lists = _UNTOUCHED not in fields[5:]
    access, default = (
        None if not with_lists or field == _NONE else bytes.fromhex(field.decode())
        for field in fields[5:]
    )
    state = EntryState(uid, gid, mode, access, default, with_lists)
    return ParsedMark(fields[0].decode(), inode, state)


def check_mark(root: int, mark: bytes) -> None:
    """Raise ValueError if the mark of a record is invalid; a callback of `read_plan`."""
    read_mark(mark)


# ---- calls ---------------------------------------------------------------------------------------

Target = int | bytes
"""An open file, or the `/proc/self/fd` path of a file that is open with O_PATH."""

NEVER = 1 << 62
"""A deadline for native functions that is never reached."""

_TOO_LONG = b"x" * 5000  # longer than any valid path
_FLAGS = os.O_PATH | os.O_CLOEXEC
ITSELF = _FLAGS | os.O_NOFOLLOW
"""The flags to open an entry with O_PATH without following a link."""
_IS_LINK = "it is now a symbolic link"
_READ_SEARCH, _OVERRIDE = 2, 1  # bits of CapEff


@contextmanager
def held(
    name: bytes, directory_fd: int, *, follow: bool = False
) -> Iterator[tuple[bytes, os.stat_result]]:
    """Open an entry with O_PATH, and yield its `/proc/self/fd` path and status.

    If `follow` is set, open the target of a link. Raise OSError if that fails.
    """
    flags = _FLAGS if follow else ITSELF
    fd = os.open(name, flags, dir_fd=directory_fd)
    try:
        yield target_of(fd), os.fstat(fd)
    finally:
        os.close(fd)


def is_link(name: bytes, directory_fd: int) -> bool:
    """Return whether a name refers to a symbolic link."""
    try:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode)


def target_of(path_fd: int) -> bytes:
    """Return the `/proc/self/fd` path of a file that is open with O_PATH."""
    return b"/proc/self/fd/%d" % path_fd


def change_mode(name: bytes, mode: int, directory_fd: int) -> None:
    """Change the mode of the entry with this name in a directory.

    Raise Changed if it is a symbolic link, and OSError if the call fails.
    """
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
    """Return whether the kernel can set the mode of a name without following links.

    The call is tried, because containers may refuse calls that they do not know, often with EPERM.
    """
    found = native.change_names(AT_FDCWD, [_TOO_LONG], 0, -1, -1, NEVER)
    return native.numbers(found) == [-1 - errno.ENAMETOOLONG]


def _by_path(name: bytes, mode: int, directory_fd: int) -> None:
    with held(name, directory_fd) as (target, status):
        if stat.S_ISLNK(status.st_mode):
            raise Changed(_IS_LINK)
        os.chmod(target, mode)


def ignores_modes() -> bool:
    """Return whether this process may list and search directories regardless of their modes."""
    try:
        with open("/proc/self/status", "rb") as lines:
            found = next(line for line in lines if line.startswith(b"CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    return bool(int(found.split()[1], 16) & (1 << _OVERRIDE | 1 << _READ_SEARCH))


def access_of(uid: int, gid: int, mode: int) -> int:
    """Return the permissions (rwx) of this process for a directory of this owner, group and mode.

    Access control lists and capabilities are not considered.
    """
    if os.geteuid() == uid:
        return mode >> 6 & 7
    if gid == os.getegid() or gid in os.getgroups():
        return mode >> 3 & 7
    return mode & 7
