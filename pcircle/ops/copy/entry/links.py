"""Copies symbolic links as links, and adds hard links to copies."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from pcircle.fs.attributes.metadata import settle_link
from pcircle.fs.attributes.xattrs import give_attributes
from pcircle.fs.entry_errors import MISMATCH, Changed, EntryError, error_context
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.write_access import WriteAccess
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import pinned_path
from pcircle.ops.copy.entry.observers import CopyContext
from pcircle.ops.copy.entry.overwrite import (
    DestinationExistsError,
    OverwriteOptions,
    is_same_special,
)

_BLOCK_BYTES = 512 << 10


class LinkCopier:
    """Copies symbolic links for one thread."""

    def __init__(self, context: CopyContext) -> None:
        self._context = context

    def link(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = True
    ) -> os.stat_result | None:
        """Copy a symbolic link as a link. Raises OSError with the operation that failed.

        If the link has other names that must become hard links, it is copied only if this name is
        `claimed`; otherwise its status is returned.
        """
        context, names = self._context, (source_fd, source, target_fd, name)
        keep, existing = context.settings.keep, context.settings.existing
        context.observers.attempt(0)
        # Unless -n is given, hard-linked names are compared with existing entries only when
        # claimed.
        early = existing.stays or claimed or not keep.links
        if existing.decides and early and context.skip_existing(*names):
            return None
        with error_context("read the link"):
            if keep.links and not claimed:
                status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
                if context.is_one_of_several(status, source_fd):
                    return status
                if existing.decides and not early and context.skip_existing(*names):
                    return None
            text = os.readlink(source, dir_fd=source_fd)
        with error_context("create the copy of"):
            if not self._copy(text, *names):
                context.skip(target_fd, name)
                return None
        context.observers.link(name, text)
        context.counts.links += 1
        context.counts.sized += 1
        return None

    def _copy(
        self, text: bytes, source_fd: int, source: bytes, target_fd: int, name: bytes
    ) -> bool:
        """Create a link with this text; return False if an existing entry stays."""
        context, written, made = self._context, name, False
        try:
            try:
                os.symlink(text, name, dir_fd=target_fd)
            except FileExistsError:
                context.names.collisions.check(target_fd, name)
                if self._stays(text, target_fd, name):
                    return False
                target.replaceable(target_fd, name, context.names)
                written = context.names.next()
                os.symlink(text, written, dir_fd=target_fd)
            made = True
            if context.settings.keep.any:
                with error_context("set the attributes of the copy of"):
                    self._settle(source_fd, source, target_fd, written)
            if written != name:
                with error_context("rename the copy of"):
                    context.names.replace(written, name, target_fd)
        except OSError as error:
            target.give_up(error, target_fd, context.names, written if made else None)
            raise
        return True

    def _settle(self, source_fd: int, source: bytes, target_fd: int, written: bytes) -> None:
        extras = self._context.extras
        status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
        held = extras.read_link(source_fd, source)
        if held is None and extras.closed:
            extras.settle_made_link(target_fd, written, status)
            return
        with pinned_path(target_fd, written, stat.S_IFLNK) as path:
            if held is not None:
                extras.account(give_attributes(path, held), target_fd)
            settle_link(path, status, self._context.settings.keep)

    def _stays(self, text: bytes, target_fd: int, name: bytes) -> bool:
        """Return whether an entry that appeared under the name of the link stays."""
        settings = self._context.settings
        existing = settings.existing
        if settings.is_ours(os.stat(name, dir_fd=target_fd, follow_symlinks=False)):
            return False
        return existing.stays or (existing.same and target.is_link(text, target_fd, name))


def add_hard_link(
    context: CopyContext,
    first: tuple[int, bytes],
    new: tuple[int, bytes],
    made: int,
    is_copy: Callable[[], bool],
) -> int:
    """Add the name `new` to the copy `first`, both given as (directory, name); return its mode.

    The copy must have the mark `made` (`target.mark_of`). Inode flags that forbid linking are
    lifted temporarily. `is_copy` returns whether the copy has the content of the source; it is
    called if a file of the same size and time would be replaced. Raises OSError, or
    DestinationExistsError if an existing entry must stay.
    """
    act = partial(_make_link, context, first, new, made, is_copy)
    access = WriteAccess(flags=context.settings.keep.flags)
    return access.change(act, first[1], first[0], partial(_check_made, made))


def _check_made(made: int, status: os.stat_result) -> None:
    """Raise Changed unless a file is the complete copy with the mark `made`."""
    if target.mark_of(status) != made:
        raise Changed("its copy was replaced by another entry")


def _make_link(
    context: CopyContext,
    first: tuple[int, bytes],
    new: tuple[int, bytes],
    made: int,
    is_copy: Callable[[], bool],
) -> int:
    """Create the link, and return the mode of the linked file."""
    (first_fd, first_name), (fd, name) = first, new
    written = name
    context.names.check(name, fd)
    try:
        _link(first_fd, first_name, fd, name)
    except FileExistsError:
        context.names.collisions.check(fd, name)
        existing = context.settings.existing
        old = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if context.settings.is_ours(old):
            existing = OverwriteOptions()
        if existing.stays:
            raise DestinationExistsError from None
        if target.mark_of(old) == made:
            if existing.decides:
                raise DestinationExistsError from None
            return old.st_mode  # a previous run created the link
        first_status = os.stat(first_name, dir_fd=first_fd, follow_symlinks=False)
        if not is_same_special(first_status, old):
            target.replaceable(fd, name, context.names)
            looks_alike = _looks_like(first_status, old)
            if looks_alike and not (same_content(first, new) or is_copy()):
                why = "its first copy has the same size and time, but different contents"
                raise EntryError(MISMATCH, why) from None
        written = context.names.next()
        _link(first_fd, first_name, fd, written)
    except OSError as error:
        target.stop_if_full(error, fd, context.names)
        raise
    try:
        status = os.stat(written, dir_fd=fd, follow_symlinks=False)
        _check_made(made, status)
        if written != name:
            context.names.replace(written, name, fd)
    except OSError:
        target.discard(written, fd)
        raise
    return status.st_mode


def _looks_like(copy: os.stat_result, old: os.stat_result) -> bool:
    """Return whether two non-empty regular files have the same size and modification time.

    Two inodes of the source may have the same size and time while their names share one inode in
    the target. If size and time decide which files are up to date, a link could then replace the
    only correct file.
    """
    regular = stat.S_ISREG(copy.st_mode) and stat.S_ISREG(old.st_mode)
    same = (copy.st_size, copy.st_mtime_ns) == (old.st_size, old.st_mtime_ns)
    return regular and same and copy.st_size > 0


def same_content(*names: tuple[int, bytes], follow: bool = False) -> bool:
    """Return whether files, given as (directory, name), have the same content."""
    flags = OPEN_FILE & ~(os.O_NOFOLLOW * follow)
    with ExitStack() as stack:
        fds = []
        for directory_fd, name in names:
            fds.append(os.open(name, flags, dir_fd=directory_fd))
            stack.callback(os.close, fds[-1])
        offset = 0
        while True:
            first, *remaining = (os.pread(fd, _BLOCK_BYTES, offset) for fd in fds)
            if any(data != first for data in remaining):
                return False
            if not first:
                return True
            offset += len(first)


def _link(first_fd: int, first_name: bytes, fd: int, name: bytes) -> None:
    os.link(first_name, name, src_dir_fd=first_fd, dst_dir_fd=fd, follow_symlinks=False)
