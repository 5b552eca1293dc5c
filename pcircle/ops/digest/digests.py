"""Digests of each type of entry, the text form of a signature, and hash functions.

`docs/signature.rst` defines the formats.

`BlockHasher` computes the digests of the blocks of a file. The reader passes pieces of any length
in ascending order, so that each piece is hashed while it is still in the CPU cache. Gaps between
pieces are holes, which count as zeros. The digest of a block of zeros is computed only once, so a
block that lies in a hole is not hashed.

The hash function `xxh128` is as fast as memory and detects accidental corruption; the cryptographic
functions also detect tampering. All of them release the interpreter lock while they hash large
buffers. Their modules are imported on first use, because most runs need none of them.
"""

from __future__ import annotations

import re
import stat
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from pcircle.core.errors import StoppedEarly, require_that
from pcircle.core.units import Timestamp, timestamp

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


BLOCK_BYTES = 4 << 20
_ZEROS = bytes(64 << 10)


class BlockHasher:
    """Computes the digests of the blocks in a range of a file, one range at a time.

    If `checksum` is set, all content of the range is also passed to this hasher.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.checksum: Hasher | None = None
        self._algorithm = algorithm
        self._zero_digest = b""
        self._at = 0
        self._hasher: Hasher | None = None  # hasher of the block that contains `_at`
        self._digests = bytearray()

    @property
    def zero_digest(self) -> bytes:
        """The digest of a full block of zeros."""
        if not self._zero_digest:
            self._zero_digest = self._algorithm.digest(bytes(BLOCK_BYTES))
        return self._zero_digest

    def begin(self, offset: int) -> None:
        """Start a range at `offset`, which must be a multiple of the block size."""
        require_that(offset % BLOCK_BYTES == 0, "a range begins within a block")
        self._at = offset
        self._hasher = None
        self._digests = bytearray()

    def add(self, offset: int, data: memoryview | bytes) -> None:
        """Add the data that was read at `offset`; offsets must not decrease."""
        require_that(offset >= self._at, "the same data was read twice")
        if offset > self._at:
            self._add_zeros(offset)
        view = memoryview(data)
        while view:
            room = BLOCK_BYTES - self._at % BLOCK_BYTES
            self._update(view[:room])
            view = view[room:]

    def end(self, offset: int) -> bytes:
        """Finish the range at `offset` and return the digests of its blocks.

        The last block may be shorter than the block size.
        """
        if offset > self._at:
            self._add_zeros(offset)
        require_that(offset == self._at, "more data was read than the range contains")
        if self._hasher is not None:
            self._digests += self._hasher.digest()
            self._hasher = None
        return bytes(self._digests)

    def _update(self, part: memoryview) -> None:
        """Add bytes that do not cross a block boundary."""
        if self._hasher is None:
            self._hasher = self._algorithm.new()
        self._hasher.update(part)
        if self.checksum is not None:
            self.checksum.update(part)
        self._at += len(part)
        if self._at % BLOCK_BYTES == 0:
            self._digests += self._hasher.digest()
            self._hasher = None

    def _add_zeros(self, until: int) -> None:
        zeros = memoryview(_ZEROS)
        while self._at < until:
            within = self._at % BLOCK_BYTES
            if not within and until - self._at >= BLOCK_BYTES:
                count = (until - self._at) // BLOCK_BYTES
                self._digests += self.zero_digest * count
                if self.checksum is not None:
                    for _ in range(count * BLOCK_BYTES // len(zeros)):
                        self.checksum.update(zeros)
                self._at += count * BLOCK_BYTES
                continue
            self._update(zeros[: min(len(zeros), BLOCK_BYTES - within, until - self._at)])


_TRAILER = struct.Struct(">QqIqI")
TRAILER_BYTES = _TRAILER.size
"""The length in bytes of the optional trailer after an entry's digest; see `pack_trailer`."""

FAILED = b"!"
"""The type byte of an entry that could not be read."""

_SIZE = struct.Struct(">Q")
_KINDS = {
    stat.S_IFREG: b"f",
    stat.S_IFDIR: b"d",
    stat.S_IFLNK: b"l",
    stat.S_IFIFO: b"p",
    stat.S_IFSOCK: b"s",
    stat.S_IFCHR: b"c",
    stat.S_IFBLK: b"b",
}
_TEXT = r"pcsig1:([a-z0-9]+):([0-9a-f]+)"


class Signature(msgspec.Struct, frozen=True):
    """A parsed signature: the algorithm's name and the raw digest."""

    algorithm: str
    digest: bytes


def pack_trailer(size: int, modified_ns: int, changed_ns: int) -> bytes:
    """Pack an entry's size in bytes and its modification and change times in nanoseconds."""
    return _TRAILER.pack(size, *timestamp(modified_ns), *timestamp(changed_ns))


def unpack_trailer(packed: bytes, offset: int) -> tuple[int, int, int]:
    """Unpack (size, modified_ns, changed_ns) from the trailer at `offset`."""
    size, *times = _TRAILER.unpack_from(packed, offset)
    return size, Timestamp(*times[:2]).ns, Timestamp(*times[2:]).ns


