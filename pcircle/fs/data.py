"""Moving the bytes of a file: ranges, holes, and the cheapest way that works.

`copy_file_range` first: the kernel moves the bytes, a server may do it by
itself. Where the pair of file systems can't (EXDEV, EOPNOTSUPP, EINVAL,
ENOSYS ...), reading and writing through a buffer that stays in the
processor's cache. Holes are found by SEEK_DATA and are never written, so
they stay holes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

BUFFER_BYTES = 1 << 20
_NEVER = (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS)
_NOT_THIS_FILE = (errno.EINVAL, errno.EPERM, errno.ETXTBSY, errno.EBADF)


def data_ranges(fd: int, offset: int, length: int) -> Iterator[tuple[int, int]]:
    """The (offset, length) of the data, hole by hole, within a range of a file."""
    end = offset + length
    while offset < end:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            if error.errno != errno.EINVAL:
                raise
            yield offset, end - offset  # the file system knows nothing of holes
            return
        if start >= end:
            return
        stop = min(end, os.lseek(fd, start, os.SEEK_HOLE))
        yield start, stop - start
        offset = stop


def may_have_holes(status: os.stat_result) -> bool:
    """Whether a file takes less space than it has bytes."""
    return status.st_blocks * 512 < status.st_size


class Mover:
    """Copies ranges between files, remembering which way worked. One per thread."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._by_kernel = True

    def move(self, source_fd: int, target_fd: int, offset: int, length: int) -> int:
        """Copy a range to the same place in the target; returns the bytes copied.

        Fewer than `length` only if the source ends before. OSError as of read or write.
        """
        done = 0
        while done < length and self._by_kernel:
            at = offset + done
            try:
                count = os.copy_file_range(source_fd, target_fd, length - done, at, at)
            except OSError as error:
                if error.errno not in _NEVER + _NOT_THIS_FILE:
                    raise
                self._by_kernel = error.errno not in _NEVER
                break
            if not count:
                # The source's end; or one of the file systems that can't and don't say so.
                break
            done += count
        if done < length:
            done += self._through_buffer(source_fd, target_fd, offset + done, length - done)
        return done

    def _through_buffer(self, source_fd: int, target_fd: int, offset: int, length: int) -> int:
        done = 0
        while done < length:
            part = self._view[: min(BUFFER_BYTES, length - done)]
            count = os.preadv(source_fd, [part], offset + done)
            if not count:
                break
            write_at(target_fd, part[:count], offset + done)
            done += count
        return done


def write_at(fd: int, data: memoryview | bytes, offset: int) -> None:
    """Write all of `data` at an offset, however many calls that takes."""
    written = os.pwrite(fd, data, offset)
    while written < len(data):
        data = memoryview(data)[written:]
        offset += written
        written = os.pwrite(fd, data, offset)


def write_all(fd: int, data: memoryview | bytes) -> None:
    """Write all of `data` at the file's position, however many calls that takes."""
    written = os.write(fd, data)
    while written < len(data):
        data = memoryview(data)[written:]
        written = os.write(fd, data)
