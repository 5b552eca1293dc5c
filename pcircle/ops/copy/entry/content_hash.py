"""Computes digests of content while it is copied, and verifies copies by reading them back.

Hashing does not require a second read of the source. The data must be copied with read and write,
however, because data that the kernel moves is not visible. A digest covers the bytes that a reader
of the copy will receive, so holes count as zeros.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Final, NamedTuple

import xxhash

from pcircle.core.buffers import aligned
from pcircle.fs.data import BUFFER_BYTES
from pcircle.fs.directories import closing_fd, open_without_atime
from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import OPEN_ENTRY_PATH, OPEN_FILE
from pcircle.ops.copy.entry.attributes import path_of
from pcircle.ops.copy.entry.files import ONE_READ_BYTES
from pcircle.ops.copy.entry.observers import CopyObserver, Data

DIGEST_BYTES = 16
_PAGE_BYTES = 64 << 10  # the largest page size
_ZEROS = bytes(256 << 10)

digest_of: Final = xxhash.xxh3_128_digest
"""Return the 16-byte XXH3-128 digest of `data`."""

_EMPTY = digest_of(b"")


class ExpectedContent(NamedTuple):
    """The expected content of a copy: size in bytes and digest."""

    size: int
    digest: bytes


class RangeHasher:
    """Computes the digest of a range of a file from its parts in order; gaps are holes."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, offset: int) -> None:
        """Start the range at `offset`."""
        self._hash = xxhash.xxh3_128()
        self._reached = offset

    def see(self, offset: int, part: memoryview | bytes) -> None:
        """Add a part at `offset`."""
        if offset != self._reached:
            self._skip(offset)
        self._hash.update(part)
        self._reached = offset + len(part)

    def append(self, part: memoryview | bytes) -> None:
        """Add a part directly after the previous one."""
        self.see(self._reached, part)

    def end(self, offset: int) -> bytes:
        """End the range at `offset`, and return its digest."""
        self._skip(offset)
        return self._hash.digest()

    def _skip(self, offset: int) -> None:
        while self._reached < offset:
            zeros = _ZEROS[: offset - self._reached]
            self._hash.update(zeros)
            self._reached += len(zeros)


class HashObserver(CopyObserver):
    """Hashes content during the copy; `digest` is the digest of the last range."""

    reads = True

    def __init__(self) -> None:
        self.digest: bytes = _EMPTY
        self._last = ExpectedContent(0, _EMPTY)
        self._seen: dict[bytes, ExpectedContent] = {}
        self._stream = RangeHasher()

    def take(self) -> dict[bytes, ExpectedContent]:
        """Return the content of the files copied since the last call, by source name."""
        seen, self._seen = self._seen, {}
        return seen

    def small(self, data: Data) -> None:
        self._last = ExpectedContent(len(data), digest_of(data))

    def begin_at(self, offset: int) -> None:
        self._stream.begin(offset)

    def see(self, offset: int, data: Data) -> None:
        self._stream.see(offset, data)

    def end_file(self, size: int) -> None:
        self._last = ExpectedContent(size, self._stream.end(size))

    def end_range(self, begin: int, end: int, *, stopped: bool) -> None:
        self.digest = self._stream.end(end)

    def copied(self, name: bytes, size: int) -> None:
        self._seen[name] = self._last


class StopRereading(Exception):
    """The job is stopping, so verification is incomplete."""


class Rereader:
    """Reads copies back for one thread, from disk instead of the page cache if possible."""

    def __init__(self) -> None:
        self._stream = RangeHasher()
        self._buffer = aligned(BUFFER_BYTES)

    def reads(self, directory_fd: int, name: bytes, seen: ExpectedContent) -> bool:
        """Return whether a file has the expected content."""
        with closing_fd(_open(directory_fd, name)) as fd:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if seen.size <= ONE_READ_BYTES:
                # Request one byte more than expected, to detect growth.
                count = os.readv(fd, [self._buffer[: seen.size + 1]])
                return digest_of(self._buffer[:count]) == seen.digest
            whole = self._digest(fd, 0, seen.size, bool) == seen.digest
            return whole and os.fstat(fd).st_size == seen.size

    def has_range_digest(
        self,
        directory_fd: int,
        name: bytes,
        is_expected: Callable[[os.stat_result], bool],
        where: tuple[int, int],
        stop: Callable[[], bool],
        digest: bytes,
    ) -> bool:
        """Return whether the range `where`, given as (offset, length), has the expected digest.

        Raises Changed if the file was replaced, and StopRereading if `stop` returns true.
        """
        with closing_fd(_open(directory_fd, name)) as fd:
            if not is_expected(os.fstat(fd)):
                raise Changed("its copy was replaced by another entry")
            offset, end = where[0], sum(where)
            first = offset // _PAGE_BYTES * _PAGE_BYTES
            behind = -(-end // _PAGE_BYTES) * _PAGE_BYTES
            os.posix_fadvise(fd, first, behind - first, os.POSIX_FADV_DONTNEED)
            return self._digest(fd, offset, end, stop) == digest

    def _digest(self, fd: int, offset: int, end: int, stop: Callable[[], bool]) -> bytes:
        """Return the digest of a range, or of the part of it before the end of the file."""
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
                raise StopRereading
        return stream.end(offset)


def _open(directory_fd: int, name: bytes) -> int:
    """Open a copy for reading, without changing its access time if possible."""
    try:
        return open_without_atime(name, OPEN_FILE, directory_fd)
    except PermissionError:
        return _open_closed(directory_fd, name)


def _open_closed(directory_fd: int, name: bytes) -> int:
    """Open a copy whose mode denies read access to its owner."""
    with closing_fd(os.open(name, OPEN_ENTRY_PATH, dir_fd=directory_fd)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        mode, path = stat.S_IMODE(status.st_mode), path_of(fd)
        os.chmod(path, mode | 0o400)
        try:
            return os.open(path, OPEN_FILE & ~os.O_NOFOLLOW)
        finally:
            os.chmod(path, mode)
