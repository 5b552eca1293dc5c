"""Copy the data of a file: ranges, holes, and the cheapest method that works.

Four methods are tried in this order for each pair of file systems:

- *clone* (FICLONE, FICLONERANGE): the target shares the source's blocks until one of them is
  written to. One call suffices for any size.
- `copy_file_range`: the kernel or the server copies the bytes. On XFS and btrfs it clones, too, so
  it is not used if clones are not wanted.
- `sendfile`: the kernel copies the bytes, even between file systems of different types.
- reading and writing through a buffer: works on all file systems and is tried last.

The following times are medians of interleaved runs in milliseconds, measured on Linux 6.18 with two
cores and dense files in the page cache (XFS on a loop device). They exclude cloning, with which
copy_file_range takes 0.02, 0.02 and 0.1 ms on XFS:

    file      on      copy_file_range  sendfile  256 KiB  512 KiB  1 MiB
    256 KiB   tmpfs   0.068            0.065     0.075    0.077    0.074
    2 MiB     tmpfs   0.51             0.58      0.63     0.64     0.68
    256 MiB   tmpfs   112              106       130      128      143
    256 KiB   XFS     0.034            0.033     0.036    0.035    0.036
    2 MiB     XFS     0.29             0.28      0.31     0.32     0.35
    256 MiB   XFS     66               71        70       71       76
    2 MiB     both    -                0.39      0.45     0.45     0.51
    256 MiB   both    -                84        97       100      97

(`both` is from tmpfs to XFS, where copy_file_range fails.)

Therefore the kernel's methods are tried before the buffer. The buffer size is 512 KiB, because a
larger one does not fit in the processor's cache and is usually slower.

A method that a pair of file systems does not support (EXDEV, EOPNOTSUPP, ENOSYS, ENOTTY) is not
tried again for that pair. Any other error may concern a single file (EINVAL for a file that is open
for appending or, on btrfs, without checksums; EPERM for a sealed file), so the method is tried
again with the next file. If a method copies nothing and reports no error, as for files in /proc,
the next method is tried. Only an empty read means the end of the file.

Callers find holes by SEEK_DATA (`data_ranges`) and do not copy them, so they remain holes. If the
file system is not known to report them correctly (`pcircle.fs.file_system`), the whole file is
read. Targets must be empty files, so that ranges that are not written read as zeros.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from pcircle.core.buffers import anonymous
from pcircle.core.writing import write_at
from pcircle.fs.attributes.lustre import is_released
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.directories import join_path, open_without_atime
from pcircle.fs.file_system import reports_holes
from pcircle.fs.open_flags import O_NOATIME

if TYPE_CHECKING:
    from pcircle.fs.status import FileStatus

BUFFER_BYTES = 512 << 10
BLOCK_BYTES = 4096
"""The alignment that permits clones, and the unit of holes."""

When: TypeAlias = Literal["auto", "always", "never"]
Pair: TypeAlias = "tuple[int, int]"
"""The devices of source and target."""

Way: TypeAlias = "Callable[[int, int, int, int], int]"
"""A copy method: takes source, target, offset and length; returns the number of bytes moved."""

# From linux/fs.h, as most architectures encode them; other architectures refuse the requests.
_FICLONE = 0x40049409
_FICLONERANGE = 0x4020940D

_NOT_THIS_PAIR = frozenset((errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY))
# Errors of a full or broken disk: no other method is tried after them.
_FINAL = frozenset(
    (
        errno.EIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.ESTALE,
    )
)
_ZEROS = bytes(BLOCK_BYTES)
# File systems without archives: a file without blocks is sparse or stored in its inode.
_UNTIERED = frozenset(
    b"tmpfs devtmpfs ramfs ext2 ext3 ext4 xfs btrfs bcachefs f2fs zfs overlay vfat exfat".split()
)
_INLINE_BYTES = 64 << 10  # an upper bound on data in inodes or fragments; GPFS stores up to 4 KiB


def data_ranges(fd: int, offset: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield the (offset, length) of each region of data within a range of a file."""
    end = offset + length
    if offset < end and not reports_holes(fd):
        yield offset, length
        return
    while offset < end:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            if error.errno != errno.EINVAL:
                raise
            yield offset, end - offset  # the file system does not support holes
            return
        if start >= end:
            return
        stop = min(end, os.lseek(fd, start, os.SEEK_HOLE))
        yield start, stop - start
        offset = stop


