"""Open paths that the user specified without letting another user redirect them.

A user who may write to a directory can create a symbolic link there under a name that another user,
for example root, is about to write to or read from. A report then overwrites another file, or a
list is read from another file. Therefore a path is resolved component by component, without letting
the kernel follow links. A link is followed only if it is *trusted*: it belongs to the user or to
root, or is in a directory to which no other user may write. The check applies to the link and the
directory that were opened, so a link that is created in the meantime is not followed either. The
kernel has similar rules for sticky directories (protected_symlinks, protected_regular and
protected_fifos in sysctl(8)), which may be disabled.

Nothing is created or replaced on procfs, sysfs or devtmpfs, or in /dev, because names there are not
ordinary files, and root could break the machine. Descriptors are an exception, because the user's
own shell opened /dev/stdout, /dev/fd/3 and the files of `>(command)`. These are used as they are,
like terminals, /dev/null and similar devices.

While `any_link` is active (`--insecure-links`), files named by options are opened through any link.
Source trees and the destinations of copies are not affected.

This module imports only the modules for mounts and open flags from the package.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.open_flags import CREATE_FILE, OPEN_DIRECTORY, OPEN_DIRECTORY_PATH, OPEN_ENTRY_PATH

_O_PATH: int = getattr(os, "O_PATH", 0)
MAX_LINKS = 40  # as in the kernel
_PSEUDO = frozenset((b"proc", b"sysfs", b"devtmpfs", b"devpts"))
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ALL_USERS = 2**32 - 1
_NO_FILE = "names in /proc, /sys and /dev are not accepted"
# The device numbers of /dev/null, /dev/zero and /dev/full on Linux, wherever their nodes are.
_HARMLESS = frozenset(os.makedev(1, minor) for minor in (3, 5, 7))


class Untrusted(OSError):
    """A path that another user may control, or that leads to no ordinary file.

    The errno is None.
    """

    kind = "untrusted"

    def __init__(self, why: str) -> None:
        super().__init__(None, why)


class ResolvedName(NamedTuple):
    """The name in an open directory to which a path leads after its links were followed.

    `path` is the path without these links. `status` is None if the name does not exist. An empty
    name refers to the directory itself. `descriptor` is true if the name is an open descriptor of
    this process.
    """

    fd: int
    name: bytes
    path: bytes
    status: os.stat_result | None
    descriptor: bool = False

    @property
    def is_directory(self) -> bool:
        """True if the name refers to a directory."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)


_TRUSTED, _ANY, _NONE = range(3)  # which links are followed
# Threads that are started inside a context have the default value; they open no option files.
_of_named = ContextVar("_of_named", default=_TRUSTED)


@contextmanager
def any_link(enabled: bool) -> Iterator[None]:
    """If `enabled`, open files named by options through any link while the context is active."""
    token = _of_named.set(_ANY if enabled else _of_named.get())
    try:
        yield
    finally:
        _of_named.reset(token)


@contextmanager
def place_of(path: bytes, links: int = _TRUSTED) -> Iterator[ResolvedName]:
    """Resolve a path. Raises Untrusted, or OSError as opening the path would."""
    walk = _Walk(path, links)
    try:
        yield walk.end()
    finally:
        os.close(walk.fd)


def named(path: bytes) -> AbstractContextManager[ResolvedName]:
    """Resolve the path of a file that an option names; see `place_of` and `any_link`."""
    return place_of(path, _of_named.get())


