"""Sets of hashes of names, as of a directory: of any number, in bounded memory.

Most directories fit. Of more names the hashes are sorted in parts, merged into one nameless file,
and looked up there by the block; the first hash of each block is in memory, an eighth of a byte a
name. To put each block of names in order with all that are done, as NumPy tells members, would take
time by the square of a directory.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pcircle.errors import StoppedEarly
from pcircle.writing import write_all

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

_BYTES = 8
_HELD = 1 << 19
_BLOCK = 512


class Hashes:
    """A set of hashes, which are given in a row. All are added before the first is looked up.

    So many are `held` in memory. StoppedEarly if the others can't be kept.
    """

    def __init__(self, held: int = _HELD) -> None:
        self._held = held
        self._some = bytearray()
        self._ends = [0]  # of sorted parts in the file
        self._fd: int | None = None
        self._sorted: Array | None = None  # all, or the first of each block
        self._count = 0  # in the file, when all are in order

    def add(self, hashes: bytes) -> None:
        """More of them."""
        self._some += hashes
        if len(self._some) >= self._held * _BYTES:
            try:
                self._put_away()
            except OSError as error:
                raise _cannot(error) from error

    def __bool__(self) -> bool:
        known = self._sorted
        return bool(self._some) or self._fd is not None or (known is not None and len(known) > 0)

    def have(self, hashes: bytes) -> Array:
        """Which of these are in the set."""
        import numpy as np

        wanted = np.frombuffer(hashes, dtype="<u8")
        try:
            known = self._sort() if self._sorted is None else self._sorted
            if self._fd is not None:
                return self._look_up(self._fd, wanted, known)
        except OSError as error:
            raise _cannot(error) from error
        if not len(known):
            return np.zeros(len(wanted), dtype=bool)
        same: Array = known[known.searchsorted(wanted) % len(known)] == wanted
        return same

    def _put_away(self) -> None:
        if self._fd is None:
            self._fd = self._file()
        part = _unique(self._some)
        write_all(self._fd, part.tobytes())
        self._ends.append(self._ends[-1] + len(part) * _BYTES)
        self._some.clear()

    def _file(self) -> int:
        """A nameless file, which is closed with this set."""
        import tempfile  # takes long to import, and few directories are so large

        with tempfile.TemporaryFile(prefix="pcircle-names-", buffering=0) as file:
            fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, fd)
        return fd

    def _sort(self) -> Array:
        import numpy as np

        if self._fd is None:
            self._sorted = _unique(self._some)
        else:
            if self._some:
                self._put_away()
            merged = self._file()
            firsts: list[Array] = []
            for part in self._merged(self._fd):
                firsts.append(part[-self._count % _BLOCK :: _BLOCK].copy())  # or it keeps the part
                write_all(merged, part.tobytes())
                self._count += len(part)
            os.ftruncate(self._fd, 0)
            self._fd, self._sorted = merged, np.concatenate(firsts)
        self._some = bytearray()
        return self._sorted

    def _merged(self, fd: int) -> Iterator[Array]:
        """All parts as one: of each a piece, of which what comes first is put in order."""
        import numpy as np

        piece_bytes = max(1, self._held // (len(self._ends) - 1)) * _BYTES
        ends = zip(self._ends, self._ends[1:], strict=False)
        parts = [_Part(fd, *each, piece_bytes) for each in ends]
        while parts := [part for part in parts if part.fill()]:
            # What is still to be read of a part is behind the last one of its piece.
            last = min((part.piece[-1] for part in parts if part.goes_on), default=None)
            yield _in_order(np.concatenate([part.take(last) for part in parts]))

    def _look_up(self, fd: int, wanted: Array, firsts: Array) -> Array:
        import numpy as np

        found = np.zeros(len(wanted), dtype=bool)
        blocks = firsts.searchsorted(wanted, "right").astype(np.int64) - 1
        for at, block in enumerate(blocks.tolist()):
            if block >= 0:
                size = min(_BLOCK, self._count - block * _BLOCK) * _BYTES
                known = np.frombuffer(_read(fd, size, block * _BLOCK * _BYTES), dtype="<u8")
                found[at] = known[known.searchsorted(wanted[at]) % len(known)] == wanted[at]
        return found


class _Part:
    """Sorted hashes in a file, of which a piece is in memory."""

    def __init__(self, fd: int, begin: int, end: int, piece_bytes: int) -> None:
        self.piece = _unique(b"")
        self._fd = fd
        self._at = begin
        self._end = end
        self._piece_bytes = piece_bytes

    @property
    def goes_on(self) -> bool:
        """Whether there is more than the piece."""
        return self._at < self._end

    def fill(self) -> bool:
        """Read on if all of the piece was taken; whether there is anything left."""
        import numpy as np

        if not len(self.piece) and self.goes_on:
            size = min(self._piece_bytes, self._end - self._at)
            self.piece = np.frombuffer(_read(self._fd, size, self._at), dtype="<u8")
            self._at += size
        return len(self.piece) > 0

    def take(self, last: Any) -> Array:
        """What is not behind a hash; all of the piece if there is none."""
        end = len(self.piece) if last is None else self.piece.searchsorted(last, "right")
        taken, self.piece = self.piece[:end], self.piece[end:]
        return taken


def _unique(hashes: bytes | bytearray) -> Array:
    import numpy as np

    return _in_order(np.frombuffer(hashes, dtype="<u8").copy())


def _in_order(hashes: Array) -> Array:
    """Sorted in place, each once: NumPy's own way takes several times the memory."""
    import numpy as np

    hashes.sort()
    is_new = np.ones(len(hashes), dtype=bool)
    np.not_equal(hashes[1:], hashes[:-1], out=is_new[1:])
    each: Array = hashes if is_new.all() else hashes[is_new]
    return each


def _read(fd: int, size: int, offset: int) -> bytes:
    data = os.pread(fd, size, offset)
    if len(data) < size:
        raise OSError("names that were kept are cut short")
    return data


def _cannot(error: OSError) -> StoppedEarly:
    return StoppedEarly(f"cannot keep names in the temporary directory: {error.strerror or error}")
