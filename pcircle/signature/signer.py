"""One rank's part of a signature: from the contents of entries to the digests of directories.

What reads an entry leaves its *seal*, kind and digest, with the signer, and
whoever knows the entry's name adds it. At the end of each item of work its
entries leave in its result and flow up the joins: entries to the directory
that they lie in, which turns them into one entry of its own; digests of blocks
to their large file. The roots' entries arrive at rank 0, named by their
numbers. `signed` counts entries, so that one that was lost on the way shows.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from pcircle.buffers import aligned
from pcircle.errors import StoppedEarly
from pcircle.guards import require_that
from pcircle.signature.algorithms import Hasher, algorithm
from pcircle.signature.blocks import BLOCK_BYTES, BlockHasher
from pcircle.signature.digests import file_digest, file_hasher, kind_of, link_digest, node_digest
from pcircle.signature.runs import COUNT, LENGTHS, Runs, Shelf, Visitor, entries_of, pack_entry

PART = struct.Struct(">QQ")
"""Before digests of blocks: the number of the first one, and how many they are."""

_FILE = struct.Struct(">5sQ")
_READ_BYTES = 512 << 10
_SPACE = "cannot {} digests in the temporary directory: {}"
_HOLES_TOGETHER = 4096


class Result(Protocol):
    """What a tool's results have of a signature; a msgspec.Struct.

    `runs` are packed entries, `shelved` where more of them are on this rank's
    shelf, `signed` how many these are including subdirectories, `blocks` digests of a
    large file.
    """

    @property
    def runs(self) -> tuple[bytes, ...]: ...
    @property
    def shelved(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def signed(self) -> int: ...
    @property
    def blocks(self) -> bytes: ...


D = TypeVar("D", bound=Result)


class Signer:
    """One rank's digests. Used by one worker, but for `gather`, which is the main thread's.

    `root_holder` is the path of the directory that roots are in. Entries have
    `beside` behind their digest, of `beside_bytes`, see `pcircle.signature.runs.Shelf`.
    Each thread has a signer of its own; what is on the shelf of `first` is on theirs.
    """

    def __init__(
        self, name: str, root_holder: bytes, beside_bytes: int = 0, first: Signer | None = None
    ) -> None:
        self.algorithm = algorithm(name)
        self.beside = bytes(beside_bytes)
        self.seal = b""  # kind and digest of the entry that was read last
        self.blocks = b""  # digests of a chunk that was read
        self._root_holder = root_holder
        self._piece = aligned(_READ_BYTES)
        self._hasher = BlockHasher(self.algorithm)
        shelf: Shelf | None = None if first is None else first._shelf
        self._shelf: Shelf = shelf or Shelf(self.algorithm, beside_bytes=beside_bytes)
        self._entries: list[bytes] = []
        self._told = 0  # of these, to `fresh`
        self._kept = Runs()
        self._kept_count = 0

    # ---- contents --------------------------------------------------------------

    def begin(self, offset: int = 0) -> None:
        """A file's content will come, from `offset` on."""
        self._hasher.begin(offset)

    def tap(self, offset: int, data: memoryview | bytes) -> None:
        """What was read of it."""
        self._hasher.add(offset, data)

    def end_file(self, size: int) -> None:
        """It was all; what did not come is holes."""
        self._seal_file(size, self._hasher.end(size))

    def end_chunk(self, begin: int, end: int) -> None:
        """It was all of a range, whose digests leave in the item's result."""
        count = -(-(end - begin) // BLOCK_BYTES)
        self.blocks += PART.pack(begin // BLOCK_BYTES, count) + self._hasher.end(end)

    def small(self, data: bytes | memoryview) -> None:
        """A file's content that is no more than a block."""
        blocks = self.algorithm.digest(data) if data else b""
        self._seal_file(len(data), blocks)

    def large(self, size: int, expected: int, blocks: bytes) -> None:
        """A file that was read in chunks of which `expected` blocks are no mere holes.

        Inconsistent if these are not all there.
        """
        each = self.algorithm.size
        parts: list[tuple[int, int, int]] = []  # first block, how many, where their digests are
        at = 0
        while at < len(blocks):
            first, count = PART.unpack_from(blocks, at)
            at += PART.size
            parts.append((first, count, at))
            at += count * each
        there = sum(count for _, count, _ in parts)
        require_that(there == expected, "blocks of a file are missing")
        hasher = file_hasher(self.algorithm, size)
        view = memoryview(blocks)
        reached = 0
        for first, count, at in sorted(parts):
            require_that(first >= reached, "blocks of a file came twice")
            self._add_holes(hasher, first - reached)
            hasher.update(view[at : at + count * each])
            reached = first + count
        tail, rest = divmod(size - reached * BLOCK_BYTES, BLOCK_BYTES)
        if tail >= 0:
            self._add_holes(hasher, tail)
            if rest:
                hasher.update(self.algorithm.digest(bytes(rest)))
        self.seal = b"f" + hasher.digest()

    def _add_holes(self, hasher: Hasher, count: int) -> None:
        """The digests of so many blocks of zeros, which may be millions."""
        zero = self._hasher.zero_digest
        while count > 0:
            some = min(count, _HOLES_TOGETHER)
            hasher.update(zero * some)
            count -= some

    def _seal_file(self, size: int, blocks: bytes) -> None:
        self.seal = b"f" + file_digest(self.algorithm, size, blocks)

    def link(self, text: bytes) -> None:
        """A symbolic link."""
        self.seal = b"l" + link_digest(self.algorithm, text)

    def node(self, mode: int, rdev: int) -> None:
        """A FIFO, a socket or a device."""
        self.seal = kind_of(mode) + node_digest(self.algorithm, mode, rdev)

    def read(self, fd: int, stop: Callable[[], bool]) -> None:
        """All of an open file. OSError; InterruptedError if `stop` says so."""
        self.begin()
        at = 0
        while count := os.readv(fd, [self._piece]):
            self.tap(at, self._piece[:count])
            at += count
            if stop():
                raise InterruptedError("the job was stopped")
        self.end_file(at)

    # ---- entries ---------------------------------------------------------------

    def add(self, name: bytes) -> None:
        """The entry of this name has the seal that was made last."""
        self._entries.append(pack_entry(name, self.seal[:1], self.seal[1:] + self.beside))

    def file_entries(
        self, names: Sequence[bytes], sizes: Sequence[int], contents: bytes
    ) -> list[bytes]:
        """The entries of files that are no more than a block, with their contents one after the
        other; an empty one of each that has no size, but a negative number.
        """
        digest, head_of, view, at = self.algorithm.digest, _FILE.pack, memoryview(contents), 0
        packed: list[bytes] = []
        for name, size in zip(names, sizes, strict=False):
            if size > 0:
                end = at + size
                sealed = digest(head_of(b"file\0", size) + digest(view[at:end]))
                at = end
            elif size:
                packed.append(b"")
                continue
            else:
                sealed = digest(head_of(b"file\0", 0))
            packed.append(LENGTHS[len(name)] + name + b"f" + sealed)
        return packed

    def add_entries(self, entries: Iterable[bytes]) -> None:
        """As `add`, of entries as of `file_entries`."""
        self._entries += filter(None, entries)

    def add_at(self, root: int, path: bytes, name: bytes) -> None:
        """As `add`, of an entry that may be a root, which goes by its number."""
        self.add(b"%d" % root if path == self._root_holder else name)

    def fresh(self) -> bytes:
        """The entries that were added since this was asked last, packed."""
        some = b"".join(self._entries[self._told :])
        self._told = len(self._entries)
        return some

    def keep(self, entries: bytes, names: Callable[[list[bytes]], bool]) -> None:
        """Entries that an earlier run has made, one of each of its `names`.

        ValueError if they are not these. StoppedEarly if they can't be kept.
        """
        found = list(entries_of(entries, self.algorithm.size))
        if not names([name for name, _ in found]):
            raise ValueError("the entries are not those of the names")
        self._kept = self._add(self._kept, Runs((entries,)))
        self._kept_count += len(found)

    def clear(self) -> None:
        """An item begins."""
        self._entries.clear()
        self._told = 0
        self._kept, self._kept_count = Runs(), 0
        self.blocks = b""

    def take(self, done: D) -> D:
        """The result of an item with the entries and blocks that were added to it."""
        count = len(self._entries)
        if not count and not self._kept_count and not self.blocks:
            return done
        added = self._add(self._kept, Runs((b"".join(self._entries),) if count else ()))
        runs = self._add(Runs(done.runs, done.shelved), added)
        signed = done.signed + count + self._kept_count
        blocks = done.blocks + self.blocks
        self.clear()
        return _with(done, runs, signed, blocks)

    def gather(self, done: D, a: D, b: D) -> D:
        """`done` with the entries and blocks of two results. StoppedEarly if they can't be kept."""
        runs = self._add(Runs(a.runs, a.shelved), Runs(b.runs, b.shelved))
        return _with(done, runs, a.signed + b.signed, a.blocks + b.blocks)

    def portable(self, done: D) -> D:
        """A result for another rank, with what is on the shelf. StoppedEarly as `directory`."""
        if not done.shelved:
            return done
        try:
            runs = self._shelf.take_back(Runs(done.runs, done.shelved))
        except OSError as error:
            raise StoppedEarly(_SPACE.format("read", error.strerror)) from error
        return _with(done, runs, done.signed, done.blocks)

    def _add(self, a: Runs, b: Runs) -> Runs:
        try:
            return self._shelf.add(a, b)
        except OSError as error:
            raise StoppedEarly(_SPACE.format("kept", error.strerror)) from error

    def directory(
        self, root: int, path: bytes, done: D, merged: D, visit: Visitor | None = None
    ) -> D:
        """`done` as the result of a directory, of all that is in it, which `visit` is shown.

        ValueError if a name comes twice. StoppedEarly if it can't be read back.
        """
        try:
            digest, _ = self._shelf.digest(Runs(merged.runs, merged.shelved), visit)
        except OSError as error:
            raise StoppedEarly(_SPACE.format("read", error.strerror)) from error
        runs = Runs((self.directory_entry(root, path, digest),))
        return _with(done, runs, merged.signed + 1, b"")

    def directory_entry(self, root: int, path: bytes, digest: bytes) -> bytes:
        """A directory as an entry of what it lies in."""
        name = path.rpartition(b"/")[2] if path else b"%d" % root
        return pack_entry(name, b"d", digest + self.beside)

    def small_directories(
        self,
        names: Sequence[bytes],
        ranges: Sequence[tuple[int, int]],
        inside: Sequence[bytes],
        entries: Sequence[bytes],
    ) -> list[bytes]:
        """The entries of directories below a root, each of a range of all that is `inside`.

        Names in a range are in order. An entry is empty if that of a file is, or is not there, or
        if a name comes twice, which is for `directory` to say.
        """
        digest, beside = self.algorithm.digest, self.beside
        packed: list[bytes] = []
        for name, (begin, end) in zip(names, ranges, strict=True):
            own, count = entries[begin:end], end - begin
            if len(own) < count or not all(own) or len(set(inside[begin:end])) < count:
                packed.append(b"")
                continue
            sealed = digest(b"dir\0%b%b" % (b"".join(own), COUNT.pack(count)))
            packed.append(LENGTHS[len(name)] + name + b"d" + sealed + beside)
        return packed

    def is_digest(self, digest: bytes) -> bool:
        """Whether this has a digest's length: what a journal says may be anything."""
        return len(digest) == self.algorithm.size

    def digest_of(self, done: Result) -> bytes:
        """The digest of the one entry in a result."""
        end = len(done.runs[0]) - len(self.beside)
        return done.runs[0][end - self.algorithm.size : end]

    def seal_of(self, done: Result) -> bytes:
        """The seal of the one entry in a result; empty if there is none."""
        if not done.runs:
            return b""
        return done.runs[0][-1 - self.algorithm.size :]


def _with(done: D, runs: Runs, signed: int, blocks: bytes) -> D:
    changed: D = msgspec.structs.replace(  # type: ignore[type-var]
        done, runs=runs.held, shelved=runs.shelved, signed=signed, blocks=blocks
    )
    return changed
