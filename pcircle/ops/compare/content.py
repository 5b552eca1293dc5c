"""Compares two files, or a range of two files, byte by byte.

Both files are read into page-aligned memory and compared by memcmp, which runs without the
interpreter lock. A file smaller than one block takes three calls per side: open, read and close.
Ranges that are holes on both sides are not read.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Final

from pcircle.core.buffers import anonymous
from pcircle.fs.data import data_ranges
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.ops.compare.statuses import Fds, Openers, both, open_files, set_error_side, with_side

BLOCK_BYTES: Final = 512 << 10
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class ContentComparer:
    """Compares ranges of files; not thread-safe.

    `read` is called with the number of bytes that were just read from each side. `openers` replace
    `os.open` on each side.
    """

    def __init__(
        self,
        read: Callable[[int], None] | None = None,
        openers: Openers = (os.open, os.open),
    ) -> None:
        self._read = read
        self.openers = openers
        self._views: tuple[memoryview, memoryview] | None = None
        self._places = (0, 0)

    def same(self, fds: Fds, offset: int, length: int, *, sparse: bool = False) -> bool:
        """Return whether two open files have the same bytes in a range that both contain.

        `sparse` means that either file may have holes. Raises OSError with the side of the error;
        see `error_side`.
        """
        if not sparse:
            return self._same_range(fds, offset, length)
        return all(self._same_range(fds, *buffer) for buffer in _data_ranges(fds, offset, length))

    def same_files(
        self, name: bytes, fds: Fds, size: int, other: bytes | None = None, *, sparse: bool = False
    ) -> bool:
        """Return whether two regular files in open directories have the same bytes.

        Both files are expected to have `size` bytes. `other` is the name on side B if it differs.
        Raises OSError with the side of the error.
        """
        if size < BLOCK_BYTES:
            first, second = self._buffers()
            # Request one byte more than expected, to detect a file that has grown.
            if (
                self._read_at_once(0, name, fds[0], first[: size + 1]) == size
                and self._read_at_once(1, other or name, fds[1], second[: size + 1]) == size
            ):
                if self._read is not None:
                    self._read(size)
                return not _memcmp(*self._places, size)
        with open_files(name, fds, other, self.openers) as (files, statuses):
            size = statuses[0].st_size
            return statuses[1].st_size == size and self.same(files, 0, size, sparse=sparse)

    def same_to_end(self, name: bytes, fds: Fds, other: bytes | None = None) -> tuple[bool, int]:
        """Return whether two files have the same content, and the number of bytes read from A.

        The sizes that stat reports are ignored. Raises OSError with the side of the error.
        """
        at = 0
        with open_files(name, fds, other, self.openers) as (files, _statuses):
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
            read = _read_block(0, fds, first[:size], offset)
            if _read_block(1, fds, second[:size], offset) != read:
                return False
            if self._read is not None:
                self._read(read)
            if _memcmp(*self._places, read):
                return False
            if read < size:
                return True  # both files end here
            offset += size
        return True

    def _read_at_once(self, side: int, name: bytes, directory_fd: int, view: memoryview) -> int:
        """Read a small file of one side in one call; return the number of bytes. Raises OSError."""
        try:
            fd = self.openers[side](name, OPEN_FILE, dir_fd=directory_fd)
            try:
                return os.readv(fd, (view,))
            finally:
                os.close(fd)
        except OSError as error:
            raise set_error_side(error, side) from None

    def _buffers(self) -> tuple[memoryview, memoryview]:
        if self._views is None:
            memory = anonymous(BLOCK_BYTES), anonymous(BLOCK_BYTES)
            first, second = (
                ctypes.addressof(ctypes.c_char.from_buffer(buffer)) for buffer in memory
            )
            self._places = first, second
            self._views = memoryview(memory[0]), memoryview(memory[1])
        return self._views


def _read_on(fd: int, view: memoryview) -> int:
    """Read a block at the current position; only at the end of the file is less returned."""
    done = 0
    while done < len(view) and (count := os.readv(fd, [view[done:]])):
        done += count
    return done


def _read_block(side: int, fds: Fds, view: memoryview, offset: int) -> int:
    """Read a block from one side; only at the end of the file is less returned."""
    return with_side(side, lambda side: _read_whole(fds[side], view, offset))


def _read_whole(fd: int, view: memoryview, offset: int) -> int:
    done = 0
    while done < len(view) and (count := os.preadv(fd, [view[done:]], offset + done)):
        done += count
    return done


def _data_ranges(fds: Fds, offset: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield the ordered ranges (offset, length) that are data in at least one of two files."""
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
