"""A directory's entries on their way to its digest.

An entry is packed as it stands in the directory's digest: u16 length of the
name, name, kind, digest. Packed entries, one after another, are a *run*.
Batches of one directory end in any order and on any rank, so their runs are
gathered as they come, which is no more than putting bytes together, runs of
like size with each other: each byte is moved a logarithm of times. When the
directory is complete they are sorted by name, once, and digested.

A directory of millions would not fit: what goes past `LOT_BYTES` is put on a
`Shelf`, a nameless temporary file. In the end each lot is sorted by itself
and they are merged as they are read. With 5 million entries of names of 20
bytes that takes some 150 MiB at most, of which most are Python's objects for
the entries of one lot.
"""

from __future__ import annotations

import heapq
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, NamedTuple, TypeAlias

from pcircle.guards import require
from pcircle.signature.algorithms import Algorithm
from pcircle.writing import discard, write_at

LOT_BYTES = 16 << 20
_READ_BYTES = 256 << 10
_TOGETHER = 1024  # entries that the digest is updated with at once
_LENGTH = struct.Struct(">H")
COUNT = struct.Struct(">Q")


class _Lengths(dict[int, bytes]):
    """Packs each length once."""

    def __missing__(self, length: int) -> bytes:
        packed = self[length] = _LENGTH.pack(length)
        return packed


LENGTHS = _Lengths()
"""The length of a name in a directory, as it is packed. On FUSE and vfat some exceed 255 bytes."""


def pack_entry(name: bytes, kind: bytes, digest: bytes) -> bytes:
    """An entry of a directory as a run of one."""
    return b"%b%b%b%b" % (_LENGTH.pack(len(name)), name, kind, digest)


def entries_of(run: bytes, size: int) -> Iterator[tuple[bytes, bytes]]:
    """(name, packed entry) of a run of digests of `size` bytes. ValueError if it is cut short."""
    at, end, rest = 0, len(run), 3 + size
    while at < end:
        if at + 2 > end:
            raise ValueError("a run of entries is cut short")
        length = run[at] << 8 | run[at + 1]
        after = at + length + rest
        if after > end:
            raise ValueError("a run of entries is cut short")
        yield run[at + 2 : at + 2 + length], run[at:after]
        at = after


Visitor: TypeAlias = "Callable[[Sequence[tuple[bytes, bytes]]], None]"
"""Is given names with their packed entries, in the order of the names, some at a time."""


class Runs(NamedTuple):
    """Entries of one directory: in memory, each run at least twice the next, and on the shelf.

    What is on the shelf, as (offset, length), belongs to this rank: see `Shelf.take_back`.
    """

    held: tuple[bytes, ...] = ()
    shelved: tuple[tuple[int, int], ...] = ()


def gather(held: Sequence[bytes], more: Iterable[bytes]) -> tuple[bytes, ...]:
    """Runs as few: associative and commutative as far as the set of entries goes."""
    runs = list(held)
    for run in more:
        new = run
        while runs and len(runs[-1]) <= 2 * len(new):
            new = runs.pop() + new
        if new:
            runs.append(new)
    return tuple(runs)


class Shelf:
    """One rank's runs that are too many to be held, and the digests of directories.

    Entries may have more behind their digest, `beside_bytes`, which travels with
    them, but is no part of the directory's digest.

    `add` and `digest` may be called by many threads. OSError if the temporary
    directory can't take or give them.
    """

    def __init__(
        self, algorithm: Algorithm, lot_bytes: int = LOT_BYTES, beside_bytes: int = 0
    ) -> None:
        self._algorithm = algorithm
        self._beside_bytes = beside_bytes
        self._size = algorithm.size + beside_bytes  # of what comes behind an entry's kind
        self._lot_bytes = lot_bytes
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._end = 0
        self._live = 0

    def add(self, a: Runs, b: Runs) -> Runs:
        """The entries of both."""
        held = gather(a.held, b.held)
        shelved = a.shelved + b.shelved
        if sum(map(len, held)) > self._lot_bytes:
            lot = b"".join(held)
            return Runs((), (*shelved, (self._keep(lot), len(lot))))
        return Runs(held, shelved)

    def take_back(self, runs: Runs) -> Runs:
        """The same entries, all of them held, for another rank."""
        lots = [b"".join(self._parts(*place)) for place in runs.shelved]
        self._forget(len(lots))
        return Runs(gather(runs.held, lots))

    def digest(self, runs: Runs, visit: Visitor | None = None) -> tuple[bytes, int]:
        """The digest of the directory that these are all entries of, and how many they are.

        `visit` is shown them in order. What of them is on the shelf is forgotten.
        ValueError if a name comes twice.
        """
        lots: list[Iterable[tuple[bytes, bytes]]] = []
        for place in runs.shelved:
            self._sort(*place)
            lots.append(self._read(*place))
        lots.append(sorted(entries_of(b"".join(runs.held), self._size)))
        entries = iter(lots[0]) if len(lots) == 1 else heapq.merge(*lots)
        hasher = self._algorithm.new()
        hasher.update(b"dir\0")
        count = 0
        last = None
        while some := list(islice(entries, _TOGETHER)):
            for name, _ in some:
                if name == last:
                    raise ValueError(f"the name {name!r} comes twice in one directory")
                last = name
            if visit is not None:
                visit(some)
            end = -self._beside_bytes or None
            hasher.update(b"".join([packed[:end] for _, packed in some]))
            count += len(some)
        hasher.update(COUNT.pack(count))
        self._forget(len(runs.shelved))
        return hasher.digest(), count

    def close(self) -> None:
        """Give the space back."""
        if self._file is not None:
            discard(self._file)
            self._file = None

    def _keep(self, lot: bytes) -> int:
        with self._lock:
            if self._file is None:
                import tempfile  # few directories ever need it, and it takes long to import

                self._file = tempfile.TemporaryFile(prefix="pcircle-runs-", buffering=0)  # noqa: SIM115
            offset = self._end
            self._write(lot, offset)
            self._end += len(lot)
            self._live += 1
            return offset

    def _write(self, lot: bytes, offset: int) -> None:
        write_at(require(self._file).fileno(), lot, offset)

    def _sort(self, offset: int, length: int) -> None:
        """Sort a lot where it lies."""
        lot = b"".join(self._parts(offset, length))
        entries = sorted(entries_of(lot, self._size))
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
        """The entries of a sorted lot, a part at a time."""
        rest, size = b"", self._size
        for part in self._parts(offset, length):
            data = rest + part
            at, end = 0, len(data)
            while at + 2 <= end:
                after = at + 3 + size + (data[at] << 8 | data[at + 1])
                if after > end:
                    break
                at = after
            yield from entries_of(data[:at], size)
            rest = data[at:]
        if rest:
            raise ValueError("a run of entries is cut short")

    def _forget(self, lots: int) -> None:
        with self._lock:
            self._live -= lots
            if not self._live and self._file is not None:
                os.ftruncate(self._file.fileno(), 0)
                self._end = 0
