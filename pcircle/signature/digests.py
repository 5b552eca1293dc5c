"""The digests of the kinds of entries, and the text of a signature; see `docs/signature.rst`."""

from __future__ import annotations

import re
import stat
import struct
from typing import NamedTuple

from pcircle.signature.algorithms import Algorithm, Hasher, algorithm
from pcircle.timestamps import Timestamp, timestamp

_BESIDE = struct.Struct(">QqIqI")
BESIDE_BYTES = _BESIDE.size
"""Length of what stands beside an entry's digest, where wanted: see `pack_beside`."""

FAILED = b"!"
"""In place of a kind: an entry that could not be read."""

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
    """A signature, taken apart."""

    algorithm: str
    digest: bytes


def pack_beside(size: int, modified_ns: int, changed_ns: int) -> bytes:
    """Pack an entry's size in bytes, and its times of modification and change in nanoseconds."""
    return _BESIDE.pack(size, *timestamp(modified_ns), *timestamp(changed_ns))


def unpack_beside(packed: bytes, offset: int) -> tuple[int, int, int]:
    """Unpack the size and the times that `pack_beside` packed."""
    size, *times = _BESIDE.unpack_from(packed, offset)
    return size, Timestamp(*times[:2]).ns, Timestamp(*times[2:]).ns


def kind_of(mode: int) -> bytes:
    """The byte that stands for the kind of a file of this mode. ValueError if it has none."""
    try:
        return _KINDS[stat.S_IFMT(mode)]
    except KeyError:
        raise ValueError(f"no kind of file has the mode {mode:o}") from None


def file_digest(algorithm: Algorithm, size: int, blocks: bytes) -> bytes:
    """The digest of a regular file of `size` bytes, from those of its blocks, one after another."""
    return algorithm.digest(b"file\0" + _SIZE.pack(size) + blocks)


def file_hasher(algorithm: Algorithm, size: int) -> Hasher:
    """As `file_digest` of very many blocks, whose digests are to be added."""
    hasher = algorithm.new()
    hasher.update(b"file\0" + _SIZE.pack(size))
    return hasher


def link_digest(algorithm: Algorithm, text: bytes) -> bytes:
    """The digest of a symbolic link."""
    return algorithm.digest(b"link\0" + text)


def node_digest(algorithm: Algorithm, mode: int, rdev: int) -> bytes:
    """The digest of a FIFO, a socket or a device."""
    number = rdev if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else 0
    return algorithm.digest(b"node\0" + kind_of(mode) + _SIZE.pack(number))


def text_of(algorithm: Algorithm, digest: bytes) -> str:
    """A signature as text."""
    return f"pcsig1:{algorithm.name}:{digest.hex()}"


def parse_text(text: str) -> Signature:
    """Take a signature's text apart. ValueError if it is none that this version knows."""
    match = re.fullmatch(_TEXT, text)
    if match is None:
        raise ValueError(f"'{text}' is not of the form pcsig1:ALGORITHM:HEX")
    if len(match[2]) != 2 * algorithm(match[1]).size:
        raise ValueError(f"'{text}': wrong length for {match[1]}")
    return Signature(match[1], bytes.fromhex(match[2]))
