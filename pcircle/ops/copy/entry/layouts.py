"""Lustre layouts of new files and directories, and chunk boundaries that match them.

Rank 0 determines once whether each side is on Lustre, with one system call per source file system
and one per target directory. If neither side is, no further calls are made, and small files may
take the fast path.

A layout must be set before the first byte of a file is written, and the file must be created in a
special way (`pcircle.fs.attributes.lustre`). Therefore no file takes the fast path if layouts are
set. The layout that a directory passes on to new entries is set when the directory is complete,
like its default access control list. Otherwise its entries would inherit that layout instead of
getting their own. A source directory without its own layout reports the default of the file system,
which is not copied.

A layout that the server rejects or the destination does not support is reported and counted like
other lost attributes (`pcircle.ops.copy.entry.attributes`). The file is then created again, because
a file that was created for a layout cannot be written to until the layout is set.
"""

from __future__ import annotations

import errno
import math
import os
from contextlib import suppress
from functools import partial

from pcircle.core.units import CHUNK_UNIT_BYTES
from pcircle.fs.attributes.lustre import (
    ATTRIBUTE,
    DELAY,
    STRIPE,
    common_stripe_bytes,
    parse,
    read_layout,
    requested_layout,
)
from pcircle.fs.attributes.xattrs import AttributeLoss, give_attribute
from pcircle.fs.directories import Lease, closing_fd
from pcircle.fs.entry_errors import LAYOUT, EntryError
from pcircle.fs.open_flags import CREATE_FILE
from pcircle.ops.copy.entry.attributes import AttributeCopier, AttributesLostError, path_of
from pcircle.ops.copy.entry.settings import CopySettings
from pcircle.ops.copy.entry.target import Make, discard, new_file

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
