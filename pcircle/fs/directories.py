"""Leased directory descriptors, through which every path below a root is accessed.

The kernel does not accept paths longer than PATH_MAX, and a path that is resolved from the top each
time can be redirected by any user who may rename one of its components. So a directory is opened
once, component by component from the nearest open ancestor, never through a symbolic link, and
entries are accessed relative to its descriptor.

Descriptors are kept in an LRU cache. Each use is a *lease*: eviction closes a descriptor only after
its last lease has ended. Closing it at once would free its number for the next `open`, and a late
user would write to the wrong directory; in a trial without leases this happened to 13 of 16,000
files.

A directory with a required identity is opened as the `..` of one of its subdirectories, if one is
open: a tree of 3,000 levels is left level by level; from the top down each time it took a million
calls.

A directory is named by (root, path): the number of a root and the path below it, b"" for the root
itself, `HOLDER` for the directory that holds the root's own name.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat

import msgspec
from lru import LRU

from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import OPEN_DIRECTORY, OPEN_DIRECTORY_FOLLOW
from pcircle.fs.safe_open import PseudoDirectories, directory

HOLDER = b"."
"""The path of the directory that holds the name of a root."""

_MAX_KEPT = 1024
_FOR_OTHERS = 64  # descriptors that the rest of the process needs
_EACH_OF_MANY = 4  # directories that a thread keeps which is not the first of its process
_OF_A_THREAD = 8  # other descriptors of a thread: files, and directories being read
_MAX_AT_ONCE = 32  # small directories that a thread reads together
_NEW_THREADS = 2  # that may begin meanwhile

# Linux; other systems report the same error again.
_O_PATH: int = getattr(os, "O_PATH", OPEN_DIRECTORY_FOLLOW)
_O_NOATIME: int = getattr(os, "O_NOATIME", 0)  # Linux
_AS_GIVEN = -1  # in place of a root, for directories by the path that the user gave


class RootPath(msgspec.Struct, frozen=True):
    """A root: a name in a directory that is opened as the user specified it.

    An empty `name` means that the root is the directory itself. With `known`, device and inode, it
    must be that directory: checks that were made apply to no other.
    """

    holder: bytes
    name: bytes
    known: tuple[int, int] | None = None


class _Open:
    """A descriptor, its number of leases, and whether the cache has evicted it.

    `searched` means that it is open for its path alone; `status` is that of the opening. One that
    is `alone` never was in the cache: only its lessee has it.
    """

    __slots__ = ("alone", "evicted", "fd", "identity", "leases", "searched", "status")

    def __init__(
        self, fd: int, status: os.stat_result, identity: tuple[int, int], *, searched: bool
    ) -> None:
        self.fd = fd
        self.searched = searched
        self.status = status
        self.identity = identity
        self.leases = 0
        self.evicted = self.alone = False


class Lease:
    """A use of a directory descriptor: a context manager that returns it."""

    __slots__ = ("_directories", "fd", "identity", "opened", "searched")

    def __init__(self, directories: Directories, opened: _Open) -> None:
        self._directories = directories
        self.opened = opened
        self.fd = opened.fd
        self.identity = opened.identity
        self.searched = opened.searched

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


def device_and_inode(status: os.stat_result) -> tuple[int, int]:
    """Return the identity of a file on one node."""
    return status.st_dev, status.st_ino


def inode_alone(status: os.stat_result) -> tuple[int, int]:
    """Return the identity of a file across nodes, which number devices differently."""
    return 0, status.st_ino


class Directories:
    """The directories below some roots, by leased descriptors.

    A directory that may be searched but not read is opened for its path alone: its entries are
    accessible by name. With `follow` directories may be reached through symbolic links. `opened` is
    called with each opened directory, and its status. With `careful` the paths to the roots lead
    through no link that another user could have made; with `written` none is on procfs, sysfs or
    devtmpfs either; with `linkless` they lead through no link at all: Untrusted. `below` opens a
    directory within its parent, see `pcircle.fs.openat2`, and `unlock` may make one readable by a
    descriptor for its path alone; it returns whether it has. The status is from before that. With
    `no_atime` reading a directory keeps its access time, where the system permits it; `below` must
    do so itself.
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
        self._open: LRU[tuple[int, bytes], _Open] = LRU(capacity, callback=self._evicted)
        # Maps a directory to an open subdirectory, from which it is reached without its path.
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

        With `identity`, a result of `identify`, it must be that directory; with `readable` it can
        be listed. OSError as of `open`, Changed if it is another directory.
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
        """Lease a directory within the one of another lease, which is rarely needed again.

        So it is not cached, unless by `keep`: most directories of a tree have no subdirectories.
        """
        opened = self._open_at(name, above.fd, self._no_follow, self._beneath)
        opened.evicted = opened.alone = True
        opened.leases = 1
        return Lease(self, opened)

    def lease_open(self, fd: int, status: os.stat_result) -> Lease:
        """Lease a directory that was opened elsewhere, like `lease_below`; takes the descriptor.

        `status` is that of the opening. OSError.
        """
        try:
            opened = self._told(fd, status, searched=False)
        except OSError:
            os.close(fd)
            raise
        opened.evicted = opened.alone = True
        opened.leases = 1
        return Lease(self, opened)

    def keep(self, lease: Lease, root: int, path: bytes) -> None:
        """Cache a leased directory, because it will be needed by its path."""
        with self._lock:
            opened = lease.opened
            # One that is kept may be so by another name: a root by that of its holder.
            if opened.evicted and self._open.get((root, path)) is None:
                opened.evicted = opened.alone = False
                self._add(root, path, opened)

    def forget(self, root: int, path: bytes) -> None:
        """Close a removed directory after its last lease, and remove it from the cache.

        An open descriptor keeps its inode, and on NFS a file in its place.
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
        """Return device and inode, on this node, of the roots that are directories by now."""
        found = set()
        for number in range(len(self._bases)):
            with suppress(OSError), self.lease(number, b"") as lease:  # it may not be made yet
                found.add(device_and_inode(os.fstat(lease.fd)))
        return found

    def close(self) -> None:
        """Release all descriptors, unless a thread is stuck in opening one."""
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
        opened.leases += 1  # a capacity of one must not close the new entry
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
        # From the nearest ancestor that is open down to the path.
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
            # The parent may be evicted, and closed, by this: it is not used again.
            found = self._opened((root, above), name, found.fd)
        return found

    def _find_root(self, root: int, path: bytes) -> _Open:
        base = self._bases[root]
        # Roots that lie in one directory share it.
        key = (_AS_GIVEN, base.holder)
        # The parents of a root are not part of the tree: leave them unchanged.
        kept_locked = bool(base.name)
        holder = self._open.get(key) or self._opened(key, base.holder, None, locked=kept_locked)
        if path == HOLDER or not base.name:
            return holder if path == HOLDER else self._expected(holder, base)
        return self._expected(self._opened((root, path), base.name, holder.fd), base)

    def _expected(self, opened: _Open, base: RootPath) -> _Open:
        """Return a root's directory. Changed if it is not the one that is known."""
        device, inode = opened.identity
        if base.known is not None and (device or base.known[0], inode) != base.known:
            raise Changed("the directory was replaced by another one")
        return opened

    def _opened(
        self, key: tuple[int, bytes], name: bytes, dir_fd: int | None, *, locked: bool = False
    ) -> _Open:
        """Open and cache a directory; below its parent, never through a link unless permitted."""
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
            return self._told(fd, os.fstat(fd) if found is None else found, searched=searched)
        except OSError:
            os.close(fd)
            raise

    def _told(self, fd: int, status: os.stat_result, *, searched: bool) -> _Open:
        """Return an opened directory, after the callback for it. OSError."""
        if self._pseudo is not None:
            self._pseudo.refuse(status)
        if self._tell is not None:
            self._tell(fd, status)
        return _Open(fd, status, self._identify(status), searched=searched)