def data_chunks(fd: int, size: int, whole: int, *, sparse: bool) -> Iterator[tuple[int, int]]:
    """Yield the (offset, length) of the chunks of a file that are not entirely holes.

    `sparse` means that the file may have holes.
    """
    offset = 0
    sparse = sparse and reports_holes(fd)
    while offset < size:
        data = offset
        try:
            if sparse:
                data = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # only a hole is left
            # Otherwise the file system does not support holes.
        offset = max(offset, data // whole * whole)
        yield offset, min(whole, size - offset)
        offset += whole


def may_have_holes(status: os.stat_result) -> bool:
    """Return whether a file occupies less space than its size."""
    return status.st_blocks * 512 < status.st_size


def clone_range(source_fd: int, target_fd: int, offset: int, length: int) -> int:
    """Clone a range of blocks; return `length`, or 0 if the range does not start at a block."""
    if offset % BLOCK_BYTES:
        return 0
    fcntl.ioctl(target_fd, _FICLONERANGE, struct.pack("=qQQQ", source_fd, offset, length, offset))
    return length


def copy_range(source_fd: int, target_fd: int, offset: int, length: int) -> int:
    """Copy a range with copy_file_range, in the kernel or on the server."""
    return os.copy_file_range(source_fd, target_fd, length, offset, offset)


def send_range(source_fd: int, target_fd: int, offset: int, length: int) -> int:
    """Copy a range with sendfile, which changes the target's position."""
    os.lseek(target_fd, offset, os.SEEK_SET)
    return os.sendfile(target_fd, source_fd, offset, length)


def ways_of(reflink: When, sparse: When) -> tuple[Way, ...]:
    """Return the methods that a copy may try before reading and writing through a buffer."""
    if sparse == "always":
        return ()  # finding zeros requires reading the data
    if sparse == "never" or reflink == "never":
        return (send_range,)  # copy_file_range may clone, and clones keep holes
    return (clone_range, copy_range, send_range)


class DataCopier:
    """Copies ranges between files, and remembers the methods that each pair of devices supports.

    Each thread must use its own instance. `reflink` and `sparse` are the options of these names;
    `ways` overrides the methods that they permit. `see` is called with the offset and content of
    all data that passes through the buffer; if `ways` is empty, that is all data.
    """

    def __init__(
        self,
        reflink: When = "auto",
        sparse: When = "auto",
        ways: Sequence[Way] | None = None,
        see: Callable[[int, memoryview], None] | None = None,
    ) -> None:
        self.must_clone: bool = reflink == "always"
        self._ways = ways_of(reflink, sparse) if ways is None else tuple(ways)
        self._left: dict[Pair, list[Way]] = {}
        self._skips_zeros = sparse == "always"
        self._see = see
        self._buffer = anonymous(BUFFER_BYTES)
        self._view = memoryview(self._buffer)

    def clone(self, source_fd: int, target_fd: int, pair: Pair | None = None) -> bool:
        """Clone the whole source into an empty target; return False if it must be copied instead.

        Raises OSError if the options require a clone and cloning fails. Otherwise the file is
        copied after any error. The copy fails in the same way unless the error is specific to
        clones: XFS may need more space for a clone than is free in that part of the disk.
        """
        if clone_range not in self._ways:
            return False
        left = self._left_to(pair or pair_of(source_fd, target_fd))
        if clone_range not in left and not self.must_clone:
            return False
        try:
            fcntl.ioctl(target_fd, _FICLONE, source_fd)
        except OSError as error:
            if self.must_clone:
                raise
            if error.errno in _NOT_THIS_PAIR:
                left.remove(clone_range)
            return False
        return True

    def move(
        self,
        source_fd: int,
        target_fd: int,
        offset: int,
        length: int,
        pair: Pair | None = None,
        *,
        skips_zeros: bool = False,
    ) -> int:
        """Copy a range to the same place in the target; return the number of bytes copied.

        With `skips_zeros`, blocks of zeros are omitted. The result is less than `length` only if
        the source ends earlier. The position of the target is ignored, and undefined afterwards.
        Passing `pair` saves looking up the devices. Raises OSError if reading or writing fails.
        """
        done = 0
        skips_zeros = skips_zeros or self._skips_zeros
        if self._ways and not skips_zeros:
            left = self._left_to(pair or pair_of(source_fd, target_fd))
            for way in tuple(left):
                done += self._go(way, left, source_fd, target_fd, offset + done, length - done)
                if done == length:
                    return done
        remaining = source_fd, target_fd, offset + done, length - done
        return done + self._through_buffer(*remaining, skips_zeros=skips_zeros)

    def _left_to(self, pair: Pair) -> list[Way]:
        left = self._left.get(pair)
        if left is None:
            left = self._left[pair] = list(self._ways)
        return left

    def _go(
        self, way: Way, left: list[Way], source_fd: int, target_fd: int, offset: int, length: int
    ) -> int:
        """Copy with one method until it fails; return the number of bytes copied."""
        done = 0
        while done < length:
            try:
                count = way(source_fd, target_fd, offset + done, length - done)
            except OSError as error:
                if error.errno in _FINAL and way is not clone_range:
                    raise
                if error.errno in _NOT_THIS_PAIR:
                    left.remove(way)
                break
            if not count:
                # The end of the source, or a file system that fails without an error.
                break
            done += count
        return done

    def _through_buffer(
        self, source_fd: int, target_fd: int, offset: int, length: int, *, skips_zeros: bool
    ) -> int:
        done = 0
        while done < length:
            part = self._view[: min(BUFFER_BYTES, length - done)]
            count = os.preadv(source_fd, [part], offset + done)
            if not count:
                break
            if self._see is not None:
                self._see(offset + done, part[:count])
            if skips_zeros:
                self._write_data(target_fd, offset + done, count)
            else:
                write_at(target_fd, part[:count], offset + done)
            done += count
        return done

    def _write_data(self, target_fd: int, offset: int, count: int) -> None:
        """Write the content of the buffer, except blocks of zeros."""
        begin = at = 0
        while at < count:
            size = min(BLOCK_BYTES - (offset + at) % BLOCK_BYTES, count - at)
            if not self._view[at] and self._buffer[at : at + size] == _ZEROS[:size]:
                if begin < at:
                    write_at(target_fd, self._view[begin:at], offset + begin)
                begin = at + size
            at += size
        if begin < count:
            write_at(target_fd, self._view[begin:count], offset + begin)


def pair_of(source_fd: int, target_fd: int) -> Pair:
    """Return the devices of two open files."""
    return os.fstat(source_fd).st_dev, os.fstat(target_fd).st_dev


class OfflineDetector:
    """Detects files whose data is elsewhere, for example on tape, without opening them."""

    def __init__(self, *, follow: bool = False) -> None:
        self._follow = follow
        self._types: dict[int, bytes | None] = {}  # by device

    def is_offline(self, name: bytes, directory_fd: int | None, status: FileStatus) -> bool:
        """Return whether the data of a file must be fetched before it can be read.

        If `directory_fd` is None, the name is a path. On Lustre the layout decides; a released file
        has at most one block. On any other file system that an archive may back, a file counts as
        offline if it has no blocks but more bytes than fit in an inode. This includes files that
        consist of a single hole.
        """
        if not stat.S_ISREG(status.st_mode) or not status.st_size or status.st_blocks > 1:
            return False
        type_ = self._type_of(status.st_dev)
        if type_ == b"lustre":
            try:
                path = name if directory_fd is None else _below(directory_fd, name)
                return is_released(path, follow=self._follow)
            except OSError:
                return False  # the tool reports the error when it opens the file
        return (
            not status.st_blocks and status.st_size > _INLINE_BYTES and self.may_have(status.st_dev)
        )

    def may_have(self, device: int) -> bool:
        """Return whether the file system with this device number may be backed by an archive."""
        type_ = self._type_of(device)
        return type_ is not None and type_ not in _UNTIERED

    def _type_of(self, device: int) -> bytes | None:
        if device not in self._types:
            self._types[device] = type_of_device(device)
        return self._types[device]


def _below(directory_fd: int, name: bytes) -> bytes:
    return b"/proc/self/fd/%d/%b" % (directory_fd, name)


class RecallCounts(Protocol):
    """The counters of files whose reading has a side effect."""

    recalled: int
    atime_not_kept: int


class ReadEffects:
    """Counts a thread's files whose reading has a side effect: a recall, or a new access time.

    `tell` is called for the first offline file, `tell_atime` for the first file whose access time
    changes although `noatime` is set. Their arguments are the root number and the path. `place`
    contains the root number and path of the current directory.

    `open` opens a file to read it. If `noatime` is set, its access time is kept, which the system
    permits only to the owner of the file and to root. `reopen` opens a file for more of its data
    and does not count it again. `flags` are the additional flags of both.
    """

    def __init__(
        self, counts: RecallCounts, *, follow: bool = False, noatime: bool = False
    ) -> None:
        self.place: tuple[int, bytes] = (0, b"")
        self.tell: Callable[[int, bytes], None] | None = None
        self.tell_atime: Callable[[int, bytes], None] | None = None
        self.flags: int = O_NOATIME if noatime else 0
        self.open: Callable[..., int] = self._open_without_atime if noatime else os.open
        self.reopen: Callable[..., int] = open_without_atime if noatime else os.open
        self._has_reported = self._has_reported_atime = False
        self._counts = counts
        self._tiers = OfflineDetector(follow=follow)

    def _open_without_atime(self, name: bytes, flags: int, *, dir_fd: int | None) -> int:
        fd = open_without_atime(name, flags, dir_fd)
        self.check_atime(fd, name)
        return fd

    def check_atime(self, fd: int, name: bytes) -> None:
        """Count a file that is about to be read if reading will change its access time."""
        if not self.flags or fcntl.fcntl(fd, fcntl.F_GETFL) & O_NOATIME:
            return
        self._counts.atime_not_kept += 1
        if self.tell_atime is not None and not self._has_reported_atime:
            self._has_reported_atime = True
            root, path = self.place
            self.tell_atime(root, join_path(path, name))

    def see(self, name: bytes, directory_fd: int | None, status: FileStatus) -> None:
        """Count a file before it is read; if `directory_fd` is None, the name is a path."""
        if status.st_blocks > 1 or not self._tiers.is_offline(name, directory_fd, status):
            return
        self._counts.recalled += 1
        if self.tell is not None and not self._has_reported:
            self._has_reported = True
            root, path = self.place
            self.tell(root, join_path(path, name))
