"""Digests of each type of entry, and the text form of a signature.

`docs/signature.rst` defines these formats.
"""

from __future__ import annotations

import re
import stat
import struct
from typing import NamedTuple

from pcircle.core.timestamps import Timestamp, timestamp
from pcircle.ops.digest.algorithms import Algorithm, Hasher, get_algorithm

_TRAILER = struct.Struct(">QqIqI")
TRAILER_BYTES = _TRAILER.size
"""Length in bytes of the optional trailer after an entry's digest; see `pack_trailer`."""

FAILED = b"!"
"""Kind byte of an entry that could not be read."""

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


class Signature(NamedTuple):
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
    """Return the byte that represents the file type of `mode`. ValueError for an unknown type."""
    try:
        return _KINDS[stat.S_IFMT(mode)]
    except KeyError:
        raise ValueError(f"no kind of file has the mode {mode:o}") from None


def file_digest(algorithm: Algorithm, size: int, blocks: bytes) -> bytes:
    """Return the digest of a regular file of `size` bytes from its concatenated block digests."""
    return algorithm.digest(b"file\0" + _SIZE.pack(size) + blocks)


def file_hasher(algorithm: Algorithm, size: int) -> Hasher:
    """Return a hasher for `file_digest` to which the caller adds the block digests.

    The blocks of a large file are too many to concatenate their digests first.
    """
    hasher = algorithm.new()
    hasher.update(b"file\0" + _SIZE.pack(size))
    return hasher


def link_digest(algorithm: Algorithm, text: bytes) -> bytes:
    """Return the digest of a symbolic link with the target `text`."""
    return algorithm.digest(b"link\0" + text)


def node_digest(algorithm: Algorithm, mode: int, rdev: int) -> bytes:
    """Return the digest of a FIFO, socket or device; only devices have a device number."""
    number = rdev if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else 0
    return algorithm.digest(b"node\0" + kind_byte(mode) + _SIZE.pack(number))


def format_signature(algorithm: Algorithm, digest: bytes) -> str:
    """Return the text form of a signature."""
    return f"pcsig1:{algorithm.name}:{digest.hex()}"


def parse_signature(text: str) -> Signature:
    """Parse the text form of a signature. ValueError if it is malformed or not of this version."""
    match = re.fullmatch(_TEXT, text)
    if match is None:
        raise ValueError(f"'{text}' is not of the form pcsig1:ALGORITHM:HEX")
    if len(match[2]) != 2 * get_algorithm(match[1]).size:
        raise ValueError(f"'{text}': wrong length for {match[1]}")
    return Signature(match[1], bytes.fromhex(match[2]))
