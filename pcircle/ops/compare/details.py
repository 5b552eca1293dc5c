"""Compares fields that stat does not return, such as link targets and attributes.

Each of these fields costs system calls, so a field is read only if it is requested and the file
system supports it. The reply to the first call shows whether it does. Attributes are accessed
through the path of an open directory in /proc, which always leads to that directory. Therefore
files need not be opened for them, and the attributes of links, FIFOs and devices can be compared
too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence

from pcircle.fs.attributes.acls import ACCESS, DEFAULT, GROUP, USER, entries_of
from pcircle.fs.attributes.lustre import is_lustre, read_layout, requested_layout
from pcircle.fs.attributes.xattrs import lists_all, read_attributes, read_flags
from pcircle.fs.data import data_ranges
from pcircle.ops.compare.fields import (
    ACL,
    FLAGS,
    HOLES,
    NOTHING,
    OF_DETAILS,
    STRIPE,
    TARGET,
    XATTR,
)
from pcircle.ops.compare.statuses import Fds, Status, UserNames, both, open_files

_UNSUPPORTED_ERRORS = frozenset((errno.EOPNOTSUPP, errno.ENOSYS))
_OPEN_FIELDS = FLAGS | STRIPE | HOLES
_PATH_FIELDS = XATTR | ACL

Values = Sequence[tuple[str, bytes]]
Lists = Callable[[str, bytes, int], bytes]


class DetailComparer:
    """Compares the fields in `OF_DETAILS` of two entries of the same type; not thread-safe.

    `users` determines which owners in access control lists are equal; if it is None, their IDs are
    compared. `lists` converts each attribute of side A before the comparison, given its name and
    value and the mode of the entry.
    """

    def __init__(
        self,
        fields: int,
        users: UserNames | None = None,
        lists: Lists | None = None,
        *,
        lenient: bool = False,
    ) -> None:
        self.fields: int = fields & OF_DETAILS
        self._users = users
        self.lists = lists
        self._lenient = lenient  # whether unreadable attributes count as equal
        self._unsupported: dict[int, bool] = {}  # by device: whether attributes are unsupported
        self._listing: dict[int, bool] = {}  # by device: whether listxattr reports ACLs
        self._lustre: dict[int, bool] = {}

    def compare_names(
        self, name: bytes, fds: Fds, a: Status, b: Status, other: bytes | None = None
    ) -> int:
        """Compare entries other than directories with the same name in two open directories.

        `other` is the name on side B if it differs. Raises OSError with the side of the error.
        """
        names = name, other or name
        found = NOTHING
        kind = stat.S_IFMT(a.st_mode)
        if kind == stat.S_IFLNK and self.fields & TARGET:
            target, other_value = both(lambda side: os.readlink(names[side], dir_fd=fds[side]))
            found |= TARGET * (target != other_value)
        if self.fields & _PATH_FIELDS:
            first, second = (
                b"/proc/self/fd/%d/%b" % value for value in zip(fds, names, strict=True)
            )
            found |= self._of_paths((first, second), (a, b), follow=False)
        if kind == stat.S_IFREG and self.needs_open((a, b)):
            with open_files(name, fds, other) as (files, statuses):
                found |= self.compare_open(files, statuses)
        return found

    def compare_directories(self, fds: Fds, a: Status, b: Status) -> int:
        """Compare two open directories. Raises OSError with the side of the error."""
        found = NOTHING
        if self.fields & _PATH_FIELDS:
            paths = b"/proc/self/fd/%d" % fds[0], b"/proc/self/fd/%d" % fds[1]
            found |= self._of_paths(paths, (a, b), follow=True)
        if self.fields & FLAGS and read_flags(fds[0]) != read_flags(fds[1]):
            found |= FLAGS
        return found

    def needs_open(self, statuses: tuple[Status, Status]) -> bool:
        """Return whether two files must be opened for the requested fields."""
        if self.fields & (FLAGS | STRIPE):
            return True
        return bool(self.fields & HOLES) and any(map(_may_have_holes, statuses))

    def compare_open(self, fds: Fds, statuses: tuple[Status, Status]) -> int:
        """Compare the fields that need open files. Raises OSError with the side of the error."""
        found = NOTHING
        if self.fields & FLAGS and read_flags(fds[0]) != read_flags(fds[1]):
            found |= FLAGS
        if self.fields & STRIPE:
            first, second = both(lambda side: self._layout(fds[side], statuses[side]))
            found |= STRIPE * (first != second)
        if self.fields & HOLES and any(map(_may_have_holes, statuses)):
            unit = max(value.st_blksize for value in statuses)
            size = min(value.st_size for value in statuses)
            ranges, other_value = both(lambda side: _data(fds[side], size, unit))
            found |= HOLES * (ranges != other_value)
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
            if self.fields & field and _select(first, names) != _select(second, names):
                found |= field
        return found

    def _values(self, path: bytes, status: Status, *, follow: bool) -> Values:
        device = status.st_dev
        if self._unsupported.get(device):
            return ()
        lists: Sequence[str] = ()
        if self.fields & ACL and not stat.S_ISLNK(status.st_mode):
            lists = (ACCESS, DEFAULT) if stat.S_ISDIR(status.st_mode) else (ACCESS,)
        xattr = bool(self.fields & XATTR)
        if device not in self._unsupported:
            # This is set first, because an entry in `_unsupported` means that both are known.
            self._listing[device] = lists_all(device)
            self._unsupported[device] = _lacks_attributes(path, follow=follow)
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
        return [
            (name, self._entries(value) if name in (ACCESS, DEFAULT) else value)
            for name, value in sorted(values)
        ]

    def _entries(self, access: bytes) -> bytes:
        """Return an access control list in comparable form, with names if requested."""
        users = self._users
        if users is None:
            return access
        named = {USER: users.user, GROUP: users.group}
        entries = sorted(
            (tag, rights, named[tag](number) if tag in named else "")
            for tag, rights, number in entries_of(access)
        )
        return repr(entries).encode()

    def _layout(self, fd: int, status: Status) -> bytes | None:
        """Return the layout of a file without its unique objects, targets and generations."""
        lustre = self._lustre.get(status.st_dev)
        if lustre is None:
            path = b"/proc/self/fd/%d" % fd
            lustre = self._lustre[status.st_dev] = is_lustre(path)
        layout = read_layout(fd) if lustre else None
        try:
            return None if layout is None else requested_layout(layout)
        except ValueError:  # the format is unknown
            return layout


def _select(values: Values, names: tuple[str, ...] | None) -> Values:
    """Return the attributes with these names or, if None, all except access control lists."""
    if names is None:
        return [value for value in values if value[0] not in (ACCESS, DEFAULT)]
    return [value for value in values if value[0] in names]


def _lacks_attributes(path: bytes, *, follow: bool) -> bool:
    try:
        os.listxattr(path, follow_symlinks=follow)
    except OSError as error:
        return error.errno in _UNSUPPORTED_ERRORS
    return False


def _may_have_holes(status: Status) -> bool:
    return status.st_blocks * 512 < status.st_size


def _data(fd: int, size: int, unit: int) -> list[tuple[int, int]]:
    """Return the (begin, end) of each data range, in whole units, with adjacent ranges merged."""
    found: list[tuple[int, int]] = []
    for offset, length in data_ranges(fd, 0, size):
        begin, end = offset // unit * unit, -(-(offset + length) // unit) * unit
        if found and begin <= found[-1][1]:
            begin = found.pop()[0]
        found.append((begin, end))
    return found
