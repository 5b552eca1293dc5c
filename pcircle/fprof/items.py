"""fprof's units of work besides those of the walk, and what comes back of all.

Names of any kind, a list, claims to hard-linked files.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from typing import TypeAlias

import msgspec

from pcircle.fs.listed import Listed
from pcircle.walk.items import Batch, Gather, Merge, Seal, Tree


class Mixed(msgspec.Struct, frozen=True, array_like=True, tag="m", gc=False):
    """Profile names of any kind in the directory `path`; directories among them are not entered.

    Names are joined by NUL. Nothing of them counts for a directory.
    """

    root: int
    path: bytes
    names: bytes
    weight: float  # of each name
    place: None = None
    slot: int = 0


class Lines(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Profile what a list names; `only` is a range of it, which rank 0 keeps."""

    root: int
    only: Listed
    weight: float


class Claims(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Names of hard-linked files, for the rank that knows which were seen: see `Claim`."""

    packed: bytes


Item: TypeAlias = (
    Tree | Batch | Mixed | Lines | Claims | Gather[Tree | Mixed | Lines] | Seal | Merge
)


Sum: TypeAlias = tuple[int, int, int]
"""Entries and bytes of a part of a directory, and how many of the bytes are in itself."""

_HIGH_BITS = 60


def narrow(part: Sum) -> tuple[int, ...]:
    """A sum as it travels: what may have more than 64 bits is divided into two numbers."""
    entries, size, own = part
    if (size | own) >> _HIGH_BITS == 0:
        return part
    low = (1 << _HIGH_BITS) - 1
    return entries, size & low, own & low, size >> _HIGH_BITS, own >> _HIGH_BITS


def wide(part: tuple[int, ...]) -> Sum:
    """What `narrow` was given."""
    entries, size, own = part[:3]
    if len(part) > 3:
        size, own = size + (part[3] << _HIGH_BITS), own + (part[4] << _HIGH_BITS)
    return entries, size, own


class Done(msgspec.Struct, frozen=True, array_like=True):
    """An item's result: sums by slot, narrow; at the end, a rank's profile, packed."""

    slots: dict[int, tuple[int, ...]] = {}
    profile: bytes = b""


class FileLines(msgspec.Struct, frozen=True, array_like=True, tag="listed"):
    """Lines of a list of files of a kind; `unlisted` paths are left out, as they have line ends."""

    kind: str
    lines: bytes
    unlisted: int


def added(a: Sum, b: Sum) -> Sum:
    """Two sums as one."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
