"""Preserves extended attributes, access control lists, inode flags and Lustre layouts.

Attributes that the destination does not support are counted by kind and reported once at the end.
An entry whose attributes cannot be preserved fails if the user requested their kind by name.

Symbolic links, FIFOs, sockets and devices cannot be opened safely, and the attribute calls take no
directory descriptor. The attributes of such entries are accessed through /proc. A new copy is first
opened with O_PATH, so that the path still leads to it if it is renamed.

Rank 0 determines once whether each side is on Lustre, with one system call per source file system
and one per target directory. If neither side is, no further calls are made, and small files may
take the fast path.

A layout must be set before the first byte of a file is written, and the file must be created in a
special way (`pcircle.fs.attributes.lustre`). Therefore no file takes the fast path if layouts are
set. The layout that a directory passes on to new entries is set when the directory is complete,
like its default access control list. Otherwise its entries would inherit that layout instead of
getting their own. A source directory without its own layout reports the default of the file system,
which is not copied. If a layout cannot be set, the file is created again, because a file that was
created for a layout cannot be written to until the layout is set.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import compress

from pcircle.core.encoding import show
from pcircle.core.units import CHUNK_UNIT_BYTES
from pcircle.fs.attributes.acls import ACCESS, DEFAULT, drop_default, may_have_default
from pcircle.fs.attributes.lustre import (
    ATTRIBUTE,
    DELAY,
    STRIPE,
    common_stripe_bytes,
    parse,
    read_layout,
    requested_layout,
)
from pcircle.fs.attributes.metadata import PreservedAttributes, settle_link_at
from pcircle.fs.attributes.xattrs import (
    ACL,
    FLAGS,
    XATTR,
    AttributeLoss,
    ExtendedAttributes,
    give_attribute,
    give_flags,
    kind_of,
    lists_all,
    read_attributes,
    read_flags,
)
from pcircle.fs.directories import Lease, closing_fd
from pcircle.fs.entry_errors import LAYOUT, Changed, EntryError
from pcircle.fs.native.interface import (
    ASK_LISTS,
    KEEP_ATTRIBUTES,
    KEEP_LISTS,
    KEEP_MODE,
    KEEP_OWNER,
    KEEP_TIMES,
)
from pcircle.fs.open_flags import CREATE_FILE, OPEN_ENTRY_PATH
from pcircle.ops.copy.entry.counts import CopyCounts
from pcircle.ops.copy.entry.settings import CopySettings
from pcircle.ops.copy.entry.target import Make, TemporaryNames, discard, new_file, stop_if_full

_MAX_UNIT_BYTES = 64 << 20
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# EINVAL means a pool, pattern or number of targets that the server does not support.
_REFUSED = frozenset(
    (
        errno.EOPNOTSUPP,
        errno.ENOSYS,
        errno.EPERM,
        errno.EACCES,
        errno.EINVAL,
        errno.ERANGE,
        errno.E2BIG,
        errno.ENODATA,
        errno.EPROTO,
    )
)


class AttributesLostError(OSError):
    """The destination does not support attributes that were requested by name."""

    def __init__(self, refused: Iterable[AttributeLoss]) -> None:
        kinds: dict[str, list[AttributeLoss]] = {}
        for attribute in refused:
            kinds.setdefault(attribute.kind, []).append(attribute)
        text = " and ".join(
            f"{kind}{_describe_refused(attributes)}" for kind, attributes in sorted(kinds.items())
        )
        super().__init__(errno.EOPNOTSUPP, f"destination does not support its {text}")


def _describe_refused(refused: Sequence[AttributeLoss]) -> str:
    """Return the names of lost extended attributes and the system's errors, in parentheses."""
    reasons = [
        f"{show(os.fsencode(attribute.name))}: {attribute.error.strerror}"
        for attribute in refused
        if attribute.kind == XATTR and attribute.error is not None
    ]
    return f" ({', '.join(reasons)})" if reasons else ""


