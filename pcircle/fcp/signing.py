"""`--signature`: digests of what is copied, from the same read that copies it.

Each rank has a `Signer`. What copies an entry leaves its *seal*, kind and
digest, with the signer, and whoever knows the entry's name adds it; at the end
of each item its entries leave in its result and flow up the joins: entries to
the directory that they lie in, which turns them into one entry of its own;
digests of blocks to their large file; a copy's seal to the names that will be
linked to it. The roots' entries arrive at rank 0, named by their numbers.

The signature is of what stands in the destination for the entries of the
source: what was left as it is was not read from the source, so it is read
where it is. Failed entries leave a gap, which is rank 0's to know: it hears of
each failure, and which root it is in. `Done.signed` counts entries, so that
one that was lost on the way shows.

Reading and hashing needs the bytes, so nothing is cloned or copied by the
kernel. Without the option there is no signer and nothing of this is done.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec

from pcircle.errors import NoSpace
from pcircle.fcp.items import Done, Failure
from pcircle.fcp.journal import Part
from pcircle.fcp.plain import NOT_PLAIN, SOURCE_FLAGS
from pcircle.fs.directories import HOLDER
from pcircle.signature import (
    BLOCK_BYTES,
    BlockHasher,
    Runs,
    Shelf,
    algorithm,
    entries_of,
    file_digest,
    kind_of,
    link_digest,
    node_digest,
    pack_entry,
    text_of,
)

_READ_BYTES = 512 << 10
_PART = struct.Struct(">QQ")  # number of the first block, and how many


class Signer:
    """One rank's digests. Used by the worker, but for `gather`, which is the main thread's."""

    def __init__(self, name: str) -> None:
        self.algorithm = algorithm(name)
        self.seal = b""  # kind and digest of the entry that was copied last
        self._hasher = BlockHasher(self.algorithm)
        self._shelf = Shelf(self.algorithm)
        self._entries: list[bytes] = []
        self._told = 0  # of these, to `fresh`
        self._kept = Runs()
        self._kept_count = 0
        self.blocks = b""  # digests of a chunk that was copied

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
        self.blocks += _PART.pack(begin // BLOCK_BYTES, count) + self._hasher.end(end)

    def small(self, data: bytes) -> None:
        """A file's content that is no more than a block."""
        blocks = self.algorithm.digest(data) if data else b""
        self._seal_file(len(data), blocks)

    def large(self, size: int, expected: int, blocks: bytes) -> None:
        """A file that was copied in chunks of which `expected` blocks are no mere holes.

        AssertionError if these are not all there.
        """
        each = self.algorithm.size
        parts: list[tuple[int, int, int]] = []  # first block, how many, where their digests are
        at = 0
        while at < len(blocks):
            first, count = _PART.unpack_from(blocks, at)
            at += _PART.size
            parts.append((first, count, at))
            at += count * each
        assert sum(count for _, count, _ in parts) == expected, "blocks of a file are missing"
        digests = bytearray()
        reached = 0
        for first, count, at in sorted(parts):
            assert first >= reached, "blocks of a file came twice"
            digests += self._hasher.zero_digest * (first - reached)
            digests += blocks[at : at + count * each]
            reached = first + count
        tail, rest = divmod(size - reached * BLOCK_BYTES, BLOCK_BYTES)
        if tail >= 0:
            digests += self._hasher.zero_digest * tail
            if rest:
                digests += self.algorithm.digest(bytes(rest))
        self._seal_file(size, bytes(digests))

    def _seal_file(self, size: int, blocks: bytes) -> None:
        self.seal = b"f" + file_digest(self.algorithm, size, blocks)

    def link(self, text: bytes) -> None:
        """A symbolic link."""
        self.seal = b"l" + link_digest(self.algorithm, text)

    def node(self, mode: int, rdev: int) -> None:
        """A FIFO, a socket or a device."""
        self.seal = kind_of(mode) + node_digest(self.algorithm, mode, rdev)

    def existing(self, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
        """Something that was left as it is. OSError if it can't be read, or `stop` says so."""
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self.link(os.readlink(name, dir_fd=directory_fd))
        elif not stat.S_ISREG(status.st_mode):
            self.node(status.st_mode, status.st_rdev)
        else:
            fd = os.open(name, SOURCE_FLAGS, dir_fd=directory_fd)
            try:
                self._read(fd, stop)
            finally:
                os.close(fd)

    def _read(self, fd: int, stop: Callable[[], bool]) -> None:
        self.begin()
        at = 0
        while data := os.read(fd, _READ_BYTES):
            self.tap(at, data)
            at += len(data)
            if stop():
                raise InterruptedError("the job was stopped")
        self.end_file(at)

    # ---- entries ---------------------------------------------------------------

    def add(self, name: bytes) -> None:
        """The entry of this name has the seal that was made last."""
        self._entries.append(pack_entry(name, self.seal[:1], self.seal[1:]))

    def add_at(self, root: int, path: bytes, name: bytes) -> None:
        """As `add`, of an entry that may be a root, which goes by its number."""
        self.add(b"%d" % root if path == HOLDER else name)

    def fresh(self) -> bytes:
        """The entries that were added since this was asked last, packed."""
        some = b"".join(self._entries[self._told :])
        self._told = len(self._entries)
        return some

    def keep(self, entries: bytes, names: Callable[[list[bytes]], bool]) -> None:
        """Entries that an earlier run has made, one of each of its `names`.

        ValueError if they are not these. NoSpace if they can't be kept.
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

    def take(self, done: Done) -> Done:
        """The result of an item with the entries and blocks that were added to it."""
        count = len(self._entries)
        if not count and not self._kept_count and not self.blocks:
            return done
        runs = self._add(self._kept, Runs((b"".join(self._entries),) if count else ()))
        signed = count + self._kept_count
        more = Done(runs=runs.held, shelved=runs.shelved, signed=signed, blocks=self.blocks)
        self.clear()
        return self.gather(done, done, more)

    def gather(self, done: Done, a: Done, b: Done) -> Done:
        """`done` with the entries and blocks of two results. NoSpace if they can't be kept."""
        runs = self._add(Runs(a.runs, a.shelved), Runs(b.runs, b.shelved))
        return msgspec.structs.replace(
            done,
            runs=runs.held,
            shelved=runs.shelved,
            signed=a.signed + b.signed,
            blocks=a.blocks + b.blocks,
        )

    def _add(self, a: Runs, b: Runs) -> Runs:
        try:
            return self._shelf.add(a, b)
        except OSError as error:
            raise NoSpace(f"digests can't be kept in the temporary directory: {error}") from error

    def directory(self, root: int, path: bytes, merged: Done) -> Done:
        """The result of a directory, of all that is in it."""
        try:
            digest, _ = self._shelf.digest(Runs(merged.runs, merged.shelved))
        except OSError as error:
            raise NoSpace(f"digests can't be read in the temporary directory: {error}") from error
        return Done(runs=(self.directory_entry(root, path, digest),), signed=merged.signed + 1)

    def directory_entry(self, root: int, path: bytes, digest: bytes) -> bytes:
        """A directory as an entry of what it lies in."""
        name = path.rpartition(b"/")[2] if path else b"%d" % root
        return pack_entry(name, b"d", digest)

    def is_digest(self, digest: bytes) -> bool:
        """Whether this has a digest's length: what a journal says may be anything."""
        return len(digest) == self.algorithm.size

    def usable(self, parts: Sequence[Part]) -> list[Part]:
        """The parts of a large file that have all their digests, each block no more than once."""
        chosen: list[Part] = []
        reached = 0
        for part in sorted(parts, key=attrgetter("offset")):
            count = -(-part.length // BLOCK_BYTES)
            head = _PART.pack(part.offset // BLOCK_BYTES, count)
            whole = len(part.blocks) == len(head) + count * self.algorithm.size
            if part.offset >= reached and not part.offset % BLOCK_BYTES and whole:
                if not part.blocks.startswith(head):
                    continue
                chosen.append(part)
                reached = part.offset + count * BLOCK_BYTES
        return chosen

    def seal_of(self, done: Done) -> bytes:
        """The seal of the one entry in a result; empty if there is none."""
        if not done.runs:
            return b""
        return done.runs[0][-1 - self.algorithm.size :]


def signing_copier(
    copy: Callable[[bytes, int, int], int], signer: Signer
) -> Callable[[bytes, int, int], int]:
    """`plain_copier`'s function, adding the entry of what it copied."""

    def copy_signed(name: bytes, source_fd: int, target_fd: int) -> int:
        size = copy(name, source_fd, target_fd)
        if size != NOT_PLAIN:
            signer.add(name)
        return size

    return copy_signed


class Signatures:
    """Rank 0's view: which roots can have a signature, and what they are.

    `shown` are the roots' copies as the user knows them.
    """

    def __init__(self, name: str, shown: tuple[bytes, ...]) -> None:
        self._algorithm = algorithm(name)
        self._shown = shown
        self._failed: set[int] = set()

    def failed(self, failure: Failure) -> None:
        """An entry could not be copied."""
        self._failed.add(failure.root)

    def results(
        self, result: Done | None, *, failures: int, entries: int
    ) -> list[tuple[bytes, str | None]]:
        """Each root with its signature, None if it has none.

        `failures` and `entries` are the accounts of the job. ValueError if
        the entries that were signed are not those.
        """
        if result is None or (failures and not self._failed):
            return [(shown, None) for shown in self._shown]
        if not failures and result.signed != entries:
            raise ValueError(f"{entries} entries were settled, but {result.signed} signed")
        size = self._algorithm.size
        entries_found = entries_of(b"".join(result.runs), size)
        texts = {int(name): text_of(self._algorithm, e[-size:]) for name, e in entries_found}
        return [
            (shown, None if root in self._failed else texts.get(root))
            for root, shown in enumerate(self._shown)
        ]
