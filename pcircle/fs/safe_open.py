"""Names that the user gave, opened so that nobody else decides what they lead to.

Who may write a directory may put a symbolic link there under a name that
somebody else, root for one, is about to write or read: a report then lands in
another file, or a list comes from one. So a path is walked component by
component, each opened in the one before and never through a link. A link is
followed only if it is *trusted*: it belongs to the user or to root, or lies in
a directory that nobody else may write. What counts is the link and the
directory as they were opened, so a link that is put there in the meantime is
not followed either. The kernel has a rule of this kind (protected_symlinks,
protected_regular, protected_fifos in sysctl(8)), for directories that are
sticky, where it is switched on.

And nothing is made or replaced on procfs, sysfs or devtmpfs, nor in /dev: a
name there is no file, and root would break the machine. Descriptors are
something else: the user's own shell has opened /dev/stdout, /dev/fd/3 and what
`>(command)` stands for. They are used as they are, like terminals, /dev/null
and its kin.

Files that options name may be opened the plain way, along any link, while `any_link` is entered
(`--insecure-links`); what is walked, and where a copy goes, is as before.

A leaf of the package: it imports only what knows about mounts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from pcircle.fs.attributes.mounts import type_of_device

__all__ = [
    "Place",
    "PseudoDirectories",
    "Untrusted",
    "any_link",
    "create",
    "directory",
    "make_directory",
    "named",
    "opened",
    "place_of",
    "reading",
    "refuse_foreign",
    "refuse_pseudo",
    "replace",
    "writing",
]

_O_PATH: int = getattr(os, "O_PATH", 0)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SEARCHED = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40  # as the kernel
_PSEUDO = frozenset((b"proc", b"sysfs", b"devtmpfs", b"devpts"))
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ALL_USERS = 2**32 - 1
_NO_FILE = "names in /proc, /sys and /dev are not accepted"
# /dev/null, /dev/zero and /dev/full of Linux, by which they are known in any directory.
_HARMLESS = frozenset(os.makedev(1, minor) for minor in (3, 5, 7))


class Untrusted(OSError):
    """A name leads where somebody else may have chosen, or is none of a file. It has no errno."""

    kind = "untrusted"

    def __init__(self, why: str) -> None:
        super().__init__(None, why)


class Place:
    """A name in an open directory; what a path of the user leads to, links followed.

    `path` is as the user could give it instead. `status` is None if nothing has
    the name. An empty name means the directory itself. `descriptor` tells that
    the name is one of this process's open descriptors.
    """

    def __init__(
        self,
        fd: int,
        name: bytes,
        path: bytes,
        status: os.stat_result | None,
        *,
        descriptor: bool = False,
    ) -> None:
        self.fd = fd
        self.name = name
        self.path = path
        self.status = status
        self.descriptor = descriptor

    @property
    def is_directory(self) -> bool:
        """Whether a directory has the name."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)


_TRUSTED, _ANY, _NONE = range(3)  # links that are followed
# Threads that are started meanwhile begin with the default: they open no files of options.
_of_named = ContextVar("_of_named", default=_TRUSTED)


@contextmanager
def any_link(wanted: bool) -> Iterator[None]:
    """Within it, if that is `wanted`, files that options name are opened along any link."""
    token = _of_named.set(_ANY if wanted else _of_named.get())
    try:
        yield
    finally:
        _of_named.reset(token)


@contextmanager
def place_of(path: bytes) -> Iterator[Place]:
    """Walk to what a path leads to. Untrusted, or OSError as of opening it."""
    with _place(path, _TRUSTED) as place:
        yield place


@contextmanager
def named(path: bytes) -> Iterator[Place]:
    """As `place_of`, of a file that an option names: see `any_link`."""
    with _place(path, _of_named.get()) as place:
        yield place


@contextmanager
def _place(path: bytes, links: int) -> Iterator[Place]:
    walk = _Walk(path, links)
    try:
        yield walk.end()
    finally:
        os.close(walk.fd)