class _Walk:
    """The resolution of a path; `fd` is the directory reached so far."""

    def __init__(self, path: bytes, links: int) -> None:
        if not path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._left = [path]
        self._links = 0
        self._followed = links
        self._at = b"/" if path.startswith(b"/") else b""
        self.fd = os.open(self._at or b".", OPEN_DIRECTORY_PATH)

    def end(self) -> ResolvedName:
        """Resolve all components; the last one need not exist."""
        while (found := self._next()) is not None:
            name, last = found
            if not last:
                self._enter(name)
                continue
            try:
                fd = os.open(name, OPEN_ENTRY_PATH, dir_fd=self.fd)
            except FileNotFoundError:
                return ResolvedName(self.fd, name, os.path.join(self._at, name), None)
            try:
                status = os.fstat(fd)
                if not stat.S_ISLNK(status.st_mode):
                    return ResolvedName(self.fd, name, os.path.join(self._at, name), status)
                if self._is_of_descriptors(status):
                    return ResolvedName(self.fd, name, self._at, status, descriptor=True)
                self._follow(fd, status, name, b"")
            finally:
                os.close(fd)
        return ResolvedName(self.fd, b"", self._at or b".", os.fstat(self.fd))

    def _next(self) -> tuple[bytes, bool] | None:
        """Return the next component, and whether it may name a non-directory; None at the end."""
        while self._left:
            name, slash, remaining = self._left.pop().partition(b"/")
            if slash and remaining.strip(b"/"):
                self._left.append(remaining)
            if name in (b"", b"."):
                continue
            # A component before a trailing slash must be a directory.
            return name, name != b".." and not slash and not self._left
        return None

    def _enter(self, name: bytes) -> None:
        """Enter a directory, directly or through a trusted link."""
        try:
            try:
                fd = os.open(name, OPEN_DIRECTORY, dir_fd=self.fd)
            except PermissionError:
                fd = os.open(name, OPEN_DIRECTORY_PATH, dir_fd=self.fd)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            link = os.open(name, OPEN_ENTRY_PATH, dir_fd=self.fd)
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
        """Continue through an open link, unless another user could have created it."""
        self._links += 1
        if self._links > MAX_LINKS:
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
            # The link's text is not used, because the kernel's links may lead to objects without a
            # path.
            self._go(os.open(name, OPEN_DIRECTORY_PATH & ~os.O_NOFOLLOW, dir_fd=self.fd), path)
            return
        text = os.readlink(b"", dir_fd=fd)
        self._left.append(text + slash)
        if text.startswith(b"/"):
            self._go(os.open(b"/", OPEN_DIRECTORY_PATH), b"/")

    def _is_of_descriptors(self, status: os.stat_result) -> bool:
        """Return whether the current directory is /proc/self/fd or an equivalent."""
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
    if holder.st_mode & OTHERS_WRITE:
        return False
    return holder.st_uid in owners or (
        # In a single-user container, files of root and of unmapped users have the same owner.
        link.st_uid == holder.st_uid == _unmapped_owner()
    )


def _unmapped_owner() -> int | None:
    """Return the uid that stands for unmapped owners in this namespace; None if all are mapped."""
    try:
        with open("/proc/self/uid_map", "rb") as known:
            if any(int(line.split()[2]) >= _ALL_USERS for line in known):
                return None
        with open("/proc/sys/kernel/overflowuid", "rb") as number:
            return int(number.read())
    except (OSError, ValueError, IndexError):
        return None


class PseudoDirectories:
    """Recognizes directories of kernel objects, which contain no ordinary files: /proc, /sys, /dev.

    Results are cached by file system.
    """

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}
        self._devices: tuple[int, int] | None = None
        # In a container, /dev is not on devtmpfs, and is recognized by its inode.
        with suppress(OSError):
            devices = os.stat(b"/dev")
            self._devices = (devices.st_dev, devices.st_ino)

    def has(self, status: os.stat_result) -> bool:
        """Return whether a directory is a pseudo directory."""
        known = self._known.get(status.st_dev)
        if known is None:
            known = self._known[status.st_dev] = type_of_device(status.st_dev) in _PSEUDO
        return known or (status.st_dev, status.st_ino) == self._devices

    def refuse(self, status: os.stat_result) -> None:
        """Raise Untrusted if a directory is a pseudo directory."""
        if self.has(status):
            raise Untrusted(_NO_FILE)


def refuse_pseudo(place: ResolvedName) -> None:
    """Raise Untrusted for a name in a pseudo directory or for a descriptor."""
    if place.descriptor:
        raise Untrusted(_NO_FILE)
    PseudoDirectories().refuse(os.fstat(place.fd))


def refuse_foreign(place: ResolvedName) -> None:
    """Raise Untrusted if another user may have planted the file to be overwritten.

    This applies only to sticky directories: in other directories, users may share files on purpose.
    """
    if place.status is not None and not (place.descriptor or place.is_directory):
        _refuse_foreign(place.status, os.fstat(place.fd))


def _refuse_foreign(found: os.stat_result, holder: os.stat_result) -> None:
    if not (holder.st_mode & stat.S_ISVTX and holder.st_mode & OTHERS_WRITE):
        return
    if found.st_uid not in {*_trusted_owners(), holder.st_uid}:
        raise Untrusted("it belongs to another user, and other users can write to its directory")


def directory(path: bytes, *, linkless: bool = False) -> int:
    """Open a directory with `O_PATH`; `linkless` refuses all links.

    Raises Untrusted or OSError.
    """
    with place_of(os.path.join(path, b""), _NONE if linkless else _TRUSTED) as place:
        return os.dup(place.fd)


