"""The items of a profile in addition to the items of the walk, and the results of all items.

They are names of any kind, ranges of a list, and claims to hard-linked files.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from typing import TypeAlias

import msgspec

from pcircle.fs.path_list_slice import Listed
from pcircle.walk.items import Batch, Gather, Merge, Seal, Tree


class Mixed(msgspec.Struct, frozen=True, array_like=True, tag="m", gc=False):
    """Profile names of any kind in the directory `path`, without entering directories.

    Names are separated by NUL. They do not count for the directory.
    """

    root: int
    path: bytes
    names: bytes
    weight: float  # of each name
    place: None = None
    slot: int = 0


class Lines(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Profile the entries of a list. Rank 0 has the list, and `only` is a range of it."""

    root: int
    only: Listed
    weight: float


class Claims(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Names of hard-linked files, for the rank that registers these files; see `Claim`."""

    packed: bytes


Item: TypeAlias = (
    Tree | Batch | Mixed | Lines | Claims | Gather[Tree | Mixed | Lines] | Seal | Merge
)


Sum: TypeAlias = tuple[int, int, int]
"""Entries and bytes of a part of a directory, and the bytes directly in it."""

_HIGH_BITS = 60


def narrow(part: Sum) -> tuple[int, ...]:
    """Encode a sum for a message: a number that may exceed 64 bits becomes two numbers."""
    entries, size, own = part
    if (size | own) >> _HIGH_BITS == 0:
        return part
    low = (1 << _HIGH_BITS) - 1
    return entries, size & low, own & low, size >> _HIGH_BITS, own >> _HIGH_BITS


def wide(part: tuple[int, ...]) -> Sum:
    """Decode a sum of `narrow`."""
    entries, size, own = part[:3]
    if len(part) > 3:
        size, own = size + (part[3] << _HIGH_BITS), own + (part[4] << _HIGH_BITS)
    return entries, size, own


class Done(msgspec.Struct, frozen=True, array_like=True):
    """The result of an item: sums by slot and, at the end of the job, a rank's packed profile."""

    slots: dict[int, tuple[int, ...]] = {}
    profile: bytes = b""


class FileLines(msgspec.Struct, frozen=True, array_like=True, tag="listed"):
    """Lines of a list of files. `unlisted` counts paths that contain the terminator."""

    kind: str
    lines: bytes
    unlisted: int


def added(a: Sum, b: Sum) -> Sum:
    """Return the sum of two sums."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
