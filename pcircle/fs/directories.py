"""Leases directory descriptors, through which paths below a root are accessed.

The kernel does not accept paths longer than PATH_MAX. If a path is resolved from the root each
time, any user who may rename one of its components can redirect it. Therefore a directory is opened
component by component from the nearest open ancestor, through symbolic links only with `follow`.
Its entries are accessed relative to its descriptor.

Descriptors are kept in an LRU cache. Each use is a *lease*: eviction closes a descriptor only after
its last lease has ended. If the descriptor were closed at once, the next `open` could reuse its
number. A thread that is still using the descriptor would then write to the wrong directory. In a
trial without leases this happened to 13 of 16,000 files.

A directory whose identity is known is opened as the `..` of one of its subdirectories, if one is
open. Without this, leaving a tree of 3,000 levels took a million calls, because each directory was
opened from the top down.

A directory is identified by (root, path): the number of a root and the path below it. The path is
b"" for the root itself, and `HOLDER` for the directory that contains the root's name.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
import threading
from _weakref import ref  # built in; `weakref` would be one more module to find at startup
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat

import msgspec
from lru import LRU

from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import O_NOATIME, OPEN_DIRECTORY, OPEN_DIRECTORY_FOLLOW
from pcircle.fs.safe_open import PseudoDirectories, directory

HOLDER = b"."
"""The path of the directory that contains the name of a root."""

_MAX_KEPT = 1024
_FOR_OTHERS = 64  # descriptors that the rest of the process needs
_EACH_OF_MANY = 4  # directories kept by each thread except the first of its process
_OF_A_THREAD = 8  # other descriptors of a thread: files, and directories being read
_MAX_AT_ONCE = 32  # small directories that a thread reads in one call
_NEW_THREADS = 2  # threads that may start in the meantime

# Linux only; other systems report the same error again.
_O_PATH: int = getattr(os, "O_PATH", OPEN_DIRECTORY_FOLLOW)
_AS_GIVEN = -1  # replaces the root's number for a path that the user specified


class RootPath(msgspec.Struct, frozen=True):
    """A root: a name in a directory, which is opened by the path that the user specified.

    If `name` is empty, the root is that directory itself. If `known` is given, the root must have
    that device and inode, because earlier checks apply to no other directory.
    """

    holder: bytes
    name: bytes
    known: tuple[int, int] | None = None


class _Open:
    """An open directory: its descriptor, its leases, and whether the cache has evicted it.

    `searched` means that it was opened with `O_PATH`; `status` is its status when it was opened. An
    `alone` directory is not in the cache and has only one lease.
    """

    __slots__ = ("alone", "evicted", "fd", "identity", "leases", "searched", "status")

    def __init__(
        self, fd: int, status: os.stat_result, identity: tuple[int, int], *, searched: bool
    ) -> None:
        self.fd: int = fd
        self.searched: bool = searched
        self.status: os.stat_result = status
        self.identity: tuple[int, int] = identity
        self.leases: int = 0
        self.evicted: bool = False
        self.alone: bool = False


class Lease:
    """A use of a directory descriptor; it ends when the context is left."""

    __slots__ = ("_directories", "fd", "identity", "opened", "searched")

    def __init__(self, directories: Directories, opened: _Open) -> None:
        self._directories = directories
        self.opened: _Open = opened
        self.fd: int = opened.fd
        self.identity: tuple[int, int] = opened.identity
        self.searched: bool = opened.searched

    def end(self) -> None:
        """End the lease."""
        if self.opened.alone:
            close_open(self.fd)
        else:
            self._directories.release(self.opened)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()


class _NoLease(Lease):
    """The lease of a directory that is not open. Its descriptor is invalid, so every use fails.

    It is not -1, because os.listdir, os.scandir and os.listxattr take -1 as the working directory.
    """

    __slots__ = ()

    def __init__(self) -> None:
        self.fd, self.identity, self.searched = -2, (-1, -1), False

    def end(self) -> None:
        """Do nothing."""


NO_LEASE: Lease = _NoLease()
CLOSED: tuple[Lease, Lease] = (NO_LEASE, NO_LEASE)
"""The leases of both sides of a directory that is not leased."""


def device_and_inode(status: os.stat_result) -> tuple[int, int]:
    """Return an identity of a file that is valid on one node."""
    return status.st_dev, status.st_ino


def inode_alone(status: os.stat_result) -> tuple[int, int]:
    """Return an identity of a file that is valid on all nodes, whatever their device numbers."""
    return 0, status.st_ino


class Directories:
    """Caches the open directories below some roots, and leases their descriptors.

    A directory that may be searched but not read is opened with `O_PATH`, so that its entries are
    accessible by name. With `follow`, directories may be reached through symbolic links. `opened`
    is called with each opened directory and its status. With `careful`, a path to a root raises
    Untrusted if it leads through a link that another user could have created. `written` has the
    same effect for a directory on procfs, sysfs or devtmpfs, and `linkless` for any link. `below`
    opens a directory within its parent (see `pcircle.fs.openat2`). `unlock` may make a directory
    readable through its `O_PATH` descriptor, and returns whether it did. The status of the
    directory is then from before that change. With `no_atime`, reading a directory does not update
    its access time, if the system permits that; `below` must ensure this itself.
    """

    def __init__(
        self,
        bases: Sequence[RootPath],
        capacity: int,
        identify: Callable[[os.stat_result], tuple[int, int]] = device_and_inode,
        *,
        follow: bool = False,
        opened: Callable[[int, os.stat_result], None] | None = None,
        written: bool = False,
        careful: bool = False,
        linkless: bool = False,
        below: Callable[[bytes, int], int] | None = None,
        unlock: Callable[[int], bool] | None = None,
        no_atime: bool = False,
    ) -> None:
        self._bases = bases
        self._no_atime = no_atime
        self._beneath = below
        self._unlock = unlock
        self._tell = opened
        self._pseudo = PseudoDirectories() if written else None
        self._careful = written or careful or linkless
        self._linkless = linkless
        self._identify = identify
        self._no_follow = 0 if follow else os.O_NOFOLLOW
        self._lock = threading.RLock()
        # The garbage collector does not see the references of the cache, so this one is weak.
        own = ref(self)

        def evicted(key: tuple[int, bytes], opened: _Open) -> None:
            directories = own()
            if directories is not None:
                directories._evicted(key, opened)

        self._open: LRU[tuple[int, bytes], _Open] = LRU(capacity, callback=evicted)
        # Maps a directory to the name of an open subdirectory, through which it can be reached.
        self._below: dict[tuple[int, bytes], bytes] = {}

    def lease(
        self,
        root: int,
        path: bytes,
        identity: tuple[int, int] | None = None,
        *,
        readable: bool = False,
    ) -> Lease:
        """Lease the descriptor of a directory.

        If `identity` (a result of `identify`) is given, the directory must have it; otherwise
        Changed is raised. With `readable`, it must be possible to list the directory. Raises
        OSError if it cannot be opened.
        """
        with self._lock:
            opened = self._from_below(root, path, identity) or self._find(root, path)
            if readable and opened.searched:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if identity is not None and opened.identity != identity:
                raise Changed("the directory was replaced by another one")
            opened.leases += 1
            return Lease(self, opened)

    def lease_below(self, above: Lease, name: bytes) -> Lease:
        """Lease a subdirectory of a leased directory without caching it.

        Most directories have no subdirectories and are not needed again; `keep` caches the others.
        """
        opened = self._open_at(name, above.fd, self._no_follow, self._beneath)
        opened.evicted = opened.alone = True
        opened.leases = 1
        return Lease(self, opened)

    def lease_open(self, fd: int, status: os.stat_result) -> Lease:
        """Lease a directory that the caller has opened, and take over its descriptor.

        `status` is its status when it was opened. Raises OSError.
        """
        try:
            opened = self._checked(fd, status, searched=False)
        except OSError:
            os.close(fd)
            raise
        opened.evicted = opened.alone = True
        opened.leases = 1
        return Lease(self, opened)

    def keep(self, lease: Lease, root: int, path: bytes) -> None:
        """Cache a leased directory, because it will be requested by its path."""
        with self._lock:
            opened = lease.opened
            # The directory may already be cached under another path: a root without a name is its
            # own holder.
            if opened.evicted and self._open.get((root, path)) is None:
                opened.evicted = opened.alone = False
                self._add(root, path, opened)

    def forget(self, root: int, path: bytes) -> None:
        """Close a removed directory after its last lease, and remove it from the cache.

        An open descriptor would keep the inode allocated and, on NFS, leave a file in its place.
        """
        with self._lock:
            opened = self._open.pop((root, path), None)
            if opened is not None:
                self._evicted((root, path), opened)

    def release(self, opened: _Open) -> None:
        """End a lease of a cached directory."""
        with self._lock:
            opened.leases -= 1
            if opened.evicted and not opened.leases:
                close_open(opened.fd)

    def roots(self) -> set[tuple[int, int]]:
        """Return the device and inode, on this node, of each root that is an existing directory."""
        found = set()
        for number in range(len(self._bases)):
            with suppress(OSError), self.lease(number, b"") as lease:  # it may not exist yet
                found.add(device_and_inode(os.fstat(lease.fd)))
        return found

    def close(self) -> None:
        """Close all descriptors, unless a thread hangs while it is opening a directory."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for opened in self._open.values():
                self._evicted((0, b""), opened)
            self._open.clear()
            self._below.clear()
        finally:
            self._lock.release()

    def _evicted(self, key: tuple[int, bytes], opened: _Open) -> None:
        above, _, name = key[1].rpartition(b"/")
        if self._below.get((key[0], above)) == name:
            del self._below[key[0], above]
        opened.evicted = True
        if not opened.leases:
            close_open(opened.fd)

    def _add(self, root: int, path: bytes, opened: _Open) -> None:
        """Add an open directory to the cache."""
        if root != _AS_GIVEN and path not in (b"", HOLDER):
            above, _, name = path.rpartition(b"/")
            self._below[root, above] = name
        opened.leases += 1  # the new entry must not be closed if the capacity is one
        self._open[root, path] = opened
        opened.leases -= 1

    def _from_below(self, root: int, path: bytes, identity: tuple[int, int] | None) -> _Open | None:
        """Open a directory from one of its subdirectories; None if that is not possible."""
        name = self._below.get((root, path))
        if name is None or not path or identity is None or (root, path) in self._open:
            return None
        below = self._open[root, join_path(path, name)]
        try:
            opened = self._open_at(b"..", below.fd, self._no_follow)
        except OSError:
            return None
        if opened.identity != identity:
            close_open(opened.fd)
            return None
        self._add(root, path, opened)
        return opened

    def _find(self, root: int, path: bytes) -> _Open:
        found = self._open.get((root, path))
        if found is not None:
            return found
        # Open the missing directories from the nearest open ancestor down to the path.
        missing: list[bytes] = []
        above = path
        while found is None and above not in (b"", HOLDER):
            above, _, name = above.rpartition(b"/")
            missing.append(name)
            found = self._open.get((root, above))
        if found is None:
            found = self._find_root(root, above)
        while missing:
            name = missing.pop()
            above = above + b"/" + name if above else name
            # This may evict and close the parent, which is not used again.
            found = self._opened((root, above), name, found.fd)
        return found

    def _find_root(self, root: int, path: bytes) -> _Open:
        base = self._bases[root]
        # Roots in the same directory share its entry.
        key = (_AS_GIVEN, base.holder)
        # The parents of a root are not part of the tree: leave them unchanged.
        kept_locked = bool(base.name)
        holder = self._open.get(key) or self._opened(key, base.holder, None, locked=kept_locked)
        if path == HOLDER or not base.name:
            return holder if path == HOLDER else self._expected(holder, base)
        return self._expected(self._opened((root, path), base.name, holder.fd), base)

    def _expected(self, opened: _Open, base: RootPath) -> _Open:
        """Return a root's directory. Raises Changed if it is not the one that `base` specifies."""
        device, inode = opened.identity
        if base.known is not None and (device or base.known[0], inode) != base.known:
            raise Changed("the directory was replaced by another one")
        return opened

    def _opened(
        self, key: tuple[int, bytes], name: bytes, dir_fd: int | None, *, locked: bool = False
    ) -> _Open:
        """Open and cache a directory.

        Links below a root are not followed unless that is permitted.
        """
        follow = 0 if dir_fd is None else self._no_follow
        opened = self._open_at(name, dir_fd, follow, locked=locked)
        self._add(*key, opened)
        return opened

    def _open_at(
        self,
        name: bytes,
        dir_fd: int | None,
        follow: int,
        beneath: Callable[[bytes, int], int] | None = None,
        *,
        locked: bool = False,
    ) -> _Open:
        if self._careful and dir_fd is None:
            above = directory(name, linkless=self._linkless)
            try:
                return self._open_at(b".", above, 0, locked=locked)
            finally:
                os.close(above)
        searched = False
        found: os.stat_result | None = None
        try:
            if beneath is None or dir_fd is None:
                flags = OPEN_DIRECTORY_FOLLOW | follow
                if self._no_atime:
                    fd = open_without_atime(name, flags, dir_fd)
                else:
                    fd = os.open(name, flags, dir_fd=dir_fd)
            else:
                fd = beneath(name, dir_fd)
        except PermissionError:
            fd = os.open(name, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=dir_fd)
            searched = True
            if self._unlock is not None and not locked:
                found = os.fstat(fd)
                if self._unlock(fd):
                    fd, searched = _readable(fd), False
        try:
            return self._checked(fd, os.fstat(fd) if found is None else found, searched=searched)
        except OSError:
            os.close(fd)
            raise

    def _checked(self, fd: int, status: os.stat_result, *, searched: bool) -> _Open:
        """Return an open directory after its checks and callback. Raises OSError."""
        if self._pseudo is not None:
            self._pseudo.refuse(status)
        if self._tell is not None:
            self._tell(fd, status)
        return _Open(fd, status, self._identify(status), searched=searched)


