"""The index of a checkpoint: where the records of earlier runs lie, in the order of their keys.

Rank 0 writes it when a job resumes, all ranks read it. Neither needs more memory for more records:
`Places` sorts as many as fit, keeps them in a nameless file of the checkpoint, and merges what is
there in the end, when it is known what was committed. `Index` reads a block at a time.

Keys are hashes, so where one is to be found is known to the root of their number: a lookup reads
a few blocks that lie together.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pcircle.fs.directories import close_open
from pcircle.writing import write_all

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table: TypeAlias = NDArray[Any]

_ROW = struct.Struct("<16sIIQIQ")  # key, run, rank, offset and length of a record, its epoch
_ENTRY = struct.Struct("<16sIIQI")  # the same, without the epoch
_FIELDS = [("high", ">u8"), ("low", ">u8"), ("run", "<u4"), ("rest", "V16"), ("epoch", "<u8")]
_KEY_BYTES = 16
_SORTED_ROWS = 1 << 18
_RUNS = b"index.runs"
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK_ENTRIES = 256  # that are read at a time


class Place(NamedTuple):
    """Where a record is."""

    run: int
    rank: int
    offset: int
    length: int


class Places:
    """Where records lie, as they are read; some `sorted_rows` are held at a time.

    What is seen counts when it is accepted. OSError without the space.
    """

    def __init__(self, directory_fd: int, sorted_rows: int = _SORTED_ROWS) -> None:
        self._directory_fd = directory_fd
        self._sorted_rows = sorted_rows
        self._rows = bytearray()
        self._accepted = 0  # bytes
        self._fd: int | None = None
        self._ends = [0]  # of the sorted runs in the file

    def see(self, key: bytes, place: Place, epoch: int) -> None:
        """A record that counts with the commit of this epoch."""
        self._rows += _ROW.pack(key, *place, epoch)

    def accept(self) -> None:
        """What was seen since the last call is sound."""
        self._accepted = len(self._rows)
        if self._accepted >= self._sorted_rows * _ROW.size:
            self._put_away()

    def reject(self) -> None:
        """It is not."""
        del self._rows[self._accepted :]

    def close(self) -> None:
        """Let go of all."""
        self._rows.clear()
        fd, self._fd = self._fd, None
        if fd is not None:
            close_open(fd)  # nobody reads it any more

    def _put_away(self) -> None:
        if self._fd is None:
            with suppress(FileNotFoundError):  # of a run that ended between the next two calls
                os.unlink(_RUNS, dir_fd=self._directory_fd)
            self._fd = os.open(_RUNS, _CREATE, 0o600, dir_fd=self._directory_fd)
            os.unlink(_RUNS, dir_fd=self._directory_fd)
        write_all(self._fd, _in_order(_table(self._rows)).tobytes())
        self._ends.append(self._ends[-1] + len(self._rows))
        self._rows.clear()
        self._accepted = 0

    def committed(self, commits: Mapping[int, int]) -> Iterator[bytes]:
        """Entries of the index in their order, some at a time: those of epochs that are committed.

        `commits` has the last one of each run. Records of one key are in no order.
        """
        import numpy as np  # few runs resume, and it takes long to import

        for table in self._merged():
            trusted = np.zeros(len(table), dtype=bool)
            for run, epoch in commits.items():
                trusted |= (table["run"] == run) & (table["epoch"] <= epoch)
            rows = table[trusted].view(np.uint8).reshape(-1, _ROW.size)
            yield rows[:, : _ENTRY.size].tobytes()

    def _merged(self) -> Iterator[Table]:
        """All rows in order: of each run a piece, of which what comes first is put in order."""
        if self._fd is None:
            yield _in_order(_table(self._rows))
            return
        if self._rows:
            self._put_away()
        # Less at a time than is sorted before: what is put together is there several times.
        rows = max(1, self._sorted_rows // 4 // (len(self._ends) - 1))
        ends = zip(self._ends, self._ends[1:], strict=False)
        runs = [_Run(self._fd, *each, rows * _ROW.size) for each in ends]
        while runs := [run for run in runs if run.fill()]:
            # What is still to be read of a run is not before the last row of its piece.
            last = min((run.last for run in runs if run.goes_on), default=None)
            # As bytes: NumPy would turn keys round that it puts together.
            yield _in_order(_table(b"".join([run.take(last).tobytes() for run in runs])))


class _Run:
    """Sorted rows in a file, of which a piece is in memory."""

    def __init__(self, fd: int, begin: int, end: int, piece_bytes: int) -> None:
        self._fd = fd
        self._at = begin
        self._end = end
        self._piece_bytes = piece_bytes
        self._piece = _table(b"")

    def fill(self) -> bool:
        """Read on if all of the piece was taken; whether there is anything left."""
        if not len(self._piece) and self.goes_on:
            wanted = min(self._piece_bytes, self._end - self._at)
            data = os.pread(self._fd, wanted, self._at)
            if len(data) < wanted:
                raise OSError("the sorted records are cut short")
            self._at += wanted
            self._piece = _table(data)
        return len(self._piece) > 0

    @property
    def goes_on(self) -> bool:
        """Whether there is more than the piece."""
        return self._at < self._end

    @property
    def last(self) -> tuple[int, int]:
        """The last key of the piece."""
        return int(self._piece["high"][-1]), int(self._piece["low"][-1])

    def take(self, last: tuple[int, int] | None) -> Table:
        """The rows of the piece that are not behind a key; all if there is none."""
        piece = self._piece
        end = len(piece)
        if last is not None:
            import numpy as np

            high, low = map(np.uint64, last)  # others are compared as floating-point numbers
            same = slice(*(piece["high"].searchsorted(high, side) for side in ("left", "right")))
            end = int(same.start + piece["low"][same].searchsorted(low, "right"))
        self._piece = piece[end:]
        return piece[:end]


def _table(rows: bytes | bytearray) -> Table:
    import numpy as np

    return np.frombuffer(rows, dtype=np.dtype(_FIELDS))


def _in_order(table: Table) -> Table:
    import numpy as np

    ordered: Table = table[np.lexsort((table["low"], table["high"]))]
    return ordered


class Index:
    """The index of a checkpoint, for reading. OSError if there is none.

    What of it can't be read is as if it were not there. It is not mapped, since the kernel maps up
    to megabytes around what is touched, which count as the rank's.
    """

    def __init__(self, directory_fd: int) -> None:
        self._fd = os.open(b"index", _READ, dir_fd=directory_fd)
        self._count = os.fstat(self._fd).st_size // _ENTRY.size
        self._block, self._number = b"", -1  # the block that was read last

    def places(self, key: bytes) -> Iterator[Place]:
        """Where the records of a key are."""
        with suppress(OSError):
            at = self._first(key)
            while at < self._count and self._key_at(at) == key:
                data, begin = self._entry(at)
                yield Place(*_ENTRY.unpack_from(data, begin)[1:])
                at += 1

    def _first(self, key: bytes) -> int:
        """The first entry that is not before a key: bisected from where it is likely to be."""
        count = self._count
        if not count:
            return 0
        low = high = int.from_bytes(key[:8], "big") * count >> 64
        step = far = isqrt(count) // 2 + 1
        while low and self._key_at(low) >= key:
            low, high, step = max(0, low - step), low, 2 * step
        step = far
        while high < count and self._key_at(high) < key:
            low, high, step = high, min(count, high + step), 2 * step
        return bisect_left(range(count), key, low, high, key=self._key_at)

    def _key_at(self, number: int) -> bytes:
        data, begin = self._entry(number)
        return data[begin : begin + _KEY_BYTES]

    def _entry(self, number: int) -> tuple[bytes, int]:
        """The block that has an entry, and where it is in it. OSError."""
        block, within = divmod(number, _BLOCK_ENTRIES)
        if block != self._number:
            wanted = min(_BLOCK_ENTRIES, self._count - block * _BLOCK_ENTRIES) * _ENTRY.size
            data = os.pread(self._fd, wanted, block * _BLOCK_ENTRIES * _ENTRY.size)
            if len(data) < wanted:
                raise OSError("the checkpoint's index is cut short")
            self._block, self._number = data, block
        return self._block, within * _ENTRY.size

    def close(self) -> None:
        """Nothing is known any more."""
        fd, self._fd, self._count = self._fd, -1, 0
        if fd >= 0:
            close_open(fd)
