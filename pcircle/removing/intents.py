"""What each thread has removed and is about to remove, known also of one that is killed.

A removal is begun again where a rank was lost, and can't find what has gone. So that it is counted
all the same, each thread writes down what it is going to remove before it does, beside how much it
had removed until then: in memory that the ranks of a machine share, which outlives them. What a
killed thread had written down last is looked up: what of it is gone has gone by it.

There are two places for each thread, of which one byte says which holds: a thread that is killed
while it writes has written nothing. It costs no call of the system.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from pcircle.fs.directories import HOLDER
from pcircle.removing.plan import WHOLE
from pcircle.walk.roots import Root

COUNTED = ("files", "directories", "links", "special")
_FIELDS = dict(zip("fdls", COUNTED, strict=True))
_THREADS = 64  # of a rank
_PLACE_BYTES = 192 << 10
_SLOT_BYTES = 2 * _PLACE_BYTES + mmap.PAGESIZE
_HEAD = struct.Struct("<4QcIII")  # the counts, what is removed, the root, lengths of path and names
_ENOUGH = b"\xff"


class Intents:
    """Those of all ranks of a machine. Made before the ranks are."""

    def __init__(self, ranks: int) -> None:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        self._slots = ranks * _THREADS
        self._memory = mmap.mmap(-1, self._slots * _SLOT_BYTES, flags)
        self._numbers = count()  # of the threads of this rank

    def notes(self, rank: int) -> Notes:
        """For one more thread of a rank."""
        number = next(self._numbers)
        at = (rank * _THREADS + min(number, _THREADS - 1)) * _SLOT_BYTES
        if number >= _THREADS:  # so many are none
            self._memory[at : at + 1] = _ENOUGH
        return Notes(self._memory, at if number < _THREADS else -1)

    def removed(self, roots: Sequence[Root], directory: bytes) -> dict[str, int] | None:
        """How much has gone, by the names of counters; None if it is not known. OSError.

        Called when all that removed have ended.
        """
        total: Counter[str] = Counter()
        for slot in range(self._slots):
            at = slot * _SLOT_BYTES
            holds = self._memory[at : at + 1]
            if holds == _ENOUGH:
                return None
            if holds == b"\0":
                continue
            place = at + mmap.PAGESIZE + (holds[0] - 1) * _PLACE_BYTES
            *counts, kind, root, path_length, names_length = _HEAD.unpack_from(self._memory, place)
            total.update(dict(zip(COUNTED, counts, strict=True)))
            begin = place + _HEAD.size
            middle, end = begin + path_length, begin + path_length + names_length
            path, names = self._memory[begin:middle], self._memory[middle:end].split(b"\0")
            total.update(
                _gone(kind.decode(), os.path.join(directory, _at(roots[root], path)), names)
            )
        return dict(total)

    def close(self) -> None:
        """Nobody wants to know any more."""
        self._memory.close()


def _at(root: Root, path: bytes) -> bytes:
    return root.holder if path == HOLDER else os.path.join(root.holder, root.within, path)


def _gone(kind: str, path: bytes, names: Sequence[bytes]) -> Mapping[str, int]:
    """What of an intent has been carried out, by the names of counters. OSError."""
    if kind == WHOLE:
        total: Counter[str] = Counter()
        for name, *files in _groups(names):
            total.update(_gone("f", os.path.join(path, name), files) if files else {})
            total.update(_gone("d", path, [name]))
        return total
    fd = _opened(path)
    if fd is None:
        return {_FIELDS[kind]: len(names)}
    try:
        return {_FIELDS[kind]: sum(not _is_there(name, fd) for name in names)}
    finally:
        os.close(fd)


def _groups(names: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Directories with the files in them; an empty name is behind each."""
    return (group.split(b"\0") for group in b"\0".join(names).removesuffix(b"\0").split(b"\0\0"))


def _is_there(name: bytes, fd: int) -> bool:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=fd, follow_symlinks=False)
        return True
    return False


def _opened(path: bytes) -> int | None:
    """A directory, by a path of any length; None if it is gone. OSError."""
    fd = os.open(b"/", os.O_PATH | os.O_DIRECTORY)
    for part in filter(None, path.split(b"/")):
        above = fd
        try:
            fd = os.open(part, os.O_PATH | os.O_DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            return None
        finally:
            os.close(above)
    return fd


class Notes:
    """One thread's."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at
        self._next = 0

    def intend(
        self, counts: Any, kind: str, root: int, path: bytes, names: Sequence[bytes]
    ) -> None:
        """These names of a directory are removed next; what went before is counted."""
        text = path + b"\0".join(names)
        if self._at < 0:
            return
        if len(text) + _HEAD.size > _PLACE_BYTES:
            self._memory[self._at : self._at + 1] = _ENOUGH
            self._at = -1
            return
        place = self._at + mmap.PAGESIZE + self._next * _PLACE_BYTES
        lengths = len(path), len(text) - len(path)
        done = counts.files, counts.directories, counts.links, counts.special
        _HEAD.pack_into(self._memory, place, *done, kind.encode(), root, *lengths)
        self._memory[place + _HEAD.size : place + _HEAD.size + len(text)] = text
        self._memory[self._at] = self._next + 1
        self._next ^= 1