def make_directory(path: bytes, *, option: bool = False) -> None:
    """Create a directory and its missing parents. Raises Untrusted or OSError.

    With `option`, the path comes from an option; see `any_link`.
    """
    try:
        with named(path) if option else place_of(path) as place:
            if place.status is None:
                refuse_pseudo(place)
                os.mkdir(place.name, dir_fd=place.fd)
            elif not place.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        # A path with a trailing slash cannot be resolved while the directory is missing.
        bare = path.rstrip(b"/")
        above = os.path.dirname(bare) if bare == path else bare
        if not above:
            raise
        make_directory(above, option=option)
        if bare == path:
            make_directory(path, option=option)


def reading(path: bytes, *, piped: bool = False, waits: bool = False) -> int:
    """Open a file named by an option for reading. Raises Untrusted or OSError.

    With `piped`, it may be a pipe that the user's shell has opened, such as that of `<(command)`. A
    FIFO is refused, because a FIFO without a writer would block forever, unless the call `waits`
    for the writer.
    """
    with named(path) as place:
        fd = opened(place, os.O_RDONLY, waits=waits)
        if waits:
            return fd
        if stat.S_ISFIFO(os.fstat(fd).st_mode) and not (piped and place.descriptor):
            os.close(fd)
            hint = "; to read from a command, use '<(COMMAND)'" if piped else ""
            raise Untrusted(f"it is a pipe, not a regular file{hint}")
        return fd


def writing(path: bytes, flags: int = 0) -> int:
    """Open a file named by an option for writing; create it if it is missing.

    Raises Untrusted if another user may have planted the file, or OSError.
    """
    with named(path) as place:
        refuse_foreign(place)
        fd = opened(place, os.O_WRONLY | flags & ~os.O_TRUNC)
        try:
            status, holder = os.fstat(fd), os.fstat(place.fd)
            if stat.S_ISREG(status.st_mode) and not place.descriptor:
                if status.st_nlink > 1 and holder.st_mode & OTHERS_WRITE:
                    raise Untrusted(
                        "it has other hard links, and other users can write to its directory"
                    )
                if flags & os.O_TRUNC:
                    os.ftruncate(fd, 0)
        except OSError:
            os.close(fd)
            raise
        return fd


def opened(place: ResolvedName, flags: int, *, waits: bool = False) -> int:
    """Open a resolved path; raise Untrusted if its file type has changed.

    A FIFO that is read is opened without waiting for its writer, unless `waits` is set.

    If the file is opened for writing, a missing file is created. Ownership is checked on the open
    file, which cannot be exchanged between the check and the use. Raises Untrusted or OSError.
    """
    flags |= os.O_NOCTTY | os.O_CLOEXEC
    reads = flags & os.O_ACCMODE == os.O_RDONLY
    if place.descriptor:
        _refuse_other_direction(int(place.name), flags)
        # With O_NONBLOCK, a pipe without a reader is an error; otherwise the call would wait for a
        # reader.
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
    if reads:
        flags |= 0 if waits else os.O_NONBLOCK
    elif found is None:
        flags |= os.O_CREAT | os.O_EXCL  # do not open a file that another process has just created
    fd = os.open(place.name, flags | os.O_NOFOLLOW, 0o666, dir_fd=place.fd)
    try:
        status = os.fstat(fd)
        if found is not None and stat.S_IFMT(status.st_mode) != stat.S_IFMT(found.st_mode):
            raise Untrusted("it was replaced while it was being opened")
        if not reads:
            _refuse_foreign(status, os.fstat(place.fd))
        if stat.S_ISCHR(status.st_mode) and not (status.st_rdev in _HARMLESS or os.isatty(fd)):
            raise Untrusted("it is a device")
        os.set_blocking(fd, True)
    except OSError:
        os.close(fd)
        raise
    return fd


def _refuse_other_direction(fd: int, flags: int) -> None:
    """Raise OSError (EBADF) if a descriptor is not open for the direction that `flags` request.

    A descriptor that was closed when the process started is now open on /dev/null, which would
    otherwise accept any data.
    """
    own, required = (mode & os.O_ACCMODE for mode in (fcntl.fcntl(fd, fcntl.F_GETFL), flags))
    if own not in (required, os.O_RDWR):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def create(path: bytes, mode: int = 0o666) -> int:
    """Create a new file and open it for writing.

    Raises FileExistsError if the name exists, Untrusted or OSError.
    """
    with place_of(path) as place:
        refuse_pseudo(place)
        return os.open(place.name or b".", CREATE_FILE, mode, dir_fd=place.fd)


def replace(temporary: bytes, path: bytes) -> None:
    """Rename a file to another name in the same directory. Raises Untrusted or OSError."""
    with place_of(path) as place:
        refuse_pseudo(place)
        refuse_foreign(place)
        name = os.path.basename(temporary)
        os.rename(name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
