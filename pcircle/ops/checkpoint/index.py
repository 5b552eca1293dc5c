"""The index of a checkpoint: the locations of the records of previous runs, sorted by key.

Rank 0 writes the index when a job resumes, and all ranks read it. Memory use does not depend on the
number of records. `IndexBuilder` sorts as many records as fit in memory, and stores the sorted runs
in an unlinked file. It merges the runs at the end, when it is known which epochs were committed.
`RecordIndex` reads one block at a time.

Keys are hashes and therefore uniformly distributed. The position of a key can be predicted with an
error of about the square root of the number of records. A lookup therefore reads only a few
adjacent blocks.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pcircle.core.writing import write_all
from pcircle.fs.directories import close_open
from pcircle.fs.open_flags import CREATE_FILE_READABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table: TypeAlias = NDArray[Any]

_ROW = struct.Struct("<16sIIQIQ")  # key, run, rank, offset, length, epoch
_ENTRY = struct.Struct("<16sIIQI")  # the same fields without the epoch
_FIELDS = [("high", ">u8"), ("low", ">u8"), ("run", "<u4"), ("rest", "V16"), ("epoch", "<u8")]
_KEY_BYTES = 16
_SORTED_ROWS = 1 << 18
_RUNS = b"index.runs"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK_ENTRIES = 256  # number of entries per read


class RecordLocation(NamedTuple):
    """The location of a record: the run and rank of a journal, and the offset and length in it."""

    run: int
    rank: int
    offset: int
    length: int


class IndexBuilder:
    """Collects record locations, and keeps about `sorted_rows` of them in memory.

    Locations are included only if `accept` is called after them. Raises OSError if there is no
    space.
    """

    def __init__(self, directory_fd: int, sorted_rows: int = _SORTED_ROWS) -> None:
        self._directory_fd = directory_fd
        self._sorted_rows = sorted_rows
        self._rows = bytearray()
        self._accepted = 0  # number of accepted bytes
        self._fd: int | None = None
        self._ends = [0]  # end offsets of the sorted runs in the file

    def add(self, key: bytes, place: tuple[int, int, int, int], epoch: int) -> None:
        """Add a record that becomes valid with the commit of `epoch`."""
        self._rows += _ROW.pack(key, *place, epoch)

    def accept(self) -> None:
        """Include the records added since the last call."""
        self._accepted = len(self._rows)
        if self._accepted >= self._sorted_rows * _ROW.size:
            self._spill()

    def reject(self) -> None:
        """Discard the records added since the last call of `accept`."""
        del self._rows[self._accepted :]

    def close(self) -> None:
        """Release the memory and the file."""
        self._rows.clear()
        fd, self._fd = self._fd, None
        if fd is not None:
            close_open(fd)  # errors do not matter, because the file is no longer needed

    def _spill(self) -> None:
        if self._fd is None:
            # It exists if a run was killed between the next two calls.
            with suppress(FileNotFoundError):
                os.unlink(_RUNS, dir_fd=self._directory_fd)
            self._fd = os.open(_RUNS, CREATE_FILE_READABLE, 0o600, dir_fd=self._directory_fd)
            os.unlink(_RUNS, dir_fd=self._directory_fd)
        write_all(self._fd, _sort(_table(self._rows)).tobytes())
        self._ends.append(self._ends[-1] + len(self._rows))
        self._rows.clear()
        self._accepted = 0

    def committed_entries(self, commits: Mapping[int, int]) -> Iterator[bytes]:
        """Yield index entries of committed epochs in key order, several at a time.

        `commits` maps each run to its last committed epoch. The order of records with the same key
        is undefined.
        """
        import numpy as np  # imported late: few runs resume

        for table in self._merge():
            trusted = np.zeros(len(table), dtype=bool)
            for run, epoch in commits.items():
                trusted |= (table["run"] == run) & (table["epoch"] <= epoch)
            rows = table[trusted].view(np.uint8).reshape(-1, _ROW.size)
            yield rows[:, : _ENTRY.size].tobytes()

    def _merge(self) -> Iterator[Table]:
        """Merge all runs: read a piece of each, and yield the rows that precede all unread ones."""
        if self._fd is None:
            yield _sort(_table(self._rows))
            return
        if self._rows:
            self._spill()
        # There are fewer rows in memory than in `_spill`, because concatenation creates copies.
        rows = max(1, self._sorted_rows // 4 // (len(self._ends) - 1))
        spans = zip(self._ends, self._ends[1:], strict=False)
        runs = [_SortedRun(self._fd, *span, rows * _ROW.size) for span in spans]
        while runs := [run for run in runs if run.fill()]:
            # The unread rows of a run are not below the last row of its piece.
            last = min((run.last for run in runs if run.has_more), default=None)
            # Concatenate bytes: NumPy would convert the byte order of the keys.
            yield _sort(_table(b"".join([run.take(last).tobytes() for run in runs])))


class _SortedRun:
    """A sorted run in the file, one piece of which is in memory."""

    def __init__(self, fd: int, begin: int, end: int, piece_bytes: int) -> None:
        self._fd = fd
        self._at = begin
        self._end = end
        self._piece_bytes = piece_bytes
        self._piece = _table(b"")

    def fill(self) -> bool:
        """Read the next piece if the current one is used up; return whether any rows remain."""
        if not len(self._piece) and self.has_more:
            length = min(self._piece_bytes, self._end - self._at)
            data = os.pread(self._fd, length, self._at)
            if len(data) < length:
                raise OSError("the sorted records are truncated")
            self._at += length
            self._piece = _table(data)
        return len(self._piece) > 0

    @property
    def has_more(self) -> bool:
        """True if the run contains rows after the piece."""
        return self._at < self._end

    @property
    def last(self) -> tuple[int, int]:
        """The last key of the piece."""
        return int(self._piece["high"][-1]), int(self._piece["low"][-1])

    def take(self, last: tuple[int, int] | None) -> Table:
        """Remove and return the rows up to the key `last`, or the whole piece if `last` is None."""
        piece = self._piece
        end = len(piece)
        if last is not None:
            import numpy as np

            high, low = map(np.uint64, last)  # Python integers would be compared as floats
            same = slice(*(piece["high"].searchsorted(high, side) for side in ("left", "right")))
            end = int(same.start + piece["low"][same].searchsorted(low, "right"))
        self._piece = piece[end:]
        return piece[:end]


def _table(rows: bytes | bytearray) -> Table:
    import numpy as np

    return np.frombuffer(rows, dtype=np.dtype(_FIELDS))


def _sort(table: Table) -> Table:
    import numpy as np

    ordered: Table = table[np.lexsort((table["low"], table["high"]))]
    return ordered


class RecordIndex:
    """The index of a checkpoint, open for reading. Raises OSError if it does not exist.

    Unreadable parts are treated as missing. The file is read instead of mapped, because the kernel
    may map megabytes around each access, and these count as memory of the rank.
    """

    def __init__(self, directory_fd: int) -> None:
        self._fd = os.open(b"index", _READ, dir_fd=directory_fd)
        self._count = os.fstat(self._fd).st_size // _ENTRY.size
        self._block, self._number = b"", -1  # the last block that was read

    def locations(self, key: bytes) -> Iterator[RecordLocation]:
        """Yield the locations of the records with this key."""
        with suppress(OSError):
            at = self._first(key)
            while at < self._count and self._key_at(at) == key:
                data, begin = self._entry(at)
                yield RecordLocation(*_ENTRY.unpack_from(data, begin)[1:])
                at += 1

    def _first(self, key: bytes) -> int:
        """Find the first entry not below the key, by bisection around the predicted position."""
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
        """Return the block that contains an entry, and the entry's offset in it. Raises OSError."""
        block, within = divmod(number, _BLOCK_ENTRIES)
        if block != self._number:
            length = min(_BLOCK_ENTRIES, self._count - block * _BLOCK_ENTRIES) * _ENTRY.size
            data = os.pread(self._fd, length, block * _BLOCK_ENTRIES * _ENTRY.size)
            if len(data) < length:
                raise OSError("the checkpoint's index is truncated")
            self._block, self._number = data, block
        return self._block, within * _ENTRY.size

    def close(self) -> None:
        """Close the file; later lookups find nothing."""
        fd, self._fd, self._count = self._fd, -1, 0
        if fd >= 0:
            close_open(fd)
