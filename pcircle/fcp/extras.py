"""What a copy keeps beyond mode, owner and times: attributes, access control lists, inode flags.

What the destination can't hold is counted by kind and told once, at the end of
the run; a kind that was asked for by name must be kept, or the entry fails.

Links, FIFOs, sockets and devices can't be opened, and their attributes can't
be reached relative to a directory. They are opened for their path alone and
reached through /proc, which leads to that very file whatever happens to its
name meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pcircle.fcp.counters import Counters
from pcircle.fs.lustre import STRIPE
from pcircle.fs.metadata import Keep, settle_file
from pcircle.fs.xattrs import (
    ACL,
    FLAGS,
    XATTR,
    Held,
    drop_acl,
    give_flags,
    has_acl,
    read_attributes,
    read_flags,
)


class NotKept(OSError):
    """The destination can't hold what was asked for by name."""

    def __init__(self, kinds: set[str]) -> None:
        names = " and ".join(sorted(kinds))
        super().__init__(errno.EOPNOTSUPP, f"the destination does not hold its {names}")


class Extras:
    """A rank's means to keep them. `any` tells that some are wanted."""

    def __init__(self, keep: Keep, counters: Counters) -> None:
        self._keep = keep
        self._counters = counters
        self._listed = keep.xattr or keep.acl
        self.any = self._listed or keep.flags
        self._inherited = False
        self._demanded = {
            kind
            for kind, demanded in (
                (XATTR, keep.xattr_demanded),
                (ACL, keep.acl_demanded),
                (STRIPE, keep.stripe_demanded),
            )
            if demanded
        }

    def enter(self, target_fd: int) -> None:
        """What follows is made in this directory, which may hand down access control lists."""
        self._inherited = self._keep.acl and has_acl(_reach(target_fd))

    def made_directory(self, target_fd: int) -> None:
        """A directory was made: let it hand down nothing to what is put into it.

        Its source's default list comes when it is complete.
        """
        if self._keep.acl:
            # If it can't be removed, each thing that inherits it is rid of it by itself.
            with suppress(OSError):
                drop_acl(_reach(target_fd))

    def of_file(self, fd: int) -> Held | None:
        """What an open file has of them; None if there is nothing to be done."""
        return self._held(self._read(fd, follow=True), fd, alone=self._inherited)

    def of_directory(self, fd: int) -> Held | None:
        """What an open directory has of them; its copy keeps no list that it has not."""
        return self._held(self._read(fd, follow=True), fd, alone=self._keep.acl)

    def of_name(self, directory_fd: int, name: bytes) -> Held | None:
        """What an entry that can't be opened has of them."""
        path = b"/proc/self/fd/%d/%s" % (directory_fd, name)
        return self._held(self._read(path, follow=False), None, alone=self._inherited)

    def _read(self, source: int | bytes, *, follow: bool) -> list[tuple[str, bytes]]:
        if not self._listed:
            return []
        keep = self._keep
        return read_attributes(source, xattr=keep.xattr, acl=keep.acl, follow=follow)

    def _held(self, values: list[tuple[str, bytes]], fd: int | None, *, alone: bool) -> Held | None:
        flags = read_flags(fd) if self._keep.flags and fd is not None else 0
        return Held(values, flags, alone) if values or flags or alone else None

    def settle(self, fd: int, out: int, status: os.stat_result) -> None:
        """Give an open copy that has its name all that is to be kept; NotKept, uncounted."""
        held = self.of_file(fd)
        lost = settle_file(out, status, self._keep, held)
        self.demand(lost)
        self._counters.lose(lost)
        self.protect(out, held)

    def account(self, lost: set[str]) -> None:
        """Count what could not be kept; then as of `demand`."""
        self._counters.lose(lost)
        self.demand(lost)

    def demand(self, lost: set[str]) -> None:
        """NotKept if something was asked for by name that could not be kept."""
        if lost & self._demanded:
            raise NotKept(lost)

    def protect(self, fd: int, held: Held | None) -> None:
        """Give an open, otherwise finished file or directory the inode flags."""
        if held is not None and held.flags and not give_flags(fd, held.flags):
            self._counters.lose({FLAGS})


def _reach(directory_fd: int) -> int | bytes:
    """A directory as attributes are reached: one that is open for its path alone goes by /proc."""
    try:
        os.listxattr(directory_fd)
    except OSError as error:
        if error.errno == errno.EBADF:
            return path_of(directory_fd)
    return directory_fd


def path_of(fd: int) -> bytes:
    """A path that leads to an open file itself, a symbolic link too."""
    return b"/proc/self/fd/%d" % fd


@contextmanager
def held_by_path(directory_fd: int, name: bytes, kind: int) -> Iterator[bytes]:
    """A path to an entry that this job has just made.

    OSError if it is of another kind, or has more than this name: somebody has
    put another file's hard link in its place, which must not get its owner.
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=directory_fd)
    try:
        status = os.fstat(fd)
        if stat.S_IFMT(status.st_mode) != kind or status.st_nlink > 1:
            raise OSError(errno.ESTALE, "its copy was replaced while it was made")
        yield path_of(fd)
    finally:
        os.close(fd)
