"""The state of an entry that these tools change: owner, group, mode and access control lists.

A *state* is all of these at one moment. To change an entry is to bring it from one state to another
(`apply`), with the fewest calls, and in an order that grants no additional rights in between. The
old state is kept as text for `--undo`: the *mark* of `pcircle.jobs.plan_file`.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

import msgspec

from pcircle.fs.attributes.acls import (
    ACCESS,
    DEFAULT,
    drop_default,
    mode_with,
    read_list,
    replace_list,
)
from pcircle.fs.attributes.modes import SET_ID
from pcircle.tools.fchmod.state.calls import Target
from pcircle.walk.attributes import LETTERS

_UNTOUCHED, _NONE = b"-", b"0"
_FIELDS = 7
_MAX_ID, _MAX_MODE = (1 << 32) - 2, 0o7777


class EntryState(NamedTuple):
    """The state of an entry. `access` and `default` are lists in kernel form, or None.

    Without `with_lists`, the lists are unknown and stay unchanged.
    """

    uid: int
    gid: int
    mode: int
    access: bytes | None = None
    default: bytes | None = None
    with_lists: bool = False


def state_of(status: os.stat_result, target: Target | None = None) -> EntryState:
    """Return the state of an entry; its lists are read from the `target`. OSError."""
    mode = stat.S_IMODE(status.st_mode)
    if target is None or stat.S_ISLNK(status.st_mode):
        return EntryState(status.st_uid, status.st_gid, mode)
    is_directory = stat.S_ISDIR(status.st_mode)
    access = read_list(target, ACCESS)
    default = read_list(target, DEFAULT) if is_directory else None
    return EntryState(status.st_uid, status.st_gid, mode, access, default, True)


def with_set_id_cleared(mode: int) -> int:
    """Return the mode of a regular file after a change of owner, as the kernel leaves it."""
    if mode & stat.S_IXGRP:
        mode &= ~stat.S_ISGID
    return mode & ~stat.S_ISUID


def apply(
    target: Target, old: EntryState, new: EntryState, *, owner: bool = False, bits: bool = False
) -> None:
    """Bring an entry from one state to another. OSError.

    The `owner`, and the `bits` of the mode, are set even if they are unchanged. The owner changes
    first, because that clears set-id bits. Before that, rights are withdrawn that the change of
    owner would grant beyond both states.
    """
    mode = old.mode
    owns = (new.uid, new.gid) != (old.uid, old.gid)
    if owns and not new.with_lists and mode & ~new.mode & 0o777:
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
            replace_list(target, new.mode)
            mode = mode & ~0o777 | new.mode & 0o777
        else:
            os.setxattr(target, ACCESS, new.access)
            mode = mode_with(mode, new.access)
    if new.mode != mode or bits:
        os.chmod(target, new.mode)
    if new.with_lists and new.default != old.default:
        if new.default is None:
            drop_default(target)
        else:
            os.setxattr(target, DEFAULT, new.default)


# ---- marks -------------------------------------------------------------------------------------


def mark_of(status: os.stat_result, old: EntryState) -> bytes:
    """Return the mark of an entry: its kind, its inode, and the state to restore."""
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
    """A parsed mark: the required kind and inode, and the state to restore."""

    kind: str
    inode: int
    state: EntryState


def read_mark(mark: bytes) -> ParsedMark:
    """Parse a mark of `mark_of`. ValueError."""
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
    """Raise ValueError if a mark in a record is invalid."""
    read_mark(mark)