class AttributeCopier:
    """Preserves extended attributes, ACLs and inode flags for one thread.

    `any` is true if any of these are requested.
    """

    def __init__(
        self, keep: PreservedAttributes, counters: CopyCounts, names: TemporaryNames
    ) -> None:
        self.names = names
        self._keep = keep
        self._counters = counters
        self._listed = keep.xattr or keep.acl
        self._lists = (ACCESS,) if keep.acl else ()
        self.any: bool = self._listed or keep.flags
        self._inherited = False
        self._closes = keep.mode and keep.ownership and keep.given is None
        self.closed: bool = False
        """True if this job created the directory and other users have no access to it yet."""
        self._owner: tuple[int, int] | None = None  # owner of the directory and of new files in it
        self._target_fd = -1
        self._listing: dict[int, bool] = {}  # by device: whether listxattr reports ACLs
        # By device: size of a file's attributes that did not fit.
        self._too_large: dict[int, int] = {}
        demanded = keep.xattr_demanded, keep.acl_demanded, keep.stripe_demanded
        self._demanded = set(compress((XATTR, ACL, STRIPE), demanded))

    def enter(
        self, target_fd: int, *, bare: bool = False, made: os.stat_result | None = None
    ) -> None:
        """Set the target directory, and determine whether it may pass on an access control list.

        `bare` means that this job created the directory (inaccessible to other users if modes are
        preserved) and that it has no default list. `made` is its status at creation.
        """
        self._inherited = self._keep.acl and not bare and may_have_default(target_fd)
        self.closed = bare and self._closes
        self._target_fd = target_fd
        self._owner = None if made is None else (made.st_uid, made.st_gid)

    def made_directory(self, target_fd: int, *, bare: bool) -> bool:
        """Prevent a new directory from passing on an inherited access control list to its entries.

        The default list of the source is set when the directory is complete. Return whether the
        directory inherited lists. `bare` means that its parent has none and that no other user can
        change the parent yet.
        """
        if bare or not (self._keep.acl and may_have_default(target_fd)):
            return False
        # If the list cannot be removed, it is removed from each entry that inherits it.
        with suppress(OSError):
            drop_default(_reach(target_fd))
        return True

    def read_file(self, fd: int, *, alone: bool = False) -> ExtendedAttributes | None:
        """Return the attributes of an open file, or None if its copy needs none.

        `alone` means that the copy may already have an access control list, even if its directory
        passes on none.
        """
        return self._read(fd, fd, lists=self._lists, alone=alone or self._inherited)

    def read_directory(self, fd: int, *, alone: bool) -> ExtendedAttributes | None:
        """Return the attributes of an open directory; `alone` is as in `read_file`."""
        lists = (ACCESS, DEFAULT) if self._keep.acl else ()
        return self._read(fd, fd, lists=lists, alone=alone, listed=True)

    def read_name(
        self, directory_fd: int, name: bytes, *, alone: bool = False
    ) -> ExtendedAttributes | None:
        """Return the attributes of an entry that cannot be opened; `alone` is as in `read_file`."""
        path = b"/proc/self/fd/%d/%s" % (directory_fd, name)
        return self._read(path, None, lists=self._lists, alone=alone or self._inherited)

    def read_link(self, directory_fd: int, name: bytes) -> ExtendedAttributes | None:
        """Return the extended attributes of a symbolic link, or None.

        A link cannot have an access control list.
        """
        if not self._keep.xattr:
            return None
        path = b"/proc/self/fd/%d/%s" % (directory_fd, name)
        return self._read(path, None, lists=(), alone=False)

    def _read(
        self,
        source: int | bytes,
        fd: int | None,
        *,
        lists: Sequence[str],
        alone: bool,
        listed: bool = False,
    ) -> ExtendedAttributes | None:
        """Return the attributes of an entry, which is open as `fd` or found by its path."""
        alone = alone and self._keep.acl
        values: list[tuple[str, bytes]] = []
        unread: list[AttributeLoss] = []
        if self._listed:
            xattr, follow = self._keep.xattr, fd is not None
            values = read_attributes(
                source, xattr=xattr, lists=lists, follow=follow, listed=listed, unread=unread
            )
        flags = read_flags(fd) if self._keep.flags and fd is not None else 0
        if not (values or flags or alone or unread):
            return None
        return ExtendedAttributes(values, flags, alone, tuple(unread))

    def plain_bits(self, device: int) -> int | None:
        """Return the `KEEP_` bits (`pcircle.fs.native.interface`) for the plain files on a device.

        Return None if no file is plain, because copies inherit lists or receive attributes that
        their sources do not have.
        """
        keep = self._keep
        if self._inherited or keep.given is not None:
            return None
        bits = KEEP_MODE * keep.mode | KEEP_OWNER * keep.ownership | KEEP_TIMES * keep.timestamps
        bits |= KEEP_ATTRIBUTES * keep.xattr
        if keep.acl:
            listed = self._listing.get(device)
            if listed is None:
                listed = self._listing[device] = lists_all(device)
            bits |= KEEP_LISTS if listed else ASK_LISTS
        return bits

    def owner_of_made(self) -> tuple[int, int]:
        """Return the owner and group of new entries in a `closed` directory, otherwise (-1, -1).

        Entries get the same group as their directory, because either the directory passes on its
        group, or this process created both.
        """
        if not self.closed:
            return -1, -1
        if self._owner is None:
            try:
                made = os.fstat(self._target_fd)
            except OSError:
                return -1, -1  # creating an entry there will report the error
            self._owner = made.st_uid, made.st_gid
        return self._owner

    def settle_made_link(self, target_fd: int, name: bytes, status: os.stat_result) -> None:
        """Set the remaining attributes of a link created in a `closed` directory. Raises OSError.

        The link is accessed by name, which is safe because no other user can change the name.
        """
        owned = self.owner_of_made() == (status.st_uid, status.st_gid)
        settle_link_at(name, target_fd, status, self._keep, owned=owned)

    def account(self, refused: Sequence[AttributeLoss], target_fd: int) -> None:
        """Count lost attributes like `lose`; raise TargetFullError if the file system is full."""
        for attribute in refused:
            self._stop_if_full(attribute, target_fd)
        self.lose(refused)

    def lose(self, refused: Iterable[AttributeLoss]) -> None:
        """Count an entry with attributes that could not be preserved, and then call `demand`."""
        self._counters.lose({attribute.kind for attribute in refused})
        self.demand(refused)

    def _stop_if_full(self, refused: AttributeLoss, target_fd: int) -> None:
        if refused.error is None or not refused.may_be_full:
            return
        device = os.fstat(target_fd).st_dev
        known = self._too_large.get(device)
        # A size that did not fit although space was free will not fit later.
        if known is None or refused.size_bytes < known:
            stop_if_full(refused.error, target_fd, self.names, refused.size_bytes)
            self._too_large[device] = refused.size_bytes

    def demand(self, refused: Iterable[AttributeLoss]) -> None:
        """Raise AttributesLostError if attributes requested by name could not be preserved.

        Attributes that are never copied are only counted.
        """
        requested = [attribute for attribute in refused if kind_of(attribute.name) is not None]
        if any(attribute.kind in self._demanded for attribute in requested):
            raise AttributesLostError(requested)

    def protect(self, fd: int, held: ExtendedAttributes | None) -> None:
        """Set the inode flags of an open and otherwise complete file or directory."""
        if held is not None and held.flags and not give_flags(fd, held.flags):
            self._counters.lose({FLAGS})


