"""One rank's share of a signature, from file contents to the digests of directories.

After an entry is read, the signer stores its *seal*, which consists of the type and the digest. The
caller, which knows the name, then adds the entry. When an item ends, its entries and block digests
become part of its result, and the joins pass them up. Entries are passed to their directory, which
is then itself packed as an entry, and block digests to their large file. The entries of the roots
arrive at rank 0, where the names are the numbers of the roots. `signed` counts entries, so that a
lost entry is detected.

The digest of a directory is computed from its entries, which are collected in runs. An entry is
packed in the form in which it contributes to the digest: u16 length of the name, name, type,
digest. A *run* is a sequence of packed entries. The batches of a directory are completed in any
order and on any rank, so their runs are merged as they arrive. Merging only concatenates runs of
similar size, so each byte is copied O(log n) times. When the directory is complete, its entries are
sorted by name once, and the digest is computed.

A directory with millions of entries might not fit in memory. Runs beyond `MAX_MEMORY_BYTES` are
written to a `RunStore`, an unnamed temporary file. At the end, each run is sorted individually, and
all runs are merged while they are being read, as in an external merge sort. Five million entries
with 20-byte names need at most about 150 MiB, mostly for the Python objects of the run that is
being sorted.
"""

from __future__ import annotations

import heapq
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, Protocol, TypeAlias, TypeVar

import msgspec

from pcircle.core.buffers import aligned
from pcircle.core.errors import StoppedEarly, require_that
from pcircle.core.writing import discard, write_at
from pcircle.ops.digest import digests

PART = struct.Struct(">QQ")
"""The header of a sequence of block digests: number of the first block, and block count."""

_FILE = struct.Struct(">5sQ")
_READ_BYTES = 512 << 10
_HOLES_PER_UPDATE = 4096


