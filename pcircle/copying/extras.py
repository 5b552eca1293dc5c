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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from pcircle.acls import ACCESS, DEFAULT, drop_default, hands_down
from pcircle.copying.counts import Counts
from pcircle.copying.target import Names, stop_if_full
from pcircle.fs.lustre import STRIPE
from pcircle.fs.metadata import Keep, settle_link_at
from pcircle.fs.native.pure import (
    ASK_LISTS,
    KEEP_ATTRIBUTES,
    KEEP_LISTS,
    KEEP_MODE,
    KEEP_OWNER,
    KEEP_TIMES,
)
from pcircle.fs.trouble import Changed
from pcircle.fs.xattrs import (
    ACL,
    FLAGS,
    XATTR,
    Held,
    Refused,
    give_flags,
    kind_of,
    lists_all,
    read_attributes,
    read_flags,
)
from pcircle.names import show


class NotKept(OSError):
    """The destination can't hold what was asked for by name."""

    def __init__(self, refused: Iterable[Refused]) -> None:
        kinds: dict[str, list[Refused]] = {}
        for each in refused:
            kinds.setdefault(each.kind, []).append(each)
        text = " and ".join(f"{kind}{_named(each)}" for kind, each in sorted(kinds.items()))
        super().__init__(errno.EOPNOTSUPP, f"destination does not support its {text}")


def _named(refused: Sequence[Refused]) -> str:
    """The attributes of a kind, by name and with what the system said."""
    each = [
        f"{show(os.fsencode(one.name))}: {one.error.strerror}"
        for one in refused
        if one.kind == XATTR and one.error is not None
    ]
    return f" ({', '.join(each)})" if each else ""