def _reach(directory_fd: int) -> int | bytes:
    """Return the descriptor of a directory, or a path if attribute calls do not accept it."""
    try:
        os.listxattr(directory_fd)
    except OSError as error:
        if error.errno == errno.EBADF:
            return path_of(directory_fd)
    return directory_fd


def path_of(fd: int) -> bytes:
    """Return a path that leads to an open file, even if the file is a symbolic link."""
    return b"/proc/self/fd/%d" % fd


@contextmanager
def pinned_path(directory_fd: int, name: bytes, kind: int) -> Iterator[bytes]:
    """Yield a path to an entry that this job has just created.

    Raises OSError if the entry has another type or several names, because another user may have
    replaced it with a hard link to a different file. The owner of that file must not be changed.
    """
    with closing_fd(os.open(name, OPEN_ENTRY_PATH, dir_fd=directory_fd)) as fd:
        status = os.fstat(fd)
        if stat.S_IFMT(status.st_mode) != kind or status.st_nlink > 1:
            raise Changed("its copy was replaced by another entry")
        yield path_of(fd)


class UnsupportedLayoutError(EntryError):
    """The layout of the source cannot be set on a new file, but was requested by name."""

    def __init__(self, why: ValueError) -> None:
        super().__init__(LAYOUT, f"its Lustre layout cannot be kept: {why}")


