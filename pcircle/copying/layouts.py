"""Lustre layouts of what is copied: which ones new files and directories get, and chunks to fit.

Whether a side is on Lustre is looked up once, on rank 0, by one system call
for each file system that is a source and one for the destination. Where
neither is, that was all: no file and no directory costs a call more, and small
files go the plain way.

A layout is given to a file before its first byte, which takes another way of
creating it (`pcircle.fs.lustre`), so with layouts no file goes the plain way.
A directory gets the layout that it hands down when it is complete, as it gets
its default access control list, so that nothing below inherits it instead of
what it had in the source. A source directory answers with its file system's
default where it has none of its own; that one is not kept.

What the server refuses, or a destination can't hold, is told and counted like
attributes that can't be kept (`pcircle.copying.extras`). A file that is refused its
layout is made anew: the one that was made could not be written to.
"""

from __future__ import annotations

import errno
import math
import os
from contextlib import suppress
from functools import partial

from pcircle.copying.extras import Extras, NotKept, path_of
from pcircle.copying.settings import CHUNK_UNIT_BYTES, Settings
from pcircle.copying.target import CREATE, Make, discard, new_file
from pcircle.fs.directories import Lease
from pcircle.fs.lustre import (
    ATTRIBUTE,
    DELAY,
    STRIPE,
    common_stripe_bytes,
    parse,
    read_layout,
    wanted,
)
from pcircle.fs.trouble import LAYOUT, Trouble
from pcircle.fs.xattrs import Refused, give_attribute

_LARGEST_UNIT_BYTES = 64 << 20
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# EINVAL: a pool, a pattern or a number of targets that this server does not have.
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


class Unkeepable(Trouble):
    """The source has a layout that no new file can be given."""

    def __init__(self, why: ValueError) -> None:
        super().__init__(LAYOUT, f"its Lustre layout can't be kept: {why}")


class Layouts:
    """A rank's means to give layouts. `active` tells that new files get some."""

    def __init__(self, settings: Settings, extras: Extras) -> None:
        self._striping = settings.striping
        self._extras = extras
        self.active = self._striping.gives

    def maker(self, source_fd: int) -> Make:
        """How to make the copy of an open source file. OSError if that can't be told."""
        if not self.active:
            return new_file
        layout = self._striping.layout or self._of(source_fd)
        return new_file if layout is None else partial(self._new_file, layout)

    def of_directory(self, source_fd: int) -> bytes | None:
        """The layout that the copy of an open source directory is to hand down, if any."""
        if not self._striping.keep:
            return None
        layout = self._of(source_fd)
        return None if layout in self._striping.defaults else layout

    def _of(self, source_fd: int) -> bytes | None:
        value = read_layout(source_fd)
        if value is None:
            return None
        try:
            return wanted(value)
        except ValueError as why:
            try:
                self._extras.lose([Refused(STRIPE)])
            except NotKept:
                raise Unkeepable(why) from None
            return None

    def _new_file(self, layout: bytes, name: bytes, mode: int, directory_fd: int) -> int:
        if self._striping.target:
            fd = os.open(name, CREATE | DELAY, mode, dir_fd=directory_fd)
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
        self._extras.lose([Refused(STRIPE)])
        return new_file(name, mode, directory_fd)

    def give_directory(self, lease: Lease, layout: bytes) -> None:
        """Have a directory hand a layout down, unless it does so already. OSError if it can't."""
        directory = path_of(lease.fd) if lease.searched else lease.fd
        try:
            if self._has(directory, layout):
                return
            give_attribute(directory, ATTRIBUTE, layout)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            self._extras.lose([Refused(STRIPE)])

    def _has(self, directory: int | bytes, layout: bytes) -> bool:
        value = read_layout(directory)
        # What can't be understood is something else.
        with suppress(ValueError):
            return value is not None and wanted(value) == layout
        return False

    def unit_bytes(self, source_fd: int, target_fd: int) -> int:
        """What chunks of a file, both of whose sides are open, begin at multiples of.

        Whole stripes of the target, or else of the source, so that two ranks do
        not write to one; unless they are so large that chunks would be too few.
        """
        striping = self._striping
        if not (striping.target or striping.source):
            return CHUNK_UNIT_BYTES
        stripe_bytes = 0
        # It is no reason to fail, nor to be told, that chunks are not aligned.
        with suppress(OSError, ValueError):
            value = read_layout(target_fd if striping.target else source_fd)
            stripe_bytes = 0 if value is None else common_stripe_bytes(parse(value))
        unit = math.lcm(CHUNK_UNIT_BYTES, stripe_bytes or 1)
        return unit if unit <= _LARGEST_UNIT_BYTES else CHUNK_UNIT_BYTES

    def unit_bytes_by_name(self, source_fd: int, directory_fd: int, name: bytes) -> int:
        """As `unit_bytes`, of a copy that is not open."""
        if not (self._striping.target or self._striping.source):
            return CHUNK_UNIT_BYTES
        with suppress(OSError):  # as there
            target_fd = os.open(name, _LOOK, dir_fd=directory_fd)
            try:
                return self.unit_bytes(source_fd, target_fd)
            finally:
                os.close(target_fd)
        return CHUNK_UNIT_BYTES
