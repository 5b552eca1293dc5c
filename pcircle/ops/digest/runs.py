"""Collection of a directory's entries and computation of its digest.

An entry is packed in the form in which it is part of the directory's digest: u16 length of the
name, name, kind, digest. A *run* is a sequence of packed entries. Batches of one directory complete
in any order and on any rank, so their runs are merged as they arrive. Merging only concatenates
bytes, and only runs of similar size, so each byte is copied O(log n) times. When the directory is
complete, its entries are sorted by name once and digested.

A directory with millions of entries would not fit in memory. Runs beyond `MAX_MEMORY_BYTES` go to a
`RunStore`, an unnamed temporary file. At the end each run is sorted on its own and all runs are
merged while they are read, as in an external merge sort. Five million entries with 20-byte names
need at most about 150 MiB, most of it for the Python objects of the run that is being sorted.
"""

from __future__ import annotations

import heapq
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, TypeAlias

import msgspec

from pcircle.core.guards import require
from pcircle.core.writing import discard, write_at
from pcircle.ops.digest.algorithms import Algorithm

MAX_MEMORY_BYTES = 16 << 20
_READ_BYTES = 256 << 10
_ENTRIES_PER_UPDATE = 1024
_LENGTH = struct.Struct(">H")
COUNT = struct.Struct(">Q")


class _Lengths(dict[int, bytes]):
    """A cache of packed lengths."""

    def __missing__(self, length: int) -> bytes:
        packed = self[length] = _LENGTH.pack(length)
        return packed


LENGTHS = _Lengths()
"""Packed lengths of names. FUSE and vfat allow names of more than 255 bytes."""


def pack_entry(name: bytes, kind: bytes, digest: bytes) -> bytes:
    """Pack one entry of a directory, which is a run of length one."""
    return b"%b%b%b%b" % (_LENGTH.pack(len(name)), name, kind, digest)


