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
attributes that can't be kept (`pcircle.fcp.extras`). A file that is refused its
layout is made anew: the one that was made could not be written to.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from pcircle.errors import UsageError
from pcircle.fcp.extras import Extras, NotKept, path_of
from pcircle.fcp.plan import CHUNK_UNIT_BYTES, DIRECTORY, Plan, Root, Striping
from pcircle.fcp.target import CREATE, Make, discard, new_file
from pcircle.fs.directories import Lease
from pcircle.fs.lustre import (
    ALL_STRIPES,
    ATTRIBUTE,
    DELAY,
    MOST_STRIPES,
    STRIPE,
    STRIPE_UNIT_BYTES,
    Stripes,
    common_stripe_bytes,
    compose,
    default_of_file_system,
    is_lustre,
    parse,
    read_layout,
    wanted,
)
from pcircle.fs.metadata import Keep
from pcircle.fs.trouble import LAYOUT, Trouble
from pcircle.fs.xattrs import Refused, give_attribute
from pcircle.ui.names import show
from pcircle.units import parse_size

KEEP, DEFAULT = "keep", "default"
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


def read_wish(text: str) -> str | Stripes:
    """What `--stripe` asks for: `KEEP`, `DEFAULT` or a layout. UsageError for nonsense."""
    if text in (KEEP, DEFAULT):
        return text
    many, colon, size = text.partition(":")
    if many in ("all", "-1"):
        count = ALL_STRIPES
    elif many.isascii() and many.isdecimal() and len(many) < 9 and int(many) <= MOST_STRIPES:
        count = int(many)
    else:
        raise UsageError(
            f"--stripe: '{text}' is none of keep, default, COUNT and COUNT:SIZE "
            f"(COUNT up to {MOST_STRIPES}, or all)"
        )
    if not colon:
        return Stripes(count=count)
    try:
        stripe_bytes = parse_size(size)
    except ValueError as error:
        raise UsageError(f"--stripe: {error}") from None
    if stripe_bytes % STRIPE_UNIT_BYTES or not 0 < stripe_bytes < 1 << 32:
        raise UsageError(f"--stripe: '{size}' is not a multiple of 64k below 4G")
    return Stripes(count=count, stripe_bytes=stripe_bytes)


def demand(text: str | None, keep: Keep) -> Keep:
    """What is to be kept, with what `--stripe` says. UsageError if it makes no sense."""
    if text is None:
        return keep
    wish = read_wish(text)
    if wish != KEEP and keep.stripe_demanded:
        raise UsageError(f"--stripe={text} and --preserve=stripe exclude each other")
    return replace(keep, stripe=wish == KEEP, stripe_demanded=wish != DEFAULT)


def striping_of(text: str | None, keep: Keep, roots: Sequence[Root]) -> Striping:
    """What is done about layouts, by what `--stripe` says and by what `demand` has made of `keep`.

    UsageError if it can't be done because something is not on Lustre.
    """
    wish = DEFAULT if text is None else read_wish(text)
    targets = {root.target_holder: root.target_shown for root in roots}
    strange = [shown for holder, shown in targets.items() if not is_lustre(holder)]
    on_target = not strange
    sources = _sources(roots)
    on_source = {place: is_lustre(place) for place in sources}
    if wish != DEFAULT and strange:
        raise UsageError(f"--stripe={text}: '{show(strange[0])}' is not on Lustre")
    for place, found in on_source.items():
        if wish == KEEP and not found:
            raise UsageError(f"--stripe={text}: '{show(sources[place])}' is not on Lustre")
    keeps = keep.stripe and any(on_source.values()) and (on_target or keep.stripe_demanded)
    return Striping(
        source=any(on_source.values()),
        target=on_target,
        keep=keeps,
        layout=compose(wish) if isinstance(wish, Stripes) else b"",
        defaults=_defaults(on_source) if keeps else (),
    )


def _sources(roots: Sequence[Root]) -> dict[bytes, bytes]:
    """A directory on each file system that a source is on, and how that source is shown."""
    first: dict[int, Root] = {}
    for root in roots:
        first.setdefault(root.file_system, root)
    return {
        os.path.join(root.source_holder, root.source_name)
        if root.kind == DIRECTORY
        else root.source_holder: root.source_shown
        for root in first.values()
    }


def _defaults(places: dict[bytes, bool]) -> tuple[bytes, ...]:
    found = set()
    for place in (place for place, lustre in places.items() if lustre):
        # Out of reach, or not to be kept: then it is no directory's either.
        with suppress(OSError, ValueError):
            value = default_of_file_system(place)
            if value is not None:
                found.add(wanted(value))
    return tuple(sorted(found))


class Unkeepable(Trouble):
    """The source has a layout that no new file can be given."""

    def __init__(self, why: ValueError) -> None:
        super().__init__(LAYOUT, f"its Lustre layout can't be kept: {why}")


class Layouts:
    """A rank's means to give layouts. `active` tells that new files get some."""

    def __init__(self, plan: Plan, extras: Extras) -> None:
        self._striping = plan.striping
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