class SignedResult(Protocol):
    """The fields of a result that belong to a signature; results are msgspec Structs.

    `runs` contains packed entries, and `spilled` the positions of more entries in the `RunStore` of
    this rank. `signed` is the number of entries, including those in subdirectories, and `blocks`
    contains the block digests of a large file.
    """

    @property
    def runs(self) -> tuple[bytes, ...]: ...
    @property
    def spilled(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def signed(self) -> int: ...
    @property
    def blocks(self) -> bytes: ...


D = TypeVar("D", bound=SignedResult)


class Signer:
    """Computes digests for one worker thread.

    Only this thread uses the signer, except that the main thread calls `merge_results`.
    `root_holder` is the path of the directory that contains the roots. The digest of an entry is
    followed by a trailer of `trailer_bytes`; see `RunStore`. All signers of a rank share the store
    of `first`. If `checksum` names an algorithm, the attribute `checksum` is the digest of the
    whole content of the last file, and part of its trailer.
    """

    def __init__(
        self,
        name: str,
        root_holder: bytes,
        trailer_bytes: int = 0,
        first: Signer | None = None,
        checksum: str = "",
    ) -> None:
        self.algorithm: digests.Algorithm = digests.get_algorithm(name)
        self.trailer: bytes = bytes(trailer_bytes)
        self.seal: bytes = b""  # type and digest of the last entry that was read
        self.checksum: bytes = b""
        self._checksum_name = checksum
        self.blocks: bytes = b""  # block digests of the chunks read in the current item
        self._root_holder = root_holder
        self._piece = aligned(_READ_BYTES)
        self._hasher = digests.BlockHasher(self.algorithm)
        store: RunStore | None = None if first is None else first._store
        self._store: RunStore = store or RunStore(self.algorithm, trailer_bytes=trailer_bytes)
        self._entries: list[bytes] = []
        self._returned_count = 0  # number of entries that `take_new_entries` has returned
        self._restored = Runs()
        self._restored_count = 0

    # ---- contents --------------------------------------------------------------

    def begin(self, offset: int = 0) -> None:
        """Start hashing a file at `offset`."""
        self._hasher.begin(offset)
        if self._checksum_name:
            self._hasher.checksum = self._new_checksum()

    def tap(self, offset: int, data: memoryview | bytes) -> None:
        """Add data of the current file."""
        self._hasher.add(offset, data)

    def end_file(self, size: int) -> None:
        """Finish a file of `size` bytes; ranges that were not added are holes."""
        self._seal_file(size, self._hasher.end(size))
        if self._hasher.checksum is not None:
            self.checksum = self._hasher.checksum.digest()

    def end_chunk(self, begin: int, end: int) -> None:
        """Finish a range of a file; its block digests become part of the result of the item."""
        count = -(-(end - begin) // digests.BLOCK_BYTES)
        self.blocks += PART.pack(begin // digests.BLOCK_BYTES, count) + self._hasher.end(end)

    def seal_small_file(self, data: bytes | memoryview) -> None:
        """Seal a file of at most one block."""
        blocks = self.algorithm.digest(data) if data else b""
        self._seal_file(len(data), blocks)
        if self._checksum_name:
            hasher = self._new_checksum()
            hasher.update(data)
            self.checksum = hasher.digest()

    def _new_checksum(self) -> digests.Hasher:
        from pcircle.ops.digest.checksums import new_hasher  # most runs record no checksums

        return new_hasher(self._checksum_name)

    def seal_large_file(self, size: int, expected: int, blocks: bytes) -> None:
        """Seal a file that was read in chunks.

        `expected` is the number of blocks that contain data. Missing blocks are an internal error.
        """
        digest_bytes = self.algorithm.size
        # Each part consists of its first block, the number of blocks, and the offset of their
        # digests.
        parts: list[tuple[int, int, int]] = []
        at = 0
        while at < len(blocks):
            first, count = PART.unpack_from(blocks, at)
            at += PART.size
            parts.append((first, count, at))
            at += count * digest_bytes
        block_count = sum(count for _, count, _ in parts)
        require_that(block_count == expected, "blocks of a file are missing")
        hasher = digests.file_hasher(self.algorithm, size)
        view = memoryview(blocks)
        reached = 0
        for first, count, at in sorted(parts):
            require_that(first >= reached, "blocks of a file were received twice")
            self._add_holes(hasher, first - reached)
            hasher.update(view[at : at + count * digest_bytes])
            reached = first + count
        tail, tail_bytes = divmod(size - reached * digests.BLOCK_BYTES, digests.BLOCK_BYTES)
        if tail >= 0:
            self._add_holes(hasher, tail)
            if tail_bytes:
                hasher.update(self.algorithm.digest(bytes(tail_bytes)))
        self.seal = b"f" + hasher.digest()

    def _add_holes(self, hasher: digests.Hasher, count: int) -> None:
        """Add the digests of `count` zero blocks in batches, because there may be millions."""
        zero = self._hasher.zero_digest
        while count > 0:
            batch = min(count, _HOLES_PER_UPDATE)
            hasher.update(zero * batch)
            count -= batch

    def _seal_file(self, size: int, blocks: bytes) -> None:
        self.seal = b"f" + digests.file_digest(self.algorithm, size, blocks)

    def seal_link(self, text: bytes) -> None:
        """Seal a symbolic link."""
        self.seal = b"l" + digests.link_digest(self.algorithm, text)

    def seal_node(self, mode: int, rdev: int) -> None:
        """Seal a FIFO, a socket or a device."""
        self.seal = digests.kind_byte(mode) + digests.node_digest(self.algorithm, mode, rdev)

    def read_file(self, fd: int, stop: Callable[[], bool]) -> None:
        """Read and seal an open file.

        Raises OSError, in particular InterruptedError if `stop` returns true.
        """
        self.begin()
        at = 0
        while count := os.readv(fd, [self._piece]):
            self.tap(at, self._piece[:count])
            at += count
            if stop():
                raise InterruptedError("the job was stopped")
        self.end_file(at)

    def set_trailer(self, size: int, modified_ns: int, changed_ns: int) -> None:
        """Set the trailer of the entry that was sealed last."""
        trailer = digests.pack_trailer(size, modified_ns, changed_ns)
        if self._checksum_name and self.seal[:1] == b"f":
            trailer += self.checksum
        self.trailer = trailer.ljust(len(self.trailer), b"\0")

    # ---- entries ---------------------------------------------------------------

    def add_entry(self, name: bytes) -> None:
        """Add an entry with this name and the current seal."""
        self._entries.append(pack_entry(name, self.seal[:1], self.seal[1:] + self.trailer))

    def pack_small_files(
        self, names: Sequence[bytes], sizes: Sequence[int], contents: bytes
    ) -> list[bytes]:
        """Pack the entries of files of at most one block.

        `contents` is the concatenation of their data. The packed entry of a file with a negative
        size is empty.
        """
        digest, head_of, view, at = self.algorithm.digest, _FILE.pack, memoryview(contents), 0
        packed: list[bytes] = []
        for name, size in zip(names, sizes, strict=False):
            if size > 0:
                end = at + size
                digest_value = digest(head_of(b"file\0", size) + digest(view[at:end]))
                at = end
            elif size:
                packed.append(b"")
                continue
            else:
                digest_value = digest(head_of(b"file\0", 0))
            packed.append(LENGTHS[len(name)] + name + b"f" + digest_value)
        return packed

    def add_entries(self, entries: Iterable[bytes]) -> None:
        """Add entries that `pack_small_files` or `pack_small_directories` returned."""
        self._entries += filter(None, entries)

    def add_entry_or_root(self, root: int, path: bytes, name: bytes) -> None:
        """Add an entry under its name, or a root under its number."""
        self.add_entry(b"%d" % root if path == self._root_holder else name)

    def take_new_entries(self) -> bytes:
        """Return the packed entries that were added since the last call."""
        batch = b"".join(self._entries[self._returned_count :])
        self._returned_count = len(self._entries)
        return batch

    def restore_entries(self, entries: bytes, names: Callable[[list[bytes]], bool]) -> None:
        """Add entries that a previous run computed, after `names` has accepted their names.

        Raises ValueError if `names` rejects them, and StoppedEarly if they cannot be stored.
        """
        found = list(iter_entries(entries, self.algorithm.size))
        if not names([name for name, _ in found]):
            raise ValueError("the entries do not match the names")
        self._restored = self._add(self._restored, Runs((entries,)))
        self._restored_count += len(found)

    def clear(self) -> None:
        """Start a new item, and discard the entries of the previous one."""
        self._entries.clear()
        self._returned_count = 0
        self._restored, self._restored_count = Runs(), 0
        self.blocks = b""

    def attach_to(self, done: D) -> D:
        """Return the result of an item, including the entries and blocks added since `clear`."""
        count = len(self._entries)
        if not count and not self._restored_count and not self.blocks:
            return done
        added = self._add(self._restored, Runs((b"".join(self._entries),) if count else ()))
        runs = self._add(Runs(done.runs, done.spilled), added)
        signed = done.signed + count + self._restored_count
        blocks = done.blocks + self.blocks
        self.clear()
        return _with(done, runs, signed, blocks)

    def merge_results(self, done: D, a: D, b: D) -> D:
        """Return `done`, with the entries and blocks of both results.

        Raises StoppedEarly if they cannot be stored.
        """
        runs = self._add(Runs(a.runs, a.spilled), Runs(b.runs, b.spilled))
        return _with(done, runs, a.signed + b.signed, a.blocks + b.blocks)

    def make_portable(self, done: D) -> D:
        """Return a result for another rank, with the spilled entries in memory.

        Raises StoppedEarly if they cannot be read.
        """
        if not done.spilled:
            return done
        with _storage_errors("read"):
            runs = self._store.load(Runs(done.runs, done.spilled))
        return _with(done, runs, done.signed, done.blocks)

    def _add(self, a: Runs, b: Runs) -> Runs:
        with _storage_errors("keep"):
            return self._store.add(a, b)

    def finish_directory(
        self, root: int, path: bytes, done: D, merged: D, visit: EntriesCallback | None = None
    ) -> D:
        """Return `done` as the result of a directory with the contents of `merged`.

        `visit` is called with the entries in order. Raises ValueError if a name occurs twice, and
        StoppedEarly if entries cannot be read.
        """
        with _storage_errors("read"):
            digest, _ = self._store.digest(Runs(merged.runs, merged.spilled), visit)
        runs = Runs((self.pack_directory(root, path, digest),))
        return _with(done, runs, merged.signed + 1, b"")

    def pack_directory(self, root: int, path: bytes, digest: bytes) -> bytes:
        """Pack a directory as an entry of its parent."""
        name = path.rpartition(b"/")[2] if path else b"%d" % root
        return pack_entry(name, b"d", digest + self.trailer)

    def pack_small_directories(
        self,
        names: Sequence[bytes],
        ranges: Sequence[tuple[int, int]],
        inside: Sequence[bytes],
        entries: Sequence[bytes],
    ) -> list[bytes]:
        """Pack the entries of directories below a root, given their contents.

        Each directory contains a range of the names `inside`, which is sorted, and of `entries`.
        The packed entry of a directory is empty if an entry in it is empty or missing, or if a name
        occurs twice, which `finish_directory` reports.
        """
        digest, trailer = self.algorithm.digest, self.trailer
        packed: list[bytes] = []
        for name, (begin, end) in zip(names, ranges, strict=True):
            own, count = entries[begin:end], end - begin
            if len(own) < count or not all(own) or len(set(inside[begin:end])) < count:
                packed.append(b"")
                continue
            digest_value = digest(b"dir\0%b%b" % (b"".join(own), COUNT.pack(count)))
            packed.append(LENGTHS[len(name)] + name + b"d" + digest_value + trailer)
        return packed

    def is_digest(self, digest: bytes) -> bool:
        """Return whether the length is that of a digest; data from a journal may be wrong."""
        return len(digest) == self.algorithm.size

    def digest_of(self, done: SignedResult) -> bytes:
        """Return the digest of the only entry of a result."""
        end = len(done.runs[0]) - len(self.trailer)
        return done.runs[0][end - self.algorithm.size : end]

    def seal_of(self, done: SignedResult) -> bytes:
        """Return the seal of the only entry of a result, or an empty value if it has none."""
        if not done.runs:
            return b""
        return done.runs[0][-1 - self.algorithm.size :]


def _with(done: D, runs: Runs, signed: int, blocks: bytes) -> D:
    changes = {"runs": runs.in_memory, "spilled": runs.spilled, "signed": signed, "blocks": blocks}
    changed: D = msgspec.structs.replace(done, **changes)  # type: ignore[type-var]
    return changed


@contextmanager
def _storage_errors(doing: str) -> Iterator[None]:
    """Raise StoppedEarly if the temporary directory cannot store or return digests."""
    try:
        yield
    except OSError as error:
        text = f"cannot {doing} digests in the temporary directory: {error.strerror}"
        raise StoppedEarly(text) from error


MAX_MEMORY_BYTES = 16 << 20
_RUN_READ_BYTES = 256 << 10
_ENTRIES_PER_UPDATE = 1024
_LENGTH = struct.Struct(">H")
COUNT = struct.Struct(">Q")


class _Lengths(dict[int, bytes]):
    """A cache of packed lengths."""

    def __missing__(self, length: int) -> bytes:
        packed = self[length] = _LENGTH.pack(length)
        return packed


LENGTHS = _Lengths()
"""The packed lengths of names; on FUSE and vfat, a name may exceed 255 bytes."""


def pack_entry(name: bytes, kind: bytes, digest: bytes) -> bytes:
    """Pack one directory entry; the result is also a run of length one."""
    return b"%b%b%b%b" % (_LENGTH.pack(len(name)), name, kind, digest)


def iter_entries(run: bytes, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (name, packed entry) from a run whose digests have `size` bytes.

    Raises ValueError if the run is truncated.
    """
    at, end, remainder = 0, len(run), 3 + size
    while at < end:
        if at + 2 > end:
            raise ValueError("a run of entries is truncated")
        length = run[at] << 8 | run[at + 1]
        after = at + length + remainder
        if after > end:
            raise ValueError("a run of entries is truncated")
        yield run[at + 2 : at + 2 + length], run[at:after]
        at = after


EntriesCallback: TypeAlias = "Callable[[Sequence[tuple[bytes, bytes]]], None]"
"""A function that is called with sequences of (name, packed entry), ordered by name."""


class Runs(msgspec.Struct, frozen=True):
    """The entries of one directory, in memory and in the `RunStore` of this rank.

    Each run in memory is more than twice as large as the next. `spilled` contains pairs (offset,
    length), which are only valid on this rank; see `RunStore.load`.
    """

    in_memory: tuple[bytes, ...] = ()
    spilled: tuple[tuple[int, int], ...] = ()


def merge_runs(in_memory: Sequence[bytes], more: Iterable[bytes]) -> tuple[bytes, ...]:
    """Merge runs of similar size; the set of entries does not depend on the order of merges."""
    runs = list(in_memory)
    for run in more:
        new = run
        while runs and len(runs[-1]) <= 2 * len(new):
            new = runs.pop() + new
        if new:
            runs.append(new)
    return tuple(runs)


class RunStore:
    """Stores runs that exceed the memory limit, and computes the digests of complete directories.

    The digest of an entry may be followed by a trailer of `trailer_bytes`. The trailer is stored
    and passed on with the entry but is not part of the digest of the directory.

    `add` and `digest` are thread-safe. They raise OSError if the temporary directory cannot store
    or return a run.
    """

    def __init__(
        self,
        algorithm: digests.Algorithm,
        max_memory_bytes: int = MAX_MEMORY_BYTES,
        trailer_bytes: int = 0,
    ) -> None:
        self._algorithm = algorithm
        self._trailer_bytes = trailer_bytes
        self._size = algorithm.size + trailer_bytes  # length of an entry after its type
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
            return Runs((), (*spilled, self._spill(b"".join(in_memory))))
        return Runs(in_memory, spilled)

    def load(self, runs: Runs) -> Runs:
        """Load spilled entries into memory, so that they can be sent to another rank."""
        lots = [b"".join(self._parts(*place)) for place in runs.spilled]
        self._release(len(lots))
        return Runs(merge_runs(runs.in_memory, lots))

    def digest(self, runs: Runs, visit: EntriesCallback | None = None) -> tuple[bytes, int]:
        """Return the digest and the number of entries of a complete directory.

        `visit` is called with the entries in order. The spilled runs are released. Raises
        ValueError if two entries have the same name.
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
                    raise ValueError(f"the name {name!r} occurs twice in one directory")
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
        """Close the temporary file."""
        if self._file is not None:
            discard(self._file)
            self._file = None

    def _spill(self, lot: bytes) -> tuple[int, int]:
        """Store a run, and return its offset and length."""
        with self._lock:
            offset = self._end
            write_at(self._fd(), lot, offset)
            self._end += len(lot)
            self._live_runs += 1
            return offset, len(lot)

    def _fd(self) -> int:
        """Return the descriptor of the temporary file, which is created for the first run."""
        if self._file is None:
            import tempfile  # slow to import, rarely needed

            self._file = tempfile.TemporaryFile(prefix="pcircle-runs-", buffering=0)  # noqa: SIM115
        return self._file.fileno()

    def _sort(self, offset: int, length: int) -> None:
        """Sort a spilled run in place."""
        lot = b"".join(self._parts(offset, length))
        entries = sorted(iter_entries(lot, self._size))
        del lot
        write_at(self._fd(), b"".join([packed for _, packed in entries]), offset)

    def _parts(self, offset: int, length: int) -> Iterator[bytes]:
        fd = self._fd()
        while length:
            part = os.pread(fd, min(length, _RUN_READ_BYTES), offset)
            if not part:
                raise OSError("a shelved run is truncated")
            yield part
            offset += len(part)
            length -= len(part)

    def _read(self, offset: int, length: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a sorted spilled run without loading all of it into memory."""
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
            raise ValueError("a run of entries is truncated")

    def _release(self, lots: int) -> None:
        with self._lock:
            self._live_runs -= lots
            if not self._live_runs and self._file is not None:
                os.ftruncate(self._file.fileno(), 0)
                self._end = 0