def iter_entries(run: bytes, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (name, packed entry) from a run whose digests have `size` bytes.

    ValueError if the run is truncated.
    """
    at, end, remainder = 0, len(run), 3 + size
    while at < end:
        if at + 2 > end:
            raise ValueError("a run of entries is cut short")
        length = run[at] << 8 | run[at + 1]
        after = at + length + remainder
        if after > end:
            raise ValueError("a run of entries is cut short")
        yield run[at + 2 : at + 2 + length], run[at:after]
        at = after


EntriesCallback: TypeAlias = "Callable[[Sequence[tuple[bytes, bytes]]], None]"
"""Receives sequences of (name, packed entry), ordered by name."""


class Runs(msgspec.Struct, frozen=True):
    """Entries of one directory, in memory and spilled to this rank's `RunStore`.

    Each run in memory is at least twice as large as the next. `spilled` holds (offset, length)
    pairs that are meaningful only on this rank; see `RunStore.load`.
    """

    in_memory: tuple[bytes, ...] = ()
    spilled: tuple[tuple[int, int], ...] = ()


def merge_runs(in_memory: Sequence[bytes], more: Iterable[bytes]) -> tuple[bytes, ...]:
    """Merge runs of similar size; associative and commutative in the set of entries."""
    runs = list(in_memory)
    for run in more:
        new = run
        while runs and len(runs[-1]) <= 2 * len(new):
            new = runs.pop() + new
        if new:
            runs.append(new)
    return tuple(runs)


class RunStore:
    """One rank's store for runs that exceed memory, and the digests of complete directories.

    Entries may have a trailer of `trailer_bytes` after their digest. The trailer travels with the
    entry but is not part of the directory's digest.

    `add` and `digest` are thread-safe. They raise OSError if the temporary directory cannot store
    or return a run.
    """

    def __init__(
        self, algorithm: Algorithm, max_memory_bytes: int = MAX_MEMORY_BYTES, trailer_bytes: int = 0
    ) -> None:
        self._algorithm = algorithm
        self._trailer_bytes = trailer_bytes
        self._size = algorithm.size + trailer_bytes  # length of an entry after its kind
        self._max_memory_bytes = max_memory_bytes
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._end = 0
        self._live_runs = 0

    def add(self, a: Runs, b: Runs) -> Runs:
        """Return the union of two sets of entries, spilled if it exceeds the memory limit."""
        in_memory = merge_runs(a.in_memory, b.in_memory)
        spilled = a.spilled + b.spilled
        if sum(map(len, in_memory)) > self._max_memory_bytes:
            lot = b"".join(in_memory)
            return Runs((), (*spilled, (self._spill(lot), len(lot))))
        return Runs(in_memory, spilled)

    def load(self, runs: Runs) -> Runs:
        """Return the same entries in memory, so that they can be sent to another rank."""
        lots = [b"".join(self._parts(*place)) for place in runs.spilled]
        self._release(len(lots))
        return Runs(merge_runs(runs.in_memory, lots))

    def digest(self, runs: Runs, visit: EntriesCallback | None = None) -> tuple[bytes, int]:
        """Return the digest and the number of entries of a complete directory.

        `visit` receives the entries in order. The spilled runs are released. ValueError if two
        entries have the same name.
        """
        lots: list[Iterable[tuple[bytes, bytes]]] = []
        for place in runs.spilled:
            self._sort(*place)
            lots.append(self._read(*place))
        lots.append(sorted(iter_entries(b"".join(runs.in_memory), self._size)))
        entries = iter(lots[0]) if len(lots) == 1 else heapq.merge(*lots)
        hasher = self._algorithm.new()
        hasher.update(b"dir\0")
        count = 0
        last = None
        while batch := list(islice(entries, _ENTRIES_PER_UPDATE)):
            for name, _ in batch:
                if name == last:
                    raise ValueError(f"the name {name!r} comes twice in one directory")
                last = name
            if visit is not None:
                visit(batch)
            end = -self._trailer_bytes or None
            hasher.update(b"".join([packed[:end] for _, packed in batch]))
            count += len(batch)
        hasher.update(COUNT.pack(count))
        self._release(len(runs.spilled))
        return hasher.digest(), count

    def close(self) -> None:
        """Release the temporary file."""
        if self._file is not None:
            discard(self._file)
            self._file = None

    def _spill(self, lot: bytes) -> int:
        with self._lock:
            if self._file is None:
                import tempfile  # slow to import, and rarely needed

                self._file = tempfile.TemporaryFile(prefix="pcircle-runs-", buffering=0)  # noqa: SIM115
            offset = self._end
            self._write(lot, offset)
            self._end += len(lot)
            self._live_runs += 1
            return offset

    def _write(self, lot: bytes, offset: int) -> None:
        write_at(require(self._file).fileno(), lot, offset)

    def _sort(self, offset: int, length: int) -> None:
        """Sort a spilled run in place."""
        lot = b"".join(self._parts(offset, length))
        entries = sorted(iter_entries(lot, self._size))
        del lot
        self._write(b"".join([packed for _, packed in entries]), offset)

    def _parts(self, offset: int, length: int) -> Iterator[bytes]:
        fd = require(self._file).fileno()
        while length:
            part = os.pread(fd, min(length, _READ_BYTES), offset)
            if not part:
                raise OSError("a shelved run is cut short")
            yield part
            offset += len(part)
            length -= len(part)

    def _read(self, offset: int, length: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a sorted spilled run without loading it as a whole."""
        remainder, size = b"", self._size
        for part in self._parts(offset, length):
            data = remainder + part
            at, end = 0, len(data)
            while at + 2 <= end:
                after = at + 3 + size + (data[at] << 8 | data[at + 1])
                if after > end:
                    break
                at = after
            yield from iter_entries(data[:at], size)
            remainder = data[at:]
        if remainder:
            raise ValueError("a run of entries is cut short")

    def _release(self, lots: int) -> None:
        with self._lock:
            self._live_runs -= lots
            if not self._live_runs and self._file is not None:
                os.ftruncate(self._file.fileno(), 0)
                self._end = 0
