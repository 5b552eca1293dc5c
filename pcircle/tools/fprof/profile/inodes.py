"""The registry of the hard-linked files that were seen, at the home of each inode.

The home is a rank, found by hashing, so a file counts once even if its names are spread over many
ranks. A home needs bounded memory (`pcircle.fs.registry`): it stores only the number of missing
names, and forgets an inode when all its names have arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pcircle.fs import registry
from pcircle.fs.registry import Firsts

MAX_AT_HAND = 100_000  # about 20 MB

_PACKED = struct.Struct("=QQIQQIIq")


class Claim(NamedTuple):
    """One name of a hard-linked file, for its home. `volume` is the file system."""

    volume: int
    inode: int
    links: int
    size_bytes: int
    allocated_bytes: int
    uid: int
    gid: int
    modified_s: int

    def pack(self) -> bytes:
        """Return the claim as bytes of fixed length."""
        return _PACKED.pack(*self)


def unpack(packed: bytes) -> Iterator[Claim]:
    """Yield the claims in a concatenation of packed claims."""
    return map(Claim._make, _PACKED.iter_unpack(packed))


def home_of(claim: Claim, size: int) -> int:
    """Return the rank that registers the inode of a claim."""
    return registry.home_of((claim.volume, claim.inode), size)


class Inodes:
    """The inodes of a home, for all of its threads.

    Methods raise StoppedEarly if temporary space is exhausted.
    """

    def __init__(self, most: int = MAX_AT_HAND) -> None:
        self._firsts = Firsts(most)

    def is_first(self, claim: Claim) -> bool:
        """Return whether this is the first name of its file."""
        return self._firsts.is_first((claim.volume, claim.inode), claim.links)

    def close(self) -> None:
        """Release the temporary space."""
        self._firsts.close()
