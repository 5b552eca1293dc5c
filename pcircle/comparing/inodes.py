"""The status of the files of a directory by their inodes, as XFS tells it: many with one call.

XFS_IOC_BULKSTAT (Linux 5.3; structures and numbers are those of xfs_fs.h) tells the status of all
inodes from a number on, in the order of the disk, and no names. Files that were made together have
inodes next to each other. So a directory is listed with the inode of each name, and a call asks for
hundreds of them, where each name would be a call of its own. In the kernel that takes 0.4 µs a file
in place of 1; what is saved is spent here again to put names and inodes together, so it pays where
inodes have to be read from a disk, which is done for many at once. It takes root.

What it tells is of an inode, and by then a name may be another one's; and the size is what is on
disk, which lags behind while data is being written. Both are only so of an inode whose change time
is new. So no inode counts here that was changed since a given moment: then there is no status, and
names are looked up as ever. Nor does any where something is mounted in the tree: a name in a
directory is then not the file that is seen there.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pcircle.buffers import aligned
from pcircle.fs.scan import FILE, few_files, records_of
from pcircle.fs.stats import CAPACITY, Failed, Stats
from pcircle.mounts import mounts_below, type_of_device

_FEWEST: Final = 24  # files of a directory; for fewer the calls of `Stats` take no longer
_GAP: Final = 64  # inodes of others, at most, that are told of between two that are wanted
_SPREAD: Final = 3  # times as many inodes as are wanted are too many
_TOGETHER: Final = 8  # inodes that are near each other; fewer are not worth a call
_PATIENCE: Final = 64  # directories of which none is asked for after some that were no use

_HEADER = struct.Struct("=QIIII40x")
_STATUS_BYTES = 192
_BULKSTAT = 2 << 30 | _HEADER.size << 16 | ord("X") << 8 | 127
_PLACES: Final = {
    "inode": (0, "Q"),
    "size": (8, "Q"),
    "atime": (32, "q"),
    "mtime": (40, "q"),
    "ctime": (48, "q"),
    "uid": (68, "I"),
    "gid": (72, "I"),
    "atime_ns": (80, "I"),
    "mtime_ns": (84, "I"),
    "ctime_ns": (88, "I"),
    "links": (112, "I"),
    "mode": (132, "H"),
}
"""Where the columns of `Stats` are in a status, and as what."""


class Files(NamedTuple):
    """What is known of all files of a directory: columns by name, and of all together the newest
    change time, in whole seconds, and whether none has another name.
    """

    rows: dict[bytes, tuple[int, ...]]
    newest_s: int
    alone: bool


def tells(path: bytes) -> bool:
    """Whether files below a directory can be asked for in this way, by this user."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        if type_of_device(status.st_dev) != b"xfs" or mounts_below(path):
            return False
        return any(True for _ in Bulk(("mode",)).told(fd, [status.st_ino]))
    except OSError:
        return False  # another user, or an older kernel
    finally:
        os.close(fd)


class Listed:
    """Lists directories with the inode of each name. One thread's."""

    def __init__(self) -> None:
        import ctypes  # few runs need it

        self._call = getattr(ctypes.CDLL(None), "getdents64", None)  # an old C library has none
        self._buffer = bytearray(32768)
        self._place = ctypes.byref((ctypes.c_char * len(self._buffer)).from_buffer(self._buffer))
        self._records = records_of(b"(.{8}).{8}")

    def files(self, directory_fd: int) -> list[tuple[bytes, bytes]]:
        """The inodes of a directory's files, of 8 bytes each, and their kind and name.

        Nothing if there is anything else in it, or more than are worth it. The directory, just
        opened, then is not at its beginning any more.
        """
        found: list[tuple[bytes, bytes]] = []
        size: int = -1
        while self._call is not None and len(found) <= CAPACITY + 2:
            size = self._call(directory_fd, self._place, len(self._buffer))
            if size <= 0:
                break
            found += self._records(self._buffer, 0, size)
        files = [each for each in found if each[1].startswith(FILE)]
        return files if not size and len(files) == len(found) - 2 else []


