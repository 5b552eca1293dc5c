"""The work items of fsum that travel between ranks, in addition to those of the walk.

The items are a large file to divide into chunks, and a chunk, each with its share of the job's
`weight` of 1. Items that return to a directory or a file carry its identity (device, inode). If the
name belongs to another entry by then, the item fails.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from typing import TypeAlias

import msgspec

from pcircle.jobs.failures import Failure, Recalled
from pcircle.walk.items import Batch, Identity, Place, Portion, Tree
from pcircle.walk.sink import Gather, Merge, Seal


class Large(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Sign one file in chunks."""

    root: int
    path: bytes
    name: bytes
    weight: float
    place: Place | None
    slot: int


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Read a range of a file. `sparse` means that it has holes to look for."""

    root: int
    path: bytes
    name: bytes
    file: Identity
    offset: int
    length: int
    weight: float
    sparse: bool


Item: TypeAlias = Tree | Portion | Batch | Large | Chunk | Gather[Tree | Batch] | Seal | Merge


class Difference(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """An entry that differs from the manifest: "changed", "missing", "new" or "corrupt"."""

    what: str
    path: bytes


class Digest(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """The digest of a whole file, in hexadecimal; `path` begins as the user typed it."""

    path: bytes
    digest: bytes


Notice: TypeAlias = Failure | Recalled | Difference


class Part(msgspec.Struct, frozen=True, array_like=True):
    """The entries of a part of a directory; see `pcircle.ops.digest.signer.Result`."""

    runs: tuple[bytes, ...] = ()
    spilled: tuple[tuple[int, int], ...] = ()
    signed: int = 0
    blocks: bytes = b""


NOTHING = Part()


class Done(msgspec.Struct, frozen=True, array_like=True):
    """The result of an item: parts by the slot of their directory.

    The result of a chunk also has the `blocks` of its file, or the `cause` of a failure.
    """

    slots: dict[int, Part] = {}
    cause: Failure | None = None
    blocks: bytes = b""

    @property
    def roots(self) -> Part:
        """Return the entries of the roots, at the end of a job."""
        return self.slots.get(0, NOTHING)
