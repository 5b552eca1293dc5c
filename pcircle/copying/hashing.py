"""Digests of what is copied, as it passes, and of what is read back: whether that is the same.

It costs no second read of the source, and copies by read and write alone,
because what the kernel moves by itself is seen by nobody. A hash is of what a
reader of the copy will get: holes count as zeros.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

import xxhash

from pcircle.buffers import aligned
from pcircle.copying.extras import path_of
from pcircle.copying.observing import Data, Observer
from pcircle.copying.plain import ONE_READ_BYTES
from pcircle.copying.settings import SOURCE_FLAGS
from pcircle.fs.data import BUFFER_BYTES
from pcircle.fs.trouble import Changed

DIGEST_BYTES = 16
_PAGE_BYTES = 64 << 10  # of any machine
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ZEROS = bytes(256 << 10)

digest_of = xxhash.xxh3_128_digest
"""The digest of bytes, 16 of them: XXH3-128."""

_EMPTY = digest_of(b"")


class Seen(NamedTuple):
    """What a file's copy must be: size in bytes, and digest."""

    size: int
    digest: bytes


class Stream:
    """The digest of a range of a file, whose parts come in order; what is left out is a hole."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, offset: int) -> None:
        """The range begins here."""
        self._hash = xxhash.xxh3_128()
        self._reached = offset

    def see(self, offset: int, part: memoryview | bytes) -> None:
        """The next part."""
        if offset != self._reached:
            self._skip(offset)
        self._hash.update(part)
        self._reached = offset + len(part)

    def append(self, part: memoryview | bytes) -> None:
        """The next part, right behind the last one."""
        self.see(self._reached, part)

    def end(self, offset: int) -> bytes:
        """The range ends here: its digest."""
        self._skip(offset)
        return self._hash.digest()

    def _skip(self, offset: int) -> None:
        while self._reached < offset:
            zeros = _ZEROS[: offset - self._reached]
            self._hash.update(zeros)
            self._reached += len(zeros)


class Hasher(Observer):
    """Hashes what is copied. `digest` is that of the range that was copied last."""

    reads = True

    def __init__(self) -> None:
        self.digest = _EMPTY
        self._last = Seen(0, _EMPTY)
        self._seen: dict[bytes, Seen] = {}
        self._stream = Stream()

    def take(self) -> dict[bytes, Seen]:
        """The files that were copied since this was asked last, by their names in the source."""
        seen, self._seen = self._seen, {}
        return seen

    def small(self, data: Data) -> None:
        self._last = Seen(len(data), digest_of(data))

    def begin_at(self, offset: int) -> None:
        self._stream.begin(offset)

    def see(self, offset: int, data: Data) -> None:
        self._stream.see(offset, data)

    def end_file(self, size: int) -> None:
        self._last = Seen(size, self._stream.end(size))

    def end_range(self, begin: int, end: int, *, stopped: bool) -> None:
        self.digest = self._stream.end(end)

    def copied(self, name: bytes, size: int) -> None:
        self._seen[name] = self._last


class Stopped(Exception):
    """The job stops early: the item has no result."""


class Rereader:
    """Reads copies again, from the disk and not from memory. One per thread."""

    def __init__(self) -> None:
        self._stream = Stream()
        self._buffer = aligned(BUFFER_BYTES)

    def reads(self, directory_fd: int, name: bytes, seen: Seen) -> bool:
        """Whether a file reads as it should."""
        fd = _open(directory_fd, name)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if seen.size <= ONE_READ_BYTES:
                # One byte more is asked for than there should be.
                count = os.readv(fd, [self._buffer[: seen.size + 1]])
                return digest_of(self._buffer[:count]) == seen.digest
            whole = self._digest(fd, 0, seen.size, bool) == seen.digest
            return whole and os.fstat(fd).st_size == seen.size
        finally:
            os.close(fd)

    def range_reads(
        self,
        directory_fd: int,
        name: bytes,
        is_it: Callable[[os.stat_result], bool],
        where: tuple[int, int],
        digest: bytes,
        stop: Callable[[], bool],
    ) -> bool:
        """Whether a range, given by its offset and length, reads as it should.

        Changed if it is another file. Stopped.
        """
        fd = _open(directory_fd, name)
        try:
            if not is_it(os.fstat(fd)):
                raise Changed("its copy was replaced while it was made")
            offset, end = where[0], sum(where)
            first = offset // _PAGE_BYTES * _PAGE_BYTES
            behind = -(-end // _PAGE_BYTES) * _PAGE_BYTES
            os.posix_fadvise(fd, first, behind - first, os.POSIX_FADV_DONTNEED)
            return self._digest(fd, offset, end, stop) == digest
        finally:
            os.close(fd)

    def _digest(self, fd: int, offset: int, end: int, stop: Callable[[], bool]) -> bytes:
        """The digest of a range, or of as much of it as there is."""
        stream = self._stream
        stream.begin(offset)
        while offset < end:
            part = self._buffer[: min(len(self._buffer), end - offset)]
            count = os.preadv(fd, [part], offset)
            if not count:
                break
            stream.append(part[:count])
            offset += count
            if stop():
                raise Stopped
        return stream.end(offset)


def _open(directory_fd: int, name: bytes) -> int:
    """Open a copy for reading, its time of access unchanged where that can be had."""
    try:
        return os.open(name, SOURCE_FLAGS | os.O_NOATIME, dir_fd=directory_fd)
    except PermissionError:
        pass  # it is another's, or may not be read
    try:
        return os.open(name, SOURCE_FLAGS, dir_fd=directory_fd)
    except PermissionError:
        return _open_closed(directory_fd, name)


def _open_closed(directory_fd: int, name: bytes) -> int:
    """Open a copy whose mode forbids its owner to read it."""
    fd = os.open(name, _PATH, dir_fd=directory_fd)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        mode, path = stat.S_IMODE(status.st_mode), path_of(fd)
        os.chmod(path, mode | 0o400)
        try:
            return os.open(path, SOURCE_FLAGS & ~os.O_NOFOLLOW)
        finally:
            os.chmod(path, mode)
    finally:
        os.close(fd)
