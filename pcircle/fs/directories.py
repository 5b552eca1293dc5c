"""Directory descriptors, leased: how every path below a root is reached.

Paths longer than PATH_MAX can't be given to the kernel, and a path that is
looked up from the top each time can be redirected by whoever may rename one
of its parts. So a directory is opened once, component by component from the
nearest ancestor at hand, never through a symbolic link, and everything in it
is done relative to its descriptor.

Descriptors are kept in an LRU. Each use is a *lease*: eviction closes a
descriptor only after its last lease has ended. Closing at once would free its
number for the next `open`, and a late user would write into the wrong
directory; in a trial without leases 13 of 16,000 files went astray.

A directory is named by (root, path): the number of a root and the path below
it, b"" for the root itself, `HOLDER` for the directory that holds the root's
own name.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from lru import LRU

HOLDER = b"."
"""The path of the directory in which a root has its name."""

_MOST_KEPT = 1024
_FOR_OTHERS = 64  # descriptors that the rest of the process needs

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_O_PATH = getattr(os, "O_PATH", 0)


class Base(NamedTuple):
    """A root: a name in a directory that is opened as the user gave it.

    An empty `name` means that the root is the directory itself.
    """

    holder: bytes
    name: bytes


class _Open:
    """A descriptor, how many leases it has, and whether the cache has let it go."""

    __slots__ = ("evicted", "fd", "identity", "leases")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        status = os.fstat(fd)
        self.identity = (status.st_dev, status.st_ino)
        self.leases = 0
        self.evicted = False


class Lease:
    """A use of a directory descriptor: a context manager that gives it."""

    __slots__ = ("_directories", "_open", "fd", "identity")

    def __init__(self, directories: Directories, opened: _Open) -> None:
        self._directories = directories
        self._open = opened
        self.fd = opened.fd
        self.identity = opened.identity

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._directories.release(self._open)


class Directories:
    """The directories below some roots, by leased descriptors.

    `write_only` allows directories that may be searched and written, but not
    read: they are opened for the path alone.
    """

    def __init__(self, bases: Sequence[Base], capacity: int, *, write_only: bool = False) -> None:
        self._bases = bases
        self._write_only = write_only and bool(_O_PATH)
        self._lock = threading.RLock()
        self._open: LRU[tuple[int, bytes], _Open] = LRU(capacity, callback=self._evicted)

    def lease(self, root: int, path: bytes, identity: tuple[int, int] | None = None) -> Lease:
        """Lease the descriptor of a directory.

        With `identity` (device, inode) it must be that very directory. OSError
        as of `open`, ESTALE if it is another one.
        """
        with self._lock:
            opened = self._find(root, path)
            if identity is not None and opened.identity != identity:
                raise OSError(errno.ESTALE, "the directory was replaced by another one")
            opened.leases += 1
            return Lease(self, opened)

    def release(self, opened: _Open) -> None:
        """End a lease."""
        with self._lock:
            opened.leases -= 1
            if opened.evicted and not opened.leases:
                os.close(opened.fd)

    def close(self) -> None:
        """Let all descriptors go."""
        with self._lock:
            for _, opened in self._open.items():
                self._evicted((0, b""), opened)
            self._open.clear()

    def _evicted(self, key: tuple[int, bytes], opened: _Open) -> None:
        opened.evicted = True
        if not opened.leases:
            os.close(opened.fd)

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
            fd = self._open_in(found.fd, name)
            # From here on the parent may be evicted, and closed: it is not used again.
            above = above + b"/" + name if above else name
            found = self._add(root, above, fd)
        return found

    def _find_root(self, root: int, path: bytes) -> _Open:
        base = self._bases[root]
        if path == HOLDER or not base.name:
            return self._add(root, path, self._open_path(base.holder))
        with self.lease(root, HOLDER) as holder:
            return self._add(root, path, self._open_in(holder.fd, base.name))

    def _open_path(self, path: bytes) -> int:
        try:
            return os.open(path, _FLAGS)
        except PermissionError:
            if not self._write_only:
                raise
            return os.open(path, _O_PATH | os.O_DIRECTORY)

    def _open_in(self, fd: int, name: bytes) -> int:
        try:
            return os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=fd)
        except PermissionError:
            if not self._write_only:
                raise
            return os.open(name, _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)

    def _add(self, root: int, path: bytes, fd: int) -> _Open:
        try:
            opened = _Open(fd)
        except OSError:
            os.close(fd)
            raise
        opened.leases += 1  # a capacity of one must not close what is just being added
        self._open[(root, path)] = opened
        opened.leases -= 1
        return opened


def affordable() -> int:
    """How many directory descriptors a process can well keep, of those that it may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST_KEPT
    return max(4, min(_MOST_KEPT, (limit - _FOR_OTHERS) // 2))


def join_path(path: bytes, name: bytes) -> bytes:
    """The path of an entry of the directory `path`, below the same root."""
    if path == HOLDER:
        return name
    return path + b"/" + name if path else name