def kind_byte(mode: int) -> bytes:
    """Return the byte that represents the file type of `mode`.

    Raises ValueError for an unknown type.
    """
    try:
        return _KINDS[stat.S_IFMT(mode)]
    except KeyError:
        raise ValueError(f"no kind of file has the mode {mode:o}") from None


def file_digest(algorithm: Algorithm, size: int, blocks: bytes) -> bytes:
    """Return the digest of a regular file of `size` bytes from its concatenated block digests."""
    return algorithm.digest(b"file\0" + _SIZE.pack(size) + blocks)


def file_hasher(algorithm: Algorithm, size: int) -> Hasher:
    """Return a hasher for `file_digest` to which the caller adds the block digests.

    This avoids concatenating the digests of all blocks of a large file.
    """
    hasher = algorithm.new()
    hasher.update(b"file\0" + _SIZE.pack(size))
    return hasher


def link_digest(algorithm: Algorithm, text: bytes) -> bytes:
    """Return the digest of a symbolic link with the target `text`."""
    return algorithm.digest(b"link\0" + text)


def node_digest(algorithm: Algorithm, mode: int, rdev: int) -> bytes:
    """Return the digest of a FIFO, socket or device; the device number is used only for devices."""
    number = rdev if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else 0
    return algorithm.digest(b"node\0" + kind_byte(mode) + _SIZE.pack(number))


def format_signature(algorithm: Algorithm, digest: bytes) -> str:
    """Return the text form of a signature."""
    return f"pcsig1:{algorithm.name}:{digest.hex()}"


def parse_signature(text: str) -> Signature:
    """Parse the text form of a signature.

    Raises ValueError if it is malformed or not of this version.
    """
    match = re.fullmatch(_TEXT, text)
    if match is None:
        raise ValueError(f"'{text}' is not of the form pcsig1:ALGORITHM:HEX")
    if len(match[2]) != 2 * get_algorithm(match[1]).size:
        raise ValueError(f"'{text}': wrong length for {match[1]}")
    return Signature(match[1], bytes.fromhex(match[2]))


DEFAULT = "xxh128"
# The signature algorithms that hashlib implements; `checksums.NAMES` lists those of checksum lists.
# A name consists of at most 20 lower-case letters and digits, because manifests support no other
# names.
_HASHLIB = ("sha256", "sha512", "blake2b")
# The input is long enough to execute the code for large buffers.
_BLAKE3_TRIAL = """
from blake3 import blake3
hasher = blake3(bytes(1 << 20))
hasher.update(bytes(100))
hasher.digest()
"""


class Hasher(Protocol):
    """A computation of a digest that is in progress."""

    def update(self, data: ReadableBuffer, /) -> object:
        """Add `data` to the input."""

    def digest(self) -> bytes:
        """Return the digest of the input so far."""
        ...


class Algorithm(msgspec.Struct, frozen=True):
    """A hash function: its name, digest size in bytes, constructor, and one-call form."""

    name: str
    size: int
    new: Callable[[], Hasher]
    digest: Callable[[ReadableBuffer], bytes]


def algorithm_names() -> tuple[str, ...]:
    """Return the names of all algorithms; `blake3` requires an optional package."""
    return (DEFAULT, *_HASHLIB, "blake3")


def unknown_algorithm(name: str, names: Sequence[str]) -> ValueError:
    """Return the error for an unknown name, with a suggestion for names such as `SHA-256`."""
    usual = name.lower().replace("-", "").replace("_", "").removesuffix("sum")
    meant = f"; did you mean '{usual}'?" if usual in names else f"; choose from {', '.join(names)}"
    return ValueError(f"unknown algorithm '{name}'{meant}")


def check_name(name: str) -> None:
    """Raise ValueError if no algorithm has this name, whether it is usable or not."""
    if name not in algorithm_names():
        raise unknown_algorithm(name, algorithm_names())


def import_early(name: str) -> None:
    """Import an algorithm before the ranks are forked, so that they share the import.

    An algorithm that requires a trial run is left to the ranks.
    """
    if name == DEFAULT or name in _HASHLIB:
        get_algorithm(name)


def ensure_usable(name: str, rank: int) -> None:
    """Raise StoppedEarly if this rank cannot use the algorithm, perhaps because its CPU differs."""
    try:
        get_algorithm(name)
    except ValueError as error:
        raise StoppedEarly(f"rank {rank}: {error}") from None


def get_algorithm(name: str) -> Algorithm:
    """Return the algorithm with this name.

    Raises ValueError if the name is unknown, or the algorithm is not usable on this machine.
    """
    check_name(name)
    if name == DEFAULT:
        import xxhash

        return Algorithm(name, 16, xxhash.xxh3_128, xxhash.xxh3_128_digest)
    if name in _HASHLIB:
        import hashlib

        return _from_class(name, getattr(hashlib, name))
    from pcircle.core import optional_packages as optional

    try:
        return _from_class(name, optional.load(name, _BLAKE3_TRIAL).blake3)
    except ImportError as error:
        raise ValueError(str(error)) from None


def _from_class(name: str, new: Callable[..., Hasher]) -> Algorithm:
    """Return the algorithm for a hasher class; its digest size is measured."""
    return Algorithm(name, len(new().digest()), new, lambda data: new(data).digest())