def open_without_atime(name: bytes, flags: int, dir_fd: int | None) -> int:
    """Open a file so that reading it keeps its access time, if permitted.

    Only the owner of the file and root may do so. OSError.
    """
    try:
        return os.open(name, flags | _O_NOATIME, dir_fd=dir_fd)
    except PermissionError:
        return os.open(name, flags, dir_fd=dir_fd)


def _readable(searched_fd: int) -> int:
    """Open the same directory for reading; close the descriptor for its path. OSError."""
    try:
        return os.open(b".", OPEN_DIRECTORY_FOLLOW, dir_fd=searched_fd)
    finally:
        close_open(searched_fd)


def close_open(fd: int) -> None:
    """Close a file that was not written to, ignoring errors of a server."""
    try:  # noqa: SIM105 - `suppress` takes as long as the call
        os.close(fd)
    except OSError:  # nothing was written by way of it, and it is closed nonetheless
        pass


def open_below(directory_fd: int, path: bytes) -> int:
    """Open the directory of a path below an open one, through no link. OSError."""
    fd = os.dup(directory_fd)
    for name in filter(None, path.split(b"/")):
        try:
            inner = os.open(name, OPEN_DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def at_and_above(directory_fd: int) -> Iterator[tuple[int, int]]:
    """Yield device and inode of a directory and of all of its parents that can be searched.

    They are reached through `..`, not by name: names may lead through links, and a parent may not
    be accessible by its name.
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
    """Return half of the descriptors that a process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else (limit - _FOR_OTHERS) // 2


def affordable_threads(sides: int = 1) -> int:
    """Return the number of threads with enough descriptors, each with directories of `sides` sides.

    The first one keeps as many directories of a side as `capacity_of` returns.
    """
    return 1 + affordable() // (sides * _EACH_OF_MANY + _OF_A_THREAD)


def capacity_of(*, is_first: bool) -> int:
    """Return the number of cached directories of a side: few unless the thread is the first."""
    return min(affordable() // 2, affordable() if is_first else _EACH_OF_MANY)


def affordable_at_once() -> int:
    """Return how many small directories a thread can have open, in addition to its cache.

    All threads of the process together stay within what is affordable.
    """
    threads = threading.active_count() + _NEW_THREADS
    return max(1, min(_MAX_AT_ONCE, _half() // threads))


def bases(
    roots: Iterable[tuple[bytes, bytes]],
    directory: bytes,
    known: Iterable[tuple[int, int] | None] = (),
) -> list[RootPath]:
    """Return roots, holder and name, as typed when `directory` was the working directory.

    `known` are as in `RootPath`, as far as given. Paths stay as they are where that is equivalent:
    a directory may be accessible from inside only. They are not normalised: `a/../b` is another
    path if `a` is a link.
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
    """Return the path of an entry of the directory `path`, below the same root."""
    if path == HOLDER:
        return name
    return path + b"/" + name if path else name
