"""What a status does not tell: link targets, attributes, lists, inode flags, layouts and holes.

Each costs calls, so only what is wanted is asked for, and nothing of a file system that has none:
that is known by its answer to the first question. Attributes are reached by the path of an open
directory in /proc, which leads to that very directory whatever its name is meanwhile, so no file
need be opened for them, and links, FIFOs and devices have theirs compared as well.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

from pcircle.acls import ACCESS, DEFAULT, GROUP, USER, entries_of
from pcircle.comparing.fields import (
    ACL,
    FLAGS,
    HOLES,
    NOTHING,
    OF_DETAILS,
    STRIPE,
    TARGET,
    XATTR,
)
from pcircle.comparing.sides import Fds, both, opened
from pcircle.comparing.statuses import Status, Users
from pcircle.fs.data import data_ranges
from pcircle.fs.lustre import is_lustre, read_layout, wanted
from pcircle.fs.xattrs import lists_all, read_attributes, read_flags

_NONE = frozenset((errno.EOPNOTSUPP, errno.ENOSYS))
_OF_OPEN = FLAGS | STRIPE | HOLES
_OF_PATH = XATTR | ACL

Values = Sequence[tuple[str, Any]]
Lists = Callable[[str, bytes, int], bytes]


class Details:
    """Tells which of some fields, see `OF_DETAILS`, two entries of one kind have different.

    One thread's, and its helpers'. `users` says which owners in access control lists are the same;
    None: the numbers. `lists` says what an attribute of that name of side A, whose entry has that
    mode, counts as.
    """

    def __init__(
        self,
        fields: int,
        users: Users | None = None,
        lists: Lists | None = None,
        *,
        lenient: bool = False,
    ) -> None:
        self.fields = fields & OF_DETAILS
        self._users = users
        self.lists = lists
        self._lenient = lenient  # attributes that can't be read are no difference, nor an error
        self._bare: dict[int, bool] = {}  # by device: it has no attributes at all
        self._listing: dict[int, bool] = {}  # whether its lists are among what it lists
        self._lustre: dict[int, bool] = {}

    def of_name(
        self, name: bytes, fds: Fds, a: Status, b: Status, other: bytes | None = None
    ) -> int:
        """What two entries of a name in two open directories have different; no directories.

        `other` is the name on side B, if that is another one. OSError, which knows its side.
        """
        names = name, other or name
        found = NOTHING
        kind = stat.S_IFMT(a.st_mode)
        if kind == stat.S_IFLNK and self.fields & TARGET:
            target, others = both(lambda side: os.readlink(names[side], dir_fd=fds[side]))
            found |= TARGET * (target != others)
        if self.fields & _OF_PATH:
            first, second = (b"/proc/self/fd/%d/%b" % each for each in zip(fds, names, strict=True))
            found |= self._of_paths((first, second), (a, b), follow=False)
        if kind == stat.S_IFREG and self.needs_open((a, b)):
            with opened(name, fds, other) as (files, statuses):
                found |= self.of_open(files, statuses)
        return found

    def of_directories(self, fds: Fds, a: Status, b: Status) -> int:
        """What two open directories have different. OSError, which knows its side."""
        found = NOTHING
        if self.fields & _OF_PATH:
            paths = b"/proc/self/fd/%d" % fds[0], b"/proc/self/fd/%d" % fds[1]
            found |= self._of_paths(paths, (a, b), follow=True)
        if self.fields & FLAGS and read_flags(fds[0]) != read_flags(fds[1]):
            found |= FLAGS
        return found

    def needs_open(self, statuses: tuple[Status, Status]) -> bool:
        """Whether two files have to be opened for what is wanted of them."""
        if self.fields & FLAGS:
            return True
        if self.fields & HOLES and any(map(_may_have_holes, statuses)):
            return True
        return bool(self.fields & STRIPE)

    def of_open(self, fds: Fds, statuses: tuple[Status, Status]) -> int:
        """What of two open files is only to be had of open ones. OSError, which knows its side."""
        found = NOTHING
        if self.fields & FLAGS and read_flags(fds[0]) != read_flags(fds[1]):
            found |= FLAGS
        if self.fields & STRIPE:
            first, second = both(lambda side: self._layout(fds[side], statuses[side]))
            found |= STRIPE * (first != second)
        if self.fields & HOLES and any(map(_may_have_holes, statuses)):
            unit = max(each.st_blksize for each in statuses)
            size = min(each.st_size for each in statuses)
            ranges, others = both(lambda side: _data(fds[side], size, unit))
            found |= HOLES * (ranges != others)
        return found

    def _of_paths(
        self, paths: tuple[bytes, bytes], statuses: tuple[Status, Status], *, follow: bool
    ) -> int:
        first, second = both(lambda side: self._values(paths[side], statuses[side], follow=follow))
        if self.lists is not None:
            mode, as_it_counts = statuses[0].st_mode, self.lists
            first = [(name, as_it_counts(name, value, mode)) for name, value in first]
        if first == second:
            return NOTHING
        found = NOTHING
        for names, field in (((ACCESS, DEFAULT), ACL), (None, XATTR)):
            if self.fields & field and _of(first, names) != _of(second, names):
                found |= field
        return found

    def _values(self, path: bytes, status: Status, *, follow: bool) -> Values:
        device = status.st_dev
        if self._bare.get(device):
            return ()
        lists: Sequence[str] = ()
        if self.fields & ACL and not stat.S_ISLNK(status.st_mode):
            lists = (ACCESS, DEFAULT) if stat.S_ISDIR(status.st_mode) else (ACCESS,)
        xattr = bool(self.fields & XATTR)
        if device not in self._bare:
            self._listing[device] = lists_all(device)  # before it is found in the other one
            self._bare[device] = _is_bare(path, follow=follow)
        listing = self._listing[device]
        values = read_attributes(
            path,
            xattr=xattr,
            lists=lists if listing else (),
            follow=follow,
            listed=listing,
            unread=[] if self._lenient else None,
        )
        if lists and not listing:
            values += read_attributes(path, xattr=False, lists=lists, follow=follow)
        found: list[tuple[str, Any]] = []
        for name, value in sorted(values):
            found.append((name, self._entries(value) if name in (ACCESS, DEFAULT) else value))
        return found

    def _entries(self, access: bytes) -> object:
        """A list as it is compared: where names count, users and groups by their names."""
        users = self._users
        if users is None:
            return access
        named = {USER: users.user, GROUP: users.group}
        return sorted(
            (tag, rights, named[tag](number) if tag in named else "")
            for tag, rights, number in entries_of(access)
        )

    def _layout(self, fd: int, status: Status) -> bytes | None:
        """How a file is laid out, but for what is its own: objects, targets, generations."""
        lustre = self._lustre.get(status.st_dev)
        if lustre is None:
            path = b"/proc/self/fd/%d" % fd
            lustre = self._lustre[status.st_dev] = is_lustre(path)
        layout = read_layout(fd) if lustre else None
        try:
            return None if layout is None else wanted(layout)
        except ValueError:  # of a form that is not known
            return layout


def _of(values: Values, names: tuple[str, ...] | None) -> Values:
    """Those of these names; None: those that are no access control lists."""
    if names is None:
        return [each for each in values if each[0] not in (ACCESS, DEFAULT)]
    return [each for each in values if each[0] in names]


def _is_bare(path: bytes, *, follow: bool) -> bool:
    try:
        os.listxattr(path, follow_symlinks=follow)
    except OSError as error:
        return error.errno in _NONE
    return False


def _may_have_holes(status: Status) -> bool:
    return status.st_blocks * 512 < status.st_size


def _data(fd: int, size: int, unit: int) -> list[tuple[int, int]]:
    """Where the data of a file begins and ends, in whole units, those that touch made one."""
    found: list[tuple[int, int]] = []
    for offset, length in data_ranges(fd, 0, size):
        begin, end = offset // unit * unit, -(-(offset + length) // unit) * unit
        if found and begin <= found[-1][1]:
            begin = found.pop()[0]
        found.append((begin, end))
    return found