class _Walk:
    """The walk along a path; `fd` is the directory that it has come to."""

    def __init__(self, path: bytes, links: int) -> None:
        if not path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._left = [path]
        self._links = 0
        self._followed = links
        self._at = b"/" if path.startswith(b"/") else b""
        self.fd = os.open(self._at or b".", _SEARCHED)

    def end(self) -> Place:
        """Go as far as there are components; the last one need not exist."""
        while (found := self._next()) is not None:
            name, last = found
            if not last:
                self._enter(name)
                continue
            try:
                fd = os.open(name, _NAME, dir_fd=self.fd)
            except FileNotFoundError:
                return Place(self.fd, name, os.path.join(self._at, name), None)
            try:
                status = os.fstat(fd)
                if not stat.S_ISLNK(status.st_mode):
                    return Place(self.fd, name, os.path.join(self._at, name), status)
                if self._is_of_descriptors(status):
                    return Place(self.fd, name, self._at, status, descriptor=True)
                self._follow(fd, status, name, b"")
            finally:
                os.close(fd)
        return Place(self.fd, b"", self._at or b".", os.fstat(self.fd))

    def _next(self) -> tuple[bytes, bool] | None:
        """Return the next component, and whether it is the last; None at the end."""
        while self._left:
            name, slash, rest = self._left.pop().partition(b"/")
            if slash and rest.strip(b"/"):
                self._left.append(rest)
            if name in (b"", b"."):
                continue
            # A slash at the end demands a directory.
            return name, name != b".." and not slash and not self._left
        return None

    def _enter(self, name: bytes) -> None:
        """Go into a directory, or along a trusted link."""
        try:
            try:
                fd = os.open(name, _DIRECTORY, dir_fd=self.fd)
            except PermissionError:
                fd = os.open(name, _SEARCHED, dir_fd=self.fd)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            link = os.open(name, _NAME, dir_fd=self.fd)
            try:
                status = os.fstat(link)
                if not stat.S_ISLNK(status.st_mode):
                    raise
                self._follow(link, status, name, b"/")
            finally:
                os.close(link)
            return
        self._go(fd, os.path.join(self._at, name))

    def _go(self, fd: int, at: bytes) -> None:
        os.close(self.fd)
        self.fd, self._at = fd, at

    def _follow(self, fd: int, status: os.stat_result, name: bytes, slash: bytes) -> None:
        """Go on along a link, which is open; Untrusted if another user could have made it."""
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        holder = os.fstat(self.fd)
        path = os.path.join(self._at, name)
        if self._followed == _NONE:
            raise Untrusted(f"'{_printable(path)}' is a symbolic link (--strict-operands)")
        if self._followed == _TRUSTED and not _is_trusted_link(status, holder):
            raise Untrusted(
                f"'{_printable(path)}' is a symbolic link that another user could have created; "
                "specify the path of its target instead"
            )
        if type_of_device(status.st_dev) == b"proc":
            # Not by its text: it may lead to what has no name, and is the kernel's own.
            self._go(os.open(name, _SEARCHED & ~os.O_NOFOLLOW, dir_fd=self.fd), path)
            return
        text = os.readlink(b"", dir_fd=fd)
        self._left.append(text + slash)
        if text.startswith(b"/"):
            self._go(os.open(b"/", _SEARCHED), b"/")

    def _is_of_descriptors(self, status: os.stat_result) -> bool:
        """Whether the directory that the walk has come to is that of this process's descriptors."""
        if type_of_device(status.st_dev) != b"proc":
            return False
        holder = os.fstat(self.fd)
        for own in (b"/proc/self/fd", b"/proc/thread-self/fd"):
            with suppress(OSError):
                if os.path.samestat(os.stat(own), holder):
                    return True
        return False


def _printable(path: bytes) -> str:
    text = path.decode(errors="surrogateescape")
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(sign: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in sign.encode(errors="surrogateescape"))


def _trusted_owners() -> set[int]:
    return {0, os.geteuid()}


def _is_trusted_link(link: os.stat_result, holder: os.stat_result) -> bool:
    owners = _trusted_owners()
    if link.st_uid in owners:
        return True
    if holder.st_mode & _OTHERS_WRITE:
        return False
    return holder.st_uid in owners or (
        # In a container of one user root's files are nobody's: there is no telling them apart.
        link.st_uid == holder.st_uid == _unmapped_owner()
    )


def _unmapped_owner() -> int | None:
    """Return the number of owners unknown to this user namespace; None if all are known."""
    try:
        with open("/proc/self/uid_map", "rb") as known:
            if any(int(line.split()[2]) >= _ALL_USERS for line in known):
                return None
        with open("/proc/sys/kernel/overflowuid", "rb") as number:
            return int(number.read())
    except (OSError, ValueError, IndexError):
        return None


class PseudoDirectories:
    """Tells directories that hold no files, but what the kernel shows as such: /proc, /sys, /dev.

    What it has found out about a file system it remembers.
    """

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}
        self._devices: tuple[int, int] | None = None
        with suppress(OSError):  # in a container it is a directory like others
            devices = os.stat(b"/dev")
            self._devices = (devices.st_dev, devices.st_ino)

    def has(self, status: os.stat_result) -> bool:
        """Whether a directory is one of these."""
        known = self._known.get(status.st_dev)
        if known is None:
            known = self._known[status.st_dev] = type_of_device(status.st_dev) in _PSEUDO
        return known or (status.st_dev, status.st_ino) == self._devices

    def refuse(self, status: os.stat_result) -> None:
        """Untrusted if it is one of these."""
        if self.has(status):
            raise Untrusted(_NO_FILE)


def refuse_pseudo(place: Place) -> None:
    """Untrusted if a name is on procfs, sysfs or devtmpfs, or is that of a descriptor."""
    if place.descriptor:
        raise Untrusted(_NO_FILE)
    PseudoDirectories().refuse(os.fstat(place.fd))


def refuse_foreign(place: Place) -> None:
    """Untrusted if what is there, and would be written to or replaced, may be put there by others.

    In a sticky directory, that is: elsewhere it may be others' by agreement.
    """
    if place.status is not None and not (place.descriptor or place.is_directory):
        _refuse_foreign(place.status, os.fstat(place.fd))


