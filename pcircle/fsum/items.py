"""fsum's units of work, as they travel between ranks.

A directory to scan, some hundred names in one directory, a large file to cut
into chunks, a chunk; each with its share of the job's `weight` of 1. Items that
come back to a directory or a file carry its identity (device, inode): if
something else has that name by then, the entry fails.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from pcircle.fs.listed import Listed

Identity: TypeAlias = tuple[int, int]


class Tree(msgspec.Struct, frozen=True, array_like=True, tag="d", gc=False):
    """Sign a directory and all below it. `above` is the directory it lies in, None for a root.

    With `only` nothing of it is signed but what that names.
    """

    root: int
    path: bytes
    weight: float
    above: Identity | None = None
    only: Listed | None = None


class Portion(msgspec.Struct, frozen=True, array_like=True, tag="p", gc=False):
    """Sign what a list names in a directory, of which this text is a part."""

    root: int
    path: bytes
    text: bytes
    weight: float
    directory: Identity


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="b", gc=False):
    """Sign entries of one directory that are no directories; names are joined by NUL."""

    root: int
    path: bytes
    files: bytes
    links: bytes
    specials: bytes
    weight: float  # of each name
    directory: Identity | None  # None: where a root has its name


class Large(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Sign one file by its chunks."""

    root: int
    path: bytes
    name: bytes
    weight: float
    directory: Identity | None


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Read a range of a file. `sparse`: it has holes, which are worth looking for."""

    root: int
    path: bytes
    name: bytes
    file: Identity
    offset: int
    length: int
    weight: float
    sparse: bool


Item: TypeAlias = Tree | Portion | Batch | Large | Chunk


class Failure(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """An entry that could not be signed: what was tried, on which path, and why.

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


class Difference(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """An entry that is not as the manifest says: "changed", "missing", "new" or "corrupt"."""

    what: str
    path: bytes


class Digest(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """The digest of a whole file, in hexadecimal; `path` as the user would name it."""

    path: bytes
    digest: bytes


Notice: TypeAlias = Failure | Difference


class Done(msgspec.Struct, frozen=True, array_like=True):
    """An item's result, see `pcircle.signature.signer.Result`.

    `cause` says, for the chunks of a file, why it could not be read.
    """

    cause: Failure | None = None
    runs: tuple[bytes, ...] = ()
    shelved: tuple[tuple[int, int], ...] = ()
    signed: int = 0
    blocks: bytes = b""
