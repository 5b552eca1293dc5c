"""Whether two open files have the same bytes, in a range that may be all of them or a chunk.

Both are read into memory that begins with a page and compared there by the C library, which gives
up the interpreter's lock for it. Files of no more than a block take three calls on each side: open,
read, close. What is a hole on both sides is not read.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Final

from pcircle.buffers import anonymous
from pcircle.comparing.sides import FLAGS, Fds, asked, both, of_side, opened
from pcircle.fs.data import data_ranges

BLOCK_BYTES: Final = 512 << 10
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Contents:
    """Compares ranges of files. One thread's. `read` is told of the bytes of each side."""

    def __init__(self, read: Callable[[int], None] | None = None) -> None:
        self._read = read
        self._views: tuple[memoryview, memoryview] | None = None
        self._places = (0, 0)

    def same(self, fds: Fds, offset: int, length: int, *, sparse: bool = False) -> bool:
        """Whether two open files have the same bytes in a range that lies in both.

        `sparse`: both may have holes. OSError, which knows its side.
        """
        if not sparse:
            return self._same_range(fds, offset, length)
        return all(self._same_range(fds, *each) for each in _data_of_either(fds, offset, length))

    def same_files(
        self, name: bytes, fds: Fds, size: int, other: bytes | None = None, *, sparse: bool = False
    ) -> bool:
        """Whether two regular files in open directories, which had this size, have the same bytes.

        `other` is the name on side B, if that is another one. OSError, which knows its side.
        """
        if size < BLOCK_BYTES:
            first, second = self._buffers()
            # A byte more is asked for than there should be: so nothing is missed at the end.
            if (
                _read_at_once(0, name, fds[0], first[: size + 1]) == size
                and _read_at_once(1, other or name, fds[1], second[: size + 1]) == size
            ):
                if self._read is not None:
                    self._read(size)
                return not _memcmp(*self._places, size)
        with opened(name, fds, other) as (files, statuses):
            size = statuses[0].st_size
            return statuses[1].st_size == size and self.same(files, 0, size, sparse=sparse)

    def same_to_end(self, name: bytes, fds: Fds, other: bytes | None = None) -> tuple[bool, int]:
        """Return whether two files are the same up to their ends, and how much of A was read.

        Their sizes are of no account. OSError, which knows its side.
        """
        at = 0
        with opened(name, fds, other) as (files, _statuses):
            views = self._buffers()
            while True:
                first, second = both(lambda side: _read_on(files[side], views[side]))
                if self._read is not None:
                    self._read(first)
                at += first
                if first != second or _memcmp(*self._places, first):
                    return False, at
                if first < BLOCK_BYTES:
                    return True, at

    def _same_range(self, fds: Fds, offset: int, length: int) -> bool:
        first, second = self._buffers()
        end = offset + length
        while offset < end:
            size = min(BLOCK_BYTES, end - offset)
            read = _filled(0, fds, first[:size], offset)
            if _filled(1, fds, second[:size], offset) != read:
                return False
            if self._read is not None:
                self._read(read)
            if _memcmp(*self._places, read):
                return False
            if read < size:
                return True  # both end here
            offset += size
        return True

    def _buffers(self) -> tuple[memoryview, memoryview]:
        if self._views is None:
            memory = anonymous(BLOCK_BYTES), anonymous(BLOCK_BYTES)
            first, second = (ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in memory)
            self._places = first, second
            self._views = memoryview(memory[0]), memoryview(memory[1])
        return self._views


def _read_at_once(side: int, name: bytes, directory_fd: int, view: memoryview) -> int:
    """Read a small file of one side by one call; returns how much came. OSError."""
    try:
        fd = os.open(name, FLAGS, dir_fd=directory_fd)
        try:
            return os.readv(fd, (view,))
        finally:
            os.close(fd)
    except OSError as error:
        raise of_side(error, side) from None


def _read_on(fd: int, view: memoryview) -> int:
    """Read a block from where the file is; fewer bytes only if it ends."""
    done = 0
    while done < len(view) and (count := os.readv(fd, [view[done:]])):
        done += count
    return done


def _filled(side: int, fds: Fds, view: memoryview, offset: int) -> int:
    """Read a block of one side; fewer bytes only if the file ends."""
    return asked(side, lambda side: _read_whole(fds[side], view, offset))


def _read_whole(fd: int, view: memoryview, offset: int) -> int:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], offset + done)
        if not count:
            break
        done += count
    return done


def _data_of_either(fds: Fds, offset: int, length: int) -> Iterator[tuple[int, int]]:
    """The (offset, length) of what is data in one of two files, or in both, in order."""
    sides = [data_ranges(fd, offset, length) for fd in fds]
    heads = [next(side, None) for side in sides]
    begin = end = offset
    while True:
        waiting = [(head[0], number) for number, head in enumerate(heads) if head is not None]
        if not waiting:
            break
        start, number = min(waiting)
        size = (heads[number] or (0, 0))[1]
        heads[number] = next(sides[number], None)
        if start > end:
            if begin < end:
                yield begin, end - begin
            begin = start
        end = max(end, start + size)
    if begin < end:
        yield begin, end - begin