def _refuse_foreign(found: os.stat_result, holder: os.stat_result) -> None:
    if not (holder.st_mode & stat.S_ISVTX and holder.st_mode & _OTHERS_WRITE):
        return
    if found.st_uid not in {*_trusted_owners(), holder.st_uid}:
        raise Untrusted("it belongs to another user, in a directory that others may write")


def directory(path: bytes, *, linkless: bool = False) -> int:
    """Open a directory for its path, as `os.open` does; `linkless`: along no link at all.

    Untrusted, OSError.
    """
    with _place(os.path.join(path, b""), _NONE if linkless else _TRUSTED) as place:
        return os.dup(place.fd)


def make_directory(path: bytes, *, option: bool = False) -> None:
    """Make a directory, and those that it lies in, where it is missing. Untrusted, OSError.

    `option`: an option names it, see `any_link`.
    """
    try:
        with named(path) if option else place_of(path) as place:
            if place.status is None:
                refuse_pseudo(place)
                os.mkdir(place.name, dir_fd=place.fd)
            elif not place.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        # With a slash at its end a missing directory is what the walk would have to enter.
        bare = path.rstrip(b"/")
        above = os.path.dirname(bare) if bare == path else bare
        if not above:
            raise
        make_directory(above, option=option)
        if bare == path:
            make_directory(path, option=option)


def reading(path: bytes) -> int:
    """Open a file that an option names, to read it. Untrusted, or OSError."""
    with named(path) as place:
        return opened(place, os.O_RDONLY)


def writing(path: bytes, flags: int = 0) -> int:
    """Open a file that an option names, to write to it; it is made if there is none.

    Untrusted if another user may have put it there; OSError.
    """
    with named(path) as place:
        refuse_foreign(place)
        fd = opened(place, os.O_WRONLY | flags & ~os.O_TRUNC)
        try:
            status, holder = os.fstat(fd), os.fstat(place.fd)
            if stat.S_ISREG(status.st_mode) and not place.descriptor:
                if status.st_nlink > 1 and holder.st_mode & _OTHERS_WRITE:
                    raise Untrusted("it has other hard links, in a directory that others may write")
                if flags & os.O_TRUNC:
                    os.ftruncate(fd, 0)
        except OSError:
            os.close(fd)
            raise
        return fd


def opened(place: Place, flags: int) -> int:
    """Open what a place names, which must be of the kind that was found; else make it, to write it.

    What others may have put there is found out of what was opened.
    """
    flags |= os.O_NOCTTY | os.O_CLOEXEC
    if place.descriptor:
        _refuse_other_direction(int(place.name), flags)
        # Of a pipe that nobody reads any more this is an error; else it would wait forever.
        fd = os.open(place.name, flags | os.O_NONBLOCK, dir_fd=place.fd)
        os.set_blocking(fd, True)
        return fd
    if not place.name or place.is_directory:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    found = place.status
    if found is None or not stat.S_ISCHR(found.st_mode):
        refuse_pseudo(place)
    if found is not None and stat.S_ISBLK(found.st_mode):
        raise Untrusted("it is a block device")
    if found is None and flags & os.O_ACCMODE != os.O_RDONLY:
        flags |= os.O_CREAT | os.O_EXCL  # what somebody else puts there now is not ours
    fd = os.open(place.name, flags | os.O_NOFOLLOW, 0o666, dir_fd=place.fd)
    try:
        status = os.fstat(fd)
        if found is not None and stat.S_IFMT(status.st_mode) != stat.S_IFMT(found.st_mode):
            raise Untrusted("it was replaced while it was being opened")
        if flags & os.O_ACCMODE != os.O_RDONLY:
            _refuse_foreign(status, os.fstat(place.fd))
        if stat.S_ISCHR(status.st_mode) and not (status.st_rdev in _HARMLESS or os.isatty(fd)):
            raise Untrusted("it is a device")
    except OSError:
        os.close(fd)
        raise
    return fd


def _refuse_other_direction(fd: int, flags: int) -> None:
    """EBADF if a descriptor is not for reading, or writing, whatever is behind it.

    One that the process was started without is on /dev/null by now, which takes anything.
    """
    own, wanted = (each & os.O_ACCMODE for each in (fcntl.fcntl(fd, fcntl.F_GETFL), flags))
    if own not in (wanted, os.O_RDWR):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def create(path: bytes, mode: int = 0o666) -> int:
    """Make a file, open for writing, where there is none. Untrusted, OSError."""
    with place_of(path) as place:
        refuse_pseudo(place)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(place.name or b".", flags, mode, dir_fd=place.fd)


def replace(temporary: bytes, path: bytes) -> None:
    """Rename a file to another name in the same directory. Untrusted, OSError."""
    with place_of(path) as place:
        refuse_pseudo(place)
        refuse_foreign(place)
        name = os.path.basename(temporary)
        os.rename(name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
