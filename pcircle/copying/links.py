"""Links: symbolic ones are copied themselves, and a copy is given one more name."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from pcircle.copying import target
from pcircle.copying.existing import Existing, Taken, is_same_special
from pcircle.copying.extras import held_by_path
from pcircle.copying.means import Means
from pcircle.fs.metadata import settle_link
from pcircle.fs.trouble import MISMATCH, Changed, Trouble, trying
from pcircle.fs.write_access import WriteAccess
from pcircle.fs.xattrs import give_attributes

_BLOCK_BYTES = 512 << 10
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LinkCopier:
    """Copies links with these means."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def link(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = True
    ) -> os.stat_result | None:
        """Copy a symbolic link itself. OSError, which says what was tried, if it can't be.

        If it has several names that are to be one in the copy as well, and was
        not `claimed`, nothing is done, and its status returned.
        """
        means, names = self._means, (source_fd, source, target_fd, name)
        keep, existing = means.settings.keep, means.settings.existing
        means.watch.attempt(0)
        # Whether a name of several stays is decided when it is its turn, but for -n.
        early = existing.stays or claimed or not keep.links
        if existing.decides and early and means.stays(*names):
            return None
        with trying("read the link"):
            if keep.links and not claimed:
                status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
                if means.is_one_of_several(status, source_fd):
                    return status
                if existing.decides and not early and means.stays(*names):
                    return None
            text = os.readlink(source, dir_fd=source_fd)
        with trying("create the copy of"):
            if not self._copy(text, *names):
                means.skip(target_fd, name)
                return None
        means.watch.link(name, text)
        means.counts.links += 1
        means.counts.sized += 1
        return None

    def _copy(
        self, text: bytes, source_fd: int, source: bytes, target_fd: int, name: bytes
    ) -> bool:
        """Make a link of this text; false if what has the name stays."""
        means, written, made = self._means, name, False
        try:
            try:
                os.symlink(text, name, dir_fd=target_fd)
            except FileExistsError:
                means.names.collisions.check(target_fd, name)
                if self._stays(text, target_fd, name):
                    return False
                target.replaceable(target_fd, name, means.names)
                written = means.names.next()
                os.symlink(text, written, dir_fd=target_fd)
            made = True
            if means.settings.keep.any:
                with trying("set the attributes of the copy of"):
                    self._settle(source_fd, source, target_fd, written)
            if written != name:
                with trying("rename the copy of"):
                    means.names.replace(written, name, target_fd)
        except OSError as error:
            try:
                target.stop_if_full(error, target_fd, means.names)
            finally:
                if made:
                    target.discard(written, target_fd)
            raise
        return True

    def _settle(self, source_fd: int, source: bytes, target_fd: int, written: bytes) -> None:
        extras = self._means.extras
        status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
        held = extras.of_link(source_fd, source)
        if held is None and extras.closed:
            extras.settle_made_link(target_fd, written, status)
            return
        with held_by_path(target_fd, written, stat.S_IFLNK) as path:
            if held is not None:
                extras.account(give_attributes(path, held), target_fd)
            settle_link(path, status, self._means.settings.keep)

    def _stays(self, text: bytes, target_fd: int, name: bytes) -> bool:
        """Whether what has a link's name is left there. If it is to stay, it was not before."""
        settings = self._means.settings
        existing = settings.existing
        if settings.is_ours(os.stat(name, dir_fd=target_fd, follow_symlinks=False)):
            return False
        return existing.stays or (existing.same and target.is_link(text, target_fd, name))


def link_again(
    means: Means,
    first: tuple[int, bytes],
    new: tuple[int, bytes],
    made: int,
    is_copy: Callable[[], bool],
) -> int:
    """Give a copy one more name, a directory's and its own; returns the mode of what is linked.

    It must be what has the mark `made` (`target.mark_of`). Inode flags that forbid it are lifted
    for it. `is_copy` compares its content with the source's, which is needed where a file of its
    size and time is replaced. Taken if something else is to stay; OSError.
    """
    act = partial(_make_link, means, first, new, made, is_copy)
    access = WriteAccess(flags=means.settings.keep.flags)
    return access.change(act, first[1], first[0], partial(_check_made, made))


def _check_made(made: int, status: os.stat_result) -> None:
    """Changed unless a file is the finished copy that has the mark `made`."""
    if target.mark_of(status) != made:
        raise Changed("its copy was replaced while it was made")


def _make_link(
    means: Means,
    first: tuple[int, bytes],
    new: tuple[int, bytes],
    made: int,
    is_copy: Callable[[], bool],
) -> int:
    """Link, and return the mode of what is linked."""
    (first_fd, first_name), (fd, name) = first, new
    written = name
    means.names.check(name, fd)
    try:
        _link(first_fd, first_name, fd, name)
    except FileExistsError:
        means.names.collisions.check(fd, name)
        existing = means.settings.existing
        old = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if means.settings.is_ours(old):
            existing = Existing()
        if existing.stays:
            raise Taken from None
        if target.mark_of(old) == made:
            if existing.decides:
                raise Taken from None
            return old.st_mode  # of an earlier run
        first_status = os.stat(first_name, dir_fd=first_fd, follow_symlinks=False)
        if not is_same_special(first_status, old):
            target.replaceable(fd, name, means.names)
            alike = _looks_like(first_status, old)
            if alike and not (same_content(first, new) or is_copy()):
                why = "the copy that it is a link to has its size and time, but other content"
                raise Trouble(MISMATCH, why) from None
        written = means.names.next()
        _link(first_fd, first_name, fd, written)
    except OSError as error:
        target.stop_if_full(error, fd, means.names)
        raise
    try:
        status = os.stat(written, dir_fd=fd, follow_symlinks=False)
        _check_made(made, status)
        if written != name:
            means.names.replace(written, name, fd)
    except OSError:
        target.discard(written, fd)
        raise
    return status.st_mode


def _looks_like(copy: os.stat_result, old: os.stat_result) -> bool:
    """Return whether two files have one size, not zero, and one time.

    Where that decides which files are right, the file that a link replaces can be the only right
    one: if two inodes of the source have one size and time, and names of both are one inode in the
    target.
    """
    regular = stat.S_ISREG(copy.st_mode) and stat.S_ISREG(old.st_mode)
    same = (copy.st_size, copy.st_mtime_ns) == (old.st_size, old.st_mtime_ns)
    return regular and same and copy.st_size > 0


def same_content(*names: tuple[int, bytes], follow: bool = False) -> bool:
    """Return whether files have the same bytes up to their ends; each a directory and a name."""
    flags = _READ & ~(os.O_NOFOLLOW * follow)
    with ExitStack() as stack:
        fds = []
        for directory_fd, name in names:
            fds.append(os.open(name, flags, dir_fd=directory_fd))
            stack.callback(os.close, fds[-1])
        offset = 0
        while True:
            first, *others = (os.pread(fd, _BLOCK_BYTES, offset) for fd in fds)
            if any(each != first for each in others):
                return False
            if not first:
                return True
            offset += len(first)


def _link(first_fd: int, first_name: bytes, fd: int, name: bytes) -> None:
    os.link(first_name, name, src_dir_fd=first_fd, dst_dir_fd=fd, follow_symlinks=False)