class Extras:
    """A rank's means to keep them. `any` tells that some are wanted."""

    def __init__(self, keep: Keep, counters: Counts, names: Names) -> None:
        self.names = names
        self._keep = keep
        self._counters = counters
        self._listed = keep.xattr or keep.acl
        self._lists = (ACCESS,) if keep.acl else ()
        self.any = self._listed or keep.flags
        self._inherited = False
        self._closes = keep.mode and keep.ownership and keep.given is None
        self.closed = False
        """What is made now is nobody else's to reach until the directory that it is in is done."""
        self._owner: tuple[int, int] | None = None  # of the directory, and so of what is made there
        self._target_fd = -1
        self._listing: dict[int, bool] = {}  # by device: whether its lists are among what it lists
        self._too_large: dict[int, int] = {}  # sizes of all of a file's attributes, by file system
        self._demanded = {
            kind
            for kind, demanded in (
                (XATTR, keep.xattr_demanded),
                (ACL, keep.acl_demanded),
                (STRIPE, keep.stripe_demanded),
            )
            if demanded
        }

    def enter(
        self, target_fd: int, *, bare: bool = False, made: os.stat_result | None = None
    ) -> None:
        """What follows is made in this directory, which may hand down access control lists.

        `bare` tells that it does not, and that this job has made it, closed to others if modes are
        kept; `made` is what it was then.
        """
        self._inherited = self._keep.acl and not bare and hands_down(target_fd)
        self.closed = bare and self._closes
        self._target_fd = target_fd
        self._owner = None if made is None else (made.st_uid, made.st_gid)

    def made_directory(self, target_fd: int, *, bare: bool) -> bool:
        """A directory was made: let it hand down nothing to what is put into it.

        Its source's default list comes when it is complete. True if it has inherited lists;
        `bare` tells that what it was made in, which nobody else can change yet, hands none down.
        """
        if bare or not (self._keep.acl and hands_down(target_fd)):
            return False
        # If it can't be removed, each thing that inherits it is rid of it by itself.
        with suppress(OSError):
            drop_default(_reach(target_fd))
        return True

    def of_file(self, fd: int, *, alone: bool = False) -> Held | None:
        """What an open file has of them; None if there is nothing to be done.

        With `alone` its copy may have a list of its own, also where none is handed down.
        """
        return self._held(*self._read(fd, follow=True), fd, alone=alone or self._inherited)

    def of_directory(self, fd: int, *, alone: bool) -> Held | None:
        """What an open directory has of them; `alone` as of a file."""
        values: list[tuple[str, bytes]] = []
        unread: list[Refused] = []
        if self._listed:
            lists = (ACCESS, DEFAULT) if self._keep.acl else ()
            values = read_attributes(
                fd, xattr=self._keep.xattr, lists=lists, listed=True, unread=unread
            )
        return self._held(values, unread, fd, alone=alone and self._keep.acl)

    def of_name(self, directory_fd: int, name: bytes, *, alone: bool = False) -> Held | None:
        """What an entry that can't be opened has of them; `alone` as of a file."""
        path = b"/proc/self/fd/%d/%s" % (directory_fd, name)
        return self._held(*self._read(path, follow=False), None, alone=alone or self._inherited)

    def of_link(self, directory_fd: int, name: bytes) -> Held | None:
        """What a symbolic link has of them; it can have no access control list."""
        if not self._keep.xattr:
            return None
        path = b"/proc/self/fd/%d/%s" % (directory_fd, name)
        unread: list[Refused] = []
        values = read_attributes(path, xattr=True, lists=(), follow=False, unread=unread)
        return self._held(values, unread, None, alone=False)

    def _read(
        self, source: int | bytes, *, follow: bool
    ) -> tuple[list[tuple[str, bytes]], list[Refused]]:
        unread: list[Refused] = []
        if not self._listed:
            return [], unread
        xattr, lists = self._keep.xattr, self._lists
        return read_attributes(
            source, xattr=xattr, lists=lists, follow=follow, unread=unread
        ), unread

    def _held(
        self,
        values: list[tuple[str, bytes]],
        unread: list[Refused],
        fd: int | None,
        *,
        alone: bool,
    ) -> Held | None:
        alone = alone and self._keep.acl
        flags = read_flags(fd) if self._keep.flags and fd is not None else 0
        if not (values or flags or alone or unread):
            return None
        return Held(values, flags, alone, tuple(unread))

    def plain_bits(self, device: int) -> int | None:
        """Return what plain files of a device keep, see `pcircle.fs.native.pure`.

        None where no file is plain: its copy inherits lists, or is given what it has not.
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
        """Return the owner and the group of what is made where it is `closed`; else -1 each.

        The group of the process and of the directory above are one there, or the directory has
        handed down its own.
        """
        if not self.closed:
            return -1, -1
        if self._owner is None:
            try:
                made = os.fstat(self._target_fd)
            except OSError:
                return -1, -1  # what is made there says why
            self._owner = made.st_uid, made.st_gid
        return self._owner

    def settle_made_link(self, target_fd: int, name: bytes, status: os.stat_result) -> None:
        """Give a link that was made where it is `closed` what it has not yet. OSError.

        By its name, which nobody else can give to anything else there.
        """
        settle_link_at(
            name,
            target_fd,
            status,
            self._keep,
            owned=self.owner_of_made() == (status.st_uid, status.st_gid),
        )

    def account(self, refused: Sequence[Refused], target_fd: int) -> None:
        """As `lose`; NoSpace if the reason is that the target of that directory is full."""
        for each in refused:
            self._stop_if_full(each, target_fd)
        self.lose(refused)

    def lose(self, refused: Iterable[Refused]) -> None:
        """Count what could not be kept; then as of `demand`."""
        self._counters.lose({each.kind for each in refused})
        self.demand(refused)

    def _stop_if_full(self, refused: Refused, target_fd: int) -> None:
        if refused.error is None or not refused.may_be_full:
            return
        device = os.fstat(target_fd).st_dev
        known = self._too_large.get(device)
        # What was too large once is too large again, whatever room there is.
        if known is None or refused.size_bytes < known:
            stop_if_full(refused.error, target_fd, self.names, refused.size_bytes)
            self._too_large[device] = refused.size_bytes

    def demand(self, refused: Iterable[Refused]) -> None:
        """NotKept if something was asked for by name that could not be kept.

        What no copy can have is counted, and demanded of none.
        """
        wanted = [each for each in refused if kind_of(each.name) is not None]
        if any(each.kind in self._demanded for each in wanted):
            raise NotKept(wanted)

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
            raise Changed("its copy was replaced while it was made")
        yield path_of(fd)
    finally:
        os.close(fd)
