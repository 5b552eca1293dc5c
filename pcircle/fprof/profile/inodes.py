"""Which hard-linked files were seen already: each inode's home remembers that.

The home is a rank, found by hashing, so a file counts once however its names are spread over the
ranks. What a home remembers is bounded (`pcircle.fs.registry`): an inode is forgotten when all its
names have come, and of one that it knows nothing but how many have not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pcircle.fs import registry
from pcircle.fs.registry import Firsts

MAX_AT_HAND = 100_000  # some 20 MB

_PACKED = struct.Struct("=QQIQQIIq")


class Claim(NamedTuple):
    """One name of a file of several, as its home wants to know it. `volume`: the file system."""

    volume: int
    inode: int
    links: int
    size_bytes: int
    allocated_bytes: int
    uid: int
    gid: int
    modified_s: int

    def pack(self) -> bytes:
        """As bytes of fixed length."""
        return _PACKED.pack(*self)


def unpack(packed: bytes) -> Iterator[Claim]:
    """The claims of packed ones, joined."""
    return map(Claim._make, _PACKED.iter_unpack(packed))


def home_of(claim: Claim, size: int) -> int:
    """The rank that decides."""
    return registry.home_of((claim.volume, claim.inode), size)


class Inodes:
    """The inodes of a home, for all of its threads. StoppedEarly if there is no temporary space."""

    def __init__(self, most: int = MAX_AT_HAND) -> None:
        self._firsts = Firsts(most)

    def is_first(self, claim: Claim) -> bool:
        """Whether this is the first name of its file; others of it are then to come."""
        return self._firsts.is_first((claim.volume, claim.inode), claim.links)

    def close(self) -> None:
        """Give the space back."""
        self._firsts.close()