def open_without_atime(name: bytes, flags: int, dir_fd: int | None) -> int:
    """Open a file so that reading it does not update its access time, if permitted.

    Only the owner of the file and root may do so. Raises OSError.
    """
    try:
        return os.open(name, flags | O_NOATIME, dir_fd=dir_fd)
    except PermissionError:
        return os.open(name, flags, dir_fd=dir_fd)


def _readable(searched_fd: int) -> int:
    """Reopen a directory for reading and close its `O_PATH` descriptor. Raises OSError."""
    try:
        return os.open(b".", OPEN_DIRECTORY_FOLLOW, dir_fd=searched_fd)
    finally:
        close_open(searched_fd)


def close_open(fd: int) -> None:
    """Close a file that was not written to, ignoring errors."""
    try:  # noqa: SIM105 - `suppress` takes as long as the call
        os.close(fd)
    except OSError:  # no written data can be lost, and the descriptor is closed nonetheless
        pass


class closing_fd:  # noqa: N801  # a context manager; a generator would take twice as long
    """Close a descriptor at the end of the block."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def open_below(directory_fd: int, path: bytes) -> int:
    """Open the directory at a path below an open directory, following no links. Raises OSError."""
    fd = os.dup(directory_fd)
    for name in filter(None, path.split(b"/")):
        try:
            inner = os.open(name, OPEN_DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def directory_and_ancestors(directory_fd: int) -> Iterator[tuple[int, int]]:
    """Yield the device and inode of a directory and of its ancestors, up to an unsearchable one.

    Ancestors are reached through `..`, because their names may lead through links or may not be
    accessible.
    """
    last = None
    fd = os.open(b".", _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        while True:
            status = os.fstat(fd)
            if last == (last := (status.st_dev, status.st_ino)):
                return
            yield last
            above = os.open(b"..", _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = above
    except PermissionError:
        return
    finally:
        os.close(fd)


def affordable() -> int:
    """Return the number of directory descriptors that a process can keep."""
    return max(4, min(_MAX_KEPT, _half()))


def _half() -> int:
    """Return half of the descriptors that are not reserved for other uses."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else (limit - _FOR_OTHERS) // 2


