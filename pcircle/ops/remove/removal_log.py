"""A log of the names that each thread will remove next; it survives the death of a rank.

A removal that is restarted after the loss of a rank cannot find out what was already removed.
Therefore each thread logs the names that it will remove next, together with its counts so far. The
log is stored in memory that the ranks of a node share and that outlives them. After a rank is
killed, the last entries of its threads are compared with the file system; missing names count as
removed.

Each thread owns two slots, and one byte selects the valid slot. A thread that is killed while it is
writing thus leaves the previous entry intact. Logging requires no system calls.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from pcircle.fs.directories import HOLDER
from pcircle.ops.remove.plan import WHOLE
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.jobs.tree_task import TreeCounters

COUNTED = ("files", "directories", "links", "special")
_FIELDS = dict(zip("fdls", COUNTED, strict=True))
_THREADS = 64  # maximum number of threads per rank
_SLOT_BYTES = 192 << 10
_THREAD_BYTES = 2 * _SLOT_BYTES + mmap.PAGESIZE
_HEAD = struct.Struct("<4QcIII")  # counts, kind, root, lengths of path and names
_OVERFLOWED = b"\xff"


class RemovalLog:
    """The log of all ranks of a node, created before the ranks are forked."""

    def __init__(self, ranks: int) -> None:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        self._thread_count = ranks * _THREADS
        self._memory = mmap.mmap(-1, self._thread_count * _THREAD_BYTES, flags)
        self._numbers = count()  # assigns numbers to the threads of this rank

    def thread_log(self, rank: int) -> ThreadLog:
        """Return the log of the next thread of a rank."""
        number = next(self._numbers)
        at = (rank * _THREADS + min(number, _THREADS - 1)) * _THREAD_BYTES
        if number >= _THREADS:  # the log has no room for this thread
            self._memory[at : at + 1] = _OVERFLOWED
        return ThreadLog(self._memory, at if number < _THREADS else -1)

    def count_removed(self, roots: Sequence[Root], directory: bytes) -> dict[str, int] | None:
        """Return the number of removed entries by counter name, or None if it is unknown.

        Raises OSError. This must be called after all ranks that write to the log have ended.
        """
        total: Counter[str] = Counter()
        for thread in range(self._thread_count):
            at = thread * _THREAD_BYTES
            holds = self._memory[at : at + 1]
            if holds == _OVERFLOWED:
                return None
            if holds == b"\0":
                continue
            slot = at + mmap.PAGESIZE + (holds[0] - 1) * _SLOT_BYTES
            *counts, kind, root, path_length, names_length = _HEAD.unpack_from(self._memory, slot)
            total.update(dict(zip(COUNTED, counts, strict=True)))
            begin = slot + _HEAD.size
            middle, end = begin + path_length, begin + path_length + names_length
            path, names = self._memory[begin:middle], self._memory[middle:end].split(b"\0")
            total.update(
                _count_missing(
                    kind.decode(), os.path.join(directory, _absolute_path(roots[root], path)), names
                )
            )
        return dict(total)

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()


def _absolute_path(root: Root, path: bytes) -> bytes:
    return root.holder if path == HOLDER else os.path.join(root.holder, root.within, path)


def _count_missing(kind: str, path: bytes, names: Sequence[bytes]) -> Mapping[str, int]:
    """Return the number of missing entries of a logged removal, by counter name. Raises OSError."""
    if kind == WHOLE:
        total: Counter[str] = Counter()
        for name, *files in _split_groups(names):
            total.update(_count_missing("f", os.path.join(path, name), files) if files else {})
            total.update(_count_missing("d", path, [name]))
        return total
    fd = _open_directory(path)
    if fd is None:
        return {_FIELDS[kind]: len(names)}
    try:
        return {_FIELDS[kind]: sum(not _exists(name, fd) for name in names)}
    finally:
        os.close(fd)


def _split_groups(names: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield each directory followed by its files; an empty name ends a group."""
    return (group.split(b"\0") for group in b"\0".join(names).removesuffix(b"\0").split(b"\0\0"))


def _exists(name: bytes, fd: int) -> bool:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=fd, follow_symlinks=False)
        return True
    return False


def _open_directory(path: bytes) -> int | None:
    """Open a directory by a path of any length; return None if it does not exist.

    Raises OSError.
    """
    fd = os.open(b"/", os.O_PATH | os.O_DIRECTORY)
    for part in filter(None, path.split(b"/")):
        parent = fd
        try:
            fd = os.open(part, os.O_PATH | os.O_DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            return None
        finally:
            os.close(parent)
    return fd


class ThreadLog:
    """The log of one thread."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._base = memory, at
        self._next = 0

    def write(
        self, counts: TreeCounters, kind: str, root: int, path: bytes, names: Sequence[bytes]
    ) -> None:
        """Log the names in a directory that will be removed next, with the counts so far."""
        text = path + b"\0".join(names)
        if self._base < 0:
            return
        if len(text) + _HEAD.size > _SLOT_BYTES:
            self._memory[self._base : self._base + 1] = _OVERFLOWED
            self._base = -1
            return
        slot = self._base + mmap.PAGESIZE + self._next * _SLOT_BYTES
        lengths = len(path), len(text) - len(path)
        done = counts.files, counts.directories, counts.links, counts.special
        _HEAD.pack_into(self._memory, slot, *done, kind.encode(), root, *lengths)
        self._memory[slot + _HEAD.size : slot + _HEAD.size + len(text)] = text
        self._memory[self._base] = self._next + 1
        self._next ^= 1