class LayoutCopier:
    """Sets layouts for one thread; `active` is true if new files get layouts."""

    def __init__(self, settings: CopySettings, extras: AttributeCopier) -> None:
        self._striping = settings.striping
        self._extras = extras
        self.active: bool = self._striping.gives

    def file_maker(self, source_fd: int) -> Make:
        """Return the function that creates the copy of an open source file. Raises OSError."""
        if not self.active:
            return new_file
        layout = self._striping.layout or self._source_layout(source_fd)
        return new_file if layout is None else partial(self._new_file, layout)

    def directory_layout(self, source_fd: int) -> bytes | None:
        """Return the layout that the copy of an open directory must pass on, or None."""
        if not self._striping.keep:
            return None
        layout = self._source_layout(source_fd)
        return None if layout in self._striping.defaults else layout

    def _source_layout(self, source_fd: int) -> bytes | None:
        value = read_layout(source_fd)
        if value is None:
            return None
        try:
            return requested_layout(value)
        except ValueError as why:
            try:
                self._extras.lose([AttributeLoss(STRIPE)])
            except AttributesLostError:
                raise UnsupportedLayoutError(why) from None
            return None

    def _new_file(self, layout: bytes, name: bytes, mode: int, directory_fd: int) -> int:
        if self._striping.target:
            fd = os.open(name, CREATE_FILE | DELAY, mode, dir_fd=directory_fd)
            try:
                give_attribute(fd, ATTRIBUTE, layout)
            except OSError as error:
                try:
                    made = os.fstat(fd)
                    discard(name, directory_fd, (made.st_dev, made.st_ino))
                finally:
                    os.close(fd)
                if error.errno not in _REFUSED:
                    raise
            else:
                return fd
        self._extras.lose([AttributeLoss(STRIPE)])
        return new_file(name, mode, directory_fd)

    def set_directory_layout(self, lease: Lease, layout: bytes) -> None:
        """Set the layout that a directory passes on, unless it is already set. Raises OSError."""
        directory = path_of(lease.fd) if lease.searched else lease.fd
        try:
            if self._has(directory, layout):
                return
            give_attribute(directory, ATTRIBUTE, layout)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            self._extras.lose([AttributeLoss(STRIPE)])

    def _has(self, directory: int | bytes, layout: bytes) -> bool:
        value = read_layout(directory)
        # A layout in an unknown format counts as different.
        with suppress(ValueError):
            return value is not None and requested_layout(value) == layout
        return False

    def unit_bytes(self, source_fd: int, target_fd: int) -> int:
        """Return the alignment of the chunks of a file that is open on both sides.

        Chunks begin at stripe boundaries of the target, or of the source if only the source is on
        Lustre. Thus no two ranks use the same stripe. Stripes are ignored if the alignment would
        exceed 64 MiB, because there would be too few chunks.
        """
        striping = self._striping
        if not (striping.target or striping.source):
            return CHUNK_UNIT_BYTES
        stripe_bytes = 0
        # Chunks need not be aligned, so errors are ignored.
        with suppress(OSError, ValueError):
            value = read_layout(target_fd if striping.target else source_fd)
            stripe_bytes = 0 if value is None else common_stripe_bytes(parse(value))
        unit = math.lcm(CHUNK_UNIT_BYTES, stripe_bytes or 1)
        return unit if unit <= _MAX_UNIT_BYTES else CHUNK_UNIT_BYTES

    def unit_bytes_by_name(self, source_fd: int, directory_fd: int, name: bytes) -> int:
        """Return the alignment of chunks like `unit_bytes`, for a copy that is not open."""
        if not (self._striping.target or self._striping.source):
            return CHUNK_UNIT_BYTES
        # Chunks need not be aligned, so errors are ignored.
        with (
            suppress(OSError),
            closing_fd(os.open(name, _LOOK, dir_fd=directory_fd)) as target_fd,
        ):
            return self.unit_bytes(source_fd, target_fd)
        return CHUNK_UNIT_BYTES