def affordable_threads(sides: int = 1) -> int:
    """Return the number of threads for which the descriptors suffice.

    Each thread caches directories of `sides` trees, for example of source and target. `capacity_of`
    returns the number of directories per tree.
    """
    return 1 + affordable() // (sides * _EACH_OF_MANY + _OF_A_THREAD)


def capacity_of(*, is_first: bool) -> int:
    """Return the number of directories of one tree that a thread caches, more if `is_first`."""
    return min(affordable() // 2, affordable() if is_first else _EACH_OF_MANY)


def affordable_at_once() -> int:
    """Return the number of small directories that a thread may open in addition to its cache.

    The limit prevents the threads of the process from running out of descriptors together.
    """
    threads = threading.active_count() + _NEW_THREADS
    return max(1, min(_MAX_AT_ONCE, _half() // threads))


def bases(
    roots: Iterable[tuple[bytes, bytes]],
    directory: bytes,
    known: Iterable[tuple[int, int] | None] = (),
) -> list[RootPath]:
    """Return the roots for pairs of holder and name, given relative to `directory`.

    `known` contains the values for `RootPath`; those missing at its end are None. Paths stay
    relative if `directory` is the working directory, which may not be accessible by its path. They
    are not normalized, because `a/../b` is a different path if `a` is a link.
    """
    begin = b"" if working_directory() == directory else directory
    return [
        RootPath(os.path.join(begin, holder), name, identity)
        for (holder, name), identity in zip(roots, chain(known, repeat(None)), strict=False)
    ]


def working_directory() -> bytes:
    """Return the path of the working directory; empty if it no longer exists."""
    try:
        return os.getcwdb()
    except OSError:
        return b""


def join_path(path: bytes, name: bytes) -> bytes:
    """Return the path of an entry from the path of its directory, below the same root."""
    if path == HOLDER:
        return name
    return path + b"/" + name if path else name