class Bulk:
    """Tells some columns of `Stats`, of all files of a directory. One thread's."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(sorted(columns, key=_PLACES.__getitem__))
        """Those, in the order in which they are told."""
        self._rows = _picking(self.columns)
        self._more = _picking(("inode", "ctime", "links"))
        self._buffer = aligned(_HEADER.size + CAPACITY * _STATUS_BYTES)
        self._listed = Listed()
        self._is_over = False
        self._useless = self._skipped = 0

    def of(self, directory_fd: int) -> Files | None:
        """What is known of the files of a directory; None if it is no use to ask. OSError.

        The directory, just opened, then is not at its beginning any more.
        """
        if self._is_over or self._skipped < self._useless:
            self._skipped += 1
            return None
        files = self._listed.files(directory_fd)
        if not _FEWEST <= len(files) <= CAPACITY:
            return None
        numbers = [int.from_bytes(inode, "little") for inode, _ in files]
        try:
            told = dict(self.told(directory_fd, numbers))
        except OSError:  # a rank on a node where it is another file system
            self._is_over = True
            return None
        self._skipped = 0
        self._useless = 0 if told else min(2 * self._useless + 1, _PATIENCE)
        try:
            found = [told[number] for number in numbers]
        except KeyError:
            return None
        rows = {name[1:]: row for (_, name), (row, _, _) in zip(files, found, strict=True)}
        return Files(rows, max(each[1] for each in found), all(each[2] == 1 for each in found))

    def told(
        self, fd: int, numbers: Sequence[int]
    ) -> Iterator[tuple[int, tuple[tuple[int, ...], int, int]]]:
        """Of inodes, and others between, the columns, the change time and how many names each has.

        Nothing if these would be too many. OSError.
        """
        runs = list(_runs(sorted(numbers)))
        if sum(last - first + 1 for first, last in runs) > _SPREAD * len(numbers) + _GAP:
            return
        if len(runs) > 1 and len(runs) * _TOGETHER > len(numbers):
            return
        buffer = self._buffer
        body = buffer[_HEADER.size :]
        for first, last in runs:
            while first <= last:
                _HEADER.pack_into(buffer, 0, first, 0, min(CAPACITY, last - first + 1), 0, 0)
                fcntl.ioctl(fd, _BULKSTAT, buffer)
                first, _, _, count, _ = _HEADER.unpack_from(buffer)
                if not count:
                    break
                found = body[: count * _STATUS_BYTES]
                for row, (inode, ctime_s, links) in zip(
                    self._rows.iter_unpack(found), self._more.iter_unpack(found), strict=True
                ):
                    yield inode, (row, ctime_s, links)


class Unchanged:
    """Finds directories of which no file differs from the other side's. One thread's.

    `sides` tells which of both can be asked in bulk; of the other one `looks` are had.
    """

    def __init__(
        self, columns: Sequence[str], sides: tuple[bool, bool], looks: tuple[Stats, Stats]
    ) -> None:
        self._bulk = Bulk(columns)
        self._sides = tuple(zip(sides, looks, strict=True))

    def files(self, fds: tuple[int, int], before_s: tuple[int, int], *, alone: bool) -> int | None:
        """How many files two directories have, if all are the same and were last changed before.

        With `alone` none of the first one has another name. None if that is not known, and then the
        directories are not at their beginning any more. OSError.
        """
        found: list[Files] = []
        for (bulk, look), fd, moment_s in zip(self._sides, fds, before_s, strict=True):
            files = self._bulk.of(fd) if bulk else self._looked(look, fd)
            if files is None or files.newest_s >= moment_s:
                return None
            found.append(files)
        here, there = found
        if (alone and not here.alone) or here.rows != there.rows:
            return None
        return len(here.rows)

    def _looked(self, look: Stats, fd: int) -> Files | None:
        names = few_files(fd, CAPACITY)
        if not names:
            return None
        try:
            look.look(fd, names)
        except Failed:
            return None
        count = len(names)
        columns = [look.column(name, 0, count) for name in self._bulk.columns]
        rows = dict(zip(names, zip(*columns, strict=True), strict=True))
        newest_s = max(look.column("ctime", 0, count))
        return Files(rows, newest_s, look.has_single_names(0, count))


def _picking(columns: Sequence[str]) -> struct.Struct:
    """Finds columns in a status; they are in the order of their places."""
    text, at = "=", 0
    for name in columns:
        place, letter = _PLACES[name]
        text += f"{place - at}x{letter}"
        at = place + struct.calcsize("=" + letter)
    return struct.Struct(f"{text}{_STATUS_BYTES - at}x")


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and last of numbers, in order, that are near each other."""
    first = last = numbers[0]
    if numbers[-1] - first < 2 * len(numbers):
        yield first, numbers[-1]
        return
    for number in numbers:
        if number - last > _GAP:
            yield first, last
            first = number
        last = number
    yield first, last
