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

`BulkChanger` changes the modes or owners of many files with one call of a native function. It
changes only regular files whose status is all that the change depends on. Other entries, and
failures, are left to the code that processes single entries.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import msgspec

from pcircle.fs import native
from pcircle.fs.attributes import acls
from pcircle.fs.attributes.modes import SET_ID
from pcircle.fs.entry_errors import Changed
from pcircle.fs.scan import DirectoryBatch
from pcircle.fs.stats import StatBlockError, Stats
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
_PATH_FLAGS = os.O_PATH | os.O_CLOEXEC
ITSELF = _PATH_FLAGS | os.O_NOFOLLOW
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
    flags = _PATH_FLAGS if follow else ITSELF
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


# ---- many files at once --------------------------------------------------------------------------

Directory = int | list[int]
"""The descriptor of the directory that contains all names, or a descriptor for each name."""


class BulkChanger:
    """Changes files for one thread.

    `mode_of` computes the new permission bits from a mode. `owner` is a user and a group, of which
    one may be None. If it is given, the owner is set instead, and the kernel decides which mode
    bits remain.
    """

    def __init__(
        self, mode_of: Callable[[int], int], owner: tuple[int | None, int | None] | None = None
    ) -> None:
        self._mode_of = mode_of
        self._owner = owner
        self._stats = Stats(threads=1)
        self.is_able: bool = owner is not None or sets_modes_by_name()
        self._looks_first = False

    def look(self, directory_fd: Directory, names: Sequence[bytes]) -> bool:
        """Look up at most `CAPACITY` names; return whether all are files with a single name."""
        return not any(self.odd(directory_fd, names))

    def odd(
        self, directory_fd: Directory, names: Sequence[bytes]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Look up names; return the places of hard-linked files, and of non-files or failures."""
        try:
            self._stats.look(directory_fd, names)
        except StatBlockError as failed:
            return self._odd(len(names), failed.errors)
        return self._odd(len(names))

    def change_all(self, batch: DirectoryBatch, apart: set[int]) -> tuple[int, list[int]]:
        """Change the files of a batch, except those in `apart`; return the results of `change`."""
        names = batch.inside
        fds = batch.entry_fds()
        self._stats.put(batch.table)
        several = set(self._odd(len(names))[0]) - apart
        changed, failed = self.change(fds, names, apart | several)
        return changed, [*several, *failed]

    def _odd(self, count: int, lost: Collection[int] = ()) -> tuple[Sequence[int], Sequence[int]]:
        stats = self._stats
        is_plain = not lost and stats.has_single_names(0, count)
        if is_plain and (
            stats.are_files(count) or all(map(stat.S_ISREG, stats.column("mode", 0, count)))
        ):
            return (), ()
        several, odd = [], []
        rows = zip(stats.column("mode", 0, count), stats.column("links", 0, count), strict=True)
        for place, (mode, links) in enumerate(rows):
            if place in lost or not stat.S_ISREG(mode):
                odd.append(place)
            elif links > 1:
                several.append(place)
        return several, odd

    def change(
        self, directory_fd: Directory, names: Sequence[bytes], odd: Collection[int] = ()
    ) -> tuple[int, list[int]]:
        """Change files that were looked up, except those in `odd`.

        Return the number of changed files, and the places that failed.
        """
        count = len(names)
        if self._owner is not None:
            return self._give(directory_fd, names, odd, *self._owner)
        if count and not odd and self._stats.are_files(count):
            mode = self._stats.column("mode", 0, 1)[0]
            return self._set(directory_fd, names, range(count), mode)
        by_mode: dict[int, list[int]] = {}
        for place, mode in enumerate(self._stats.column("mode", 0, count)):
            if place not in odd:
                by_mode.setdefault(mode, []).append(place)
        changed, failed = 0, []
        for mode, places in by_mode.items():
            number, undone = self._set(directory_fd, names, places, mode)
            changed += number
            failed += undone
        return changed, failed

    def change_held(
        self, directory_fd: int, names: Sequence[bytes], modes: Sequence[int] = ()
    ) -> tuple[int, list[bytes]]:
        """Change the modes of files whose names other users may exchange.

        Each file is opened, checked and changed by its descriptor. Because that takes four calls,
        names are looked up first if few files are likely to need changes, unless `modes` are given.
        Return the number of changed files, and the names that failed or are not files.
        """
        if not names:
            return 0, []
        meant = names
        if self._looks_first and not modes:
            if not self.look(directory_fd, names):
                return 0, list(names)
            modes = self._stats.column("mode", 0, len(names))
        if modes:
            meant = [
                name
                for name, mode in zip(names, modes, strict=True)
                if self._mode_of(mode) != mode & 0o7777
            ]
        changed, failed = 0, []
        for name in meant:
            try:
                changed += self._change_opened(directory_fd, name)
            except OSError:
                failed.append(name)
        self._looks_first = 2 * changed < len(names)
        return changed, failed

    def _change_opened(self, directory_fd: int, name: bytes) -> bool:
        """Change the file that has this name now, and return whether its mode differed.

        Raise OSError if that fails, and Changed if it is not a regular file with a single name.
        """
        fd = os.open(name, ITSELF, dir_fd=directory_fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise Changed("it is not a plain file")
            new = self._mode_of(status.st_mode)
            if new == status.st_mode & 0o7777:
                return False
            os.chmod(target_of(fd), new)
            return True
        finally:
            os.close(fd)

    def _set(
        self, fd: Directory, names: Sequence[bytes], places: Sequence[int], mode: int
    ) -> tuple[int, list[int]]:
        new = self._mode_of(mode)
        return (0, []) if new == mode & 0o7777 else _change(fd, names, places, new, -1, -1)

    def _give(
        self,
        fd: Directory,
        names: Sequence[bytes],
        odd: Collection[int],
        uid: int | None,
        gid: int | None,
    ) -> tuple[int, list[int]]:
        """Change the owners of files that were looked up; see `change`."""
        count = len(names)
        uids, gids = self._stats.column("uid", 0, count), self._stats.column("gid", 0, count)
        places = [
            place
            for place, (user, group) in enumerate(zip(uids, gids, strict=True))
            if (uid not in (None, user) or gid not in (None, group)) and place not in odd
        ]
        numbers = [-1 if number is None else number for number in (uid, gid)]
        return _change(fd, names, places, -1, *numbers)


def _change(
    fd: Directory, names: Sequence[bytes], places: Sequence[int], mode: int, uid: int, gid: int
) -> tuple[int, list[int]]:
    """Change the mode, user and group of the files at `places`.

    Return the number of changed files, and the places that failed.
    """
    if len(places) < len(names):
        names = [names[place] for place in places]
        fd = fd if isinstance(fd, int) else [fd[place] for place in places]
    outcomes = native.change_names(fd, list(names), mode, uid, gid, NEVER)
    if outcomes.count(0) == len(outcomes):
        return len(places), []
    codes = zip(places, native.numbers(outcomes), strict=True)
    failed = [place for place, code in codes if code]
    return len(places) - len(failed), failed
