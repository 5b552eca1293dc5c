"""fprof's units of work, as they travel between ranks, and what comes back of them.

A directory with all below it, some hundred names in one directory, claims to hard-linked files.
Whoever walks a part of the tree goes on by itself for some milliseconds and gives away what is
left then: so an item of a tree of small directories is many of them, and no message is sent for a
directory of three files. `slot` is the directory, among those that are open in the item that made
this one, in which its results count.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TypeAlias

import msgspec

from pcircle.fs.listed import Listed


class Tree(msgspec.Struct, frozen=True, array_like=True, tag="d", gc=False):
    """Profile directories in the directory `path`, and all below them; without names itself.

    Names are joined by NUL; `mount` is the mount point that the directory is under.
    """

    root: int
    path: bytes
    names: bytes
    weight: float  # of each name
    slot: int
    mount: bytes = b""


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="b", gc=False):
    """Profile entries of one directory; names are joined by NUL.

    `any` are of any kind, directories too, which are then not entered.
    """

    root: int
    path: bytes
    files: bytes
    links: bytes
    specials: bytes
    weight: float  # of each name
    slot: int
    mount: bytes = b""
    any: bytes = b""


class Lines(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Profile what a list names; `only` is a range of it, which rank 0 keeps."""

    root: int
    only: Listed
    weight: float


class Claims(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Names of files with several names, for the rank that knows which were seen: see `Claim`."""

    packed: bytes


Item: TypeAlias = Tree | Batch | Lines | Claims


class Failure(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """An entry that could not be looked at: what was tried, on which path, and why.

    `path` is as the user knows it, `entry` the path below root number `root`. Where the
    system has no `errno` for it, there is a `kind` of `pcircle.fs.trouble`.
    """

    path: bytes
    doing: str
    errno: int | None
    reason: str
    root: int
    entry: bytes
    kind: str = ""


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


def added(a: Sum, b: Sum) -> Sum:
    """Two sums as one."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def total_of(parts: Iterable[Sum]) -> Sum:
    """All of these as one sum."""
    return reduce(added, parts, (0, 0, 0))


def split(packed: bytes) -> list[bytes]:
    """The names of an item, as it carries them."""
    return packed.split(b"\0") if packed else []
