"""Sets of name hashes that may be larger than memory.

The hashes of most directories fit in memory. Those of larger directories are sorted in parts,
merged into an unnamed temporary file, and looked up there by block. Then only the first hash of
each block is in memory, which takes an eighth of a bit per name. Comparing every block of names
with all completed names, as `numpy.isin` does, would take time quadratic in the size of the
directory.

BLAKE2b is imported without `hashlib`, which re-exports the same implementation but also loads
OpenSSL. Every rank would then open two unneeded libraries and their configuration.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pcircle.core.errors import StoppedEarly
from pcircle.core.writing import write_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

try:
    from _blake2 import blake2b
except ImportError:  # a Python without this private module
    from hashlib import blake2b

__all__ = ["blake2b"]


_BYTES = 8
_MAX_IN_MEMORY = 1 << 19
_BLOCK = 512


class HashSet:
    """A set of 64-bit hashes, which are passed as concatenated bytes.

    All hashes must be added before the first lookup. About `max_in_memory` of them are in memory at
    a time. Raises StoppedEarly if the temporary directory cannot store them.
    """

    def __init__(self, max_in_memory: int = _MAX_IN_MEMORY) -> None:
        self._max_in_memory = max_in_memory
        self._unsorted = bytearray()
        self._ends = [0]  # end offsets of the sorted parts in the file
        self._fd: int | None = None
        self._sorted: Array | None = None  # all hashes, or the first one of each block
        self._count = 0  # number of hashes in the merged file

    def add(self, hashes: bytes) -> None:
        """Add concatenated hashes."""
        self._unsorted += hashes
        if len(self._unsorted) >= self._max_in_memory * _BYTES:
            try:
                self._spill()
            except OSError as error:
                raise _storage_error(error) from error

    def __bool__(self) -> bool:
        has_sorted = self._sorted is not None and len(self._sorted) > 0
        return bool(self._unsorted) or self._fd is not None or has_sorted

    def contains(self, hashes: bytes) -> Array:
        """Return a boolean array that indicates, for each hash, whether it is in the set."""
        import numpy as np

        queried = np.frombuffer(hashes, dtype="<u8")
        try:
            known = self._sort() if self._sorted is None else self._sorted
            if self._fd is not None:
                return self._look_up(self._fd, queried, known)
        except OSError as error:
            raise _storage_error(error) from error
        if not len(known):
            return np.zeros(len(queried), dtype=bool)
        same: Array = known[known.searchsorted(queried) % len(known)] == queried
        return same

    def _spill(self) -> None:
        if self._fd is None:
            self._fd = self._file()
        part = _unique(self._unsorted)
        write_all(self._fd, part.tobytes())
        self._ends.append(self._ends[-1] + len(part) * _BYTES)
        self._unsorted.clear()

    def _file(self) -> int:
        """Create an unnamed temporary file that is closed when this set is deleted."""
        import tempfile  # imported late: few directories need it

        with tempfile.TemporaryFile(prefix="pcircle-names-", buffering=0) as file:
            fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, fd)
        return fd

    def _sort(self) -> Array:
        import numpy as np

        if self._fd is None:
            self._sorted = _unique(self._unsorted)
        else:
            if self._unsorted:
                self._spill()
            merged = self._file()
            firsts: list[Array] = []
            for part in self._merge(self._fd):
                # Copied, because a view would retain the part.
                firsts.append(part[-self._count % _BLOCK :: _BLOCK].copy())
                write_all(merged, part.tobytes())
                self._count += len(part)
            os.ftruncate(self._fd, 0)
            self._fd, self._sorted = merged, np.concatenate(firsts)
        self._unsorted = bytearray()
        return self._sorted

    def _merge(self, fd: int) -> Iterator[Array]:
        """Merge all parts: read a piece of each, and yield the hashes below all unread ones."""
        import numpy as np

        piece_bytes = max(1, self._max_in_memory // (len(self._ends) - 1)) * _BYTES
        ends = zip(self._ends, self._ends[1:], strict=False)
        parts = [_SortedPart(fd, *unique, piece_bytes) for unique in ends]
        while parts := [part for part in parts if part.fill()]:
            # The unread hashes of a part are greater than the last hash of its piece.
            last = min((part.piece[-1] for part in parts if part.has_more), default=None)
            yield _sort_unique(np.concatenate([part.take(last) for part in parts]))

    def _look_up(self, fd: int, queried: Array, firsts: Array) -> Array:
        import numpy as np

        found = np.zeros(len(queried), dtype=bool)
        blocks = firsts.searchsorted(queried, "right").astype(np.int64) - 1
        for at, block in enumerate(blocks.tolist()):
            if block >= 0:
                size = min(_BLOCK, self._count - block * _BLOCK) * _BYTES
                known = np.frombuffer(_read(fd, size, block * _BLOCK * _BYTES), dtype="<u8")
                found[at] = known[known.searchsorted(queried[at]) % len(known)] == queried[at]
        return found


class _SortedPart:
    """A sorted part of the file, one piece of which is in memory."""

    def __init__(self, fd: int, begin: int, end: int, piece_bytes: int) -> None:
        self.piece = _unique(b"")
        self._fd = fd
        self._at = begin
        self._end = end
        self._piece_bytes = piece_bytes

    @property
    def has_more(self) -> bool:
        """True if the part contains hashes after the piece."""
        return self._at < self._end

    def fill(self) -> bool:
        """Read the next piece if the current one is used up; return whether any hashes remain."""
        import numpy as np

        if not len(self.piece) and self.has_more:
            size = min(self._piece_bytes, self._end - self._at)
            self.piece = np.frombuffer(_read(self._fd, size, self._at), dtype="<u8")
            self._at += size
        return len(self.piece) > 0

    def take(self, last: np.uint64 | None) -> Array:
        """Remove and return the hashes up to `last`, or the whole piece if `last` is None."""
        end = len(self.piece) if last is None else self.piece.searchsorted(last, "right")
        taken, self.piece = self.piece[:end], self.piece[end:]
        return taken


def _unique(hashes: bytes | bytearray) -> Array:
    import numpy as np

    return _sort_unique(np.frombuffer(hashes, dtype="<u8").copy())


def _sort_unique(hashes: Array) -> Array:
    """Sort in place and remove duplicates; `numpy.unique` needs several times the memory."""
    import numpy as np

    hashes.sort()
    is_new = np.ones(len(hashes), dtype=bool)
    np.not_equal(hashes[1:], hashes[:-1], out=is_new[1:])
    unique: Array = hashes if is_new.all() else hashes[is_new]
    return unique


def _read(fd: int, size: int, offset: int) -> bytes:
    data = os.pread(fd, size, offset)
    if len(data) < size:
        raise OSError("the stored names are truncated")
    return data


def _storage_error(error: OSError) -> StoppedEarly:
    return StoppedEarly(f"cannot store names in the temporary directory: {error.strerror or error}")
