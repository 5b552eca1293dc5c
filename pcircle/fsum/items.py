"""fsum's units of work, as they travel between ranks, besides those of the walk.

A large file to cut into chunks, a chunk; each with its share of the job's `weight` of 1. Items
that come back to a directory or a file carry its identity (device, inode): if something else has
that name by then, the entry fails.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from typing import TypeAlias

import msgspec

from pcircle.tool.failures import Failure, Recalled
from pcircle.walk.items import Batch, Identity, Place, Portion, Tree
from pcircle.walk.sink import Gather, Merge, Seal


class Large(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Sign one file by its chunks."""

    root: int
    path: bytes
    name: bytes
    weight: float
    place: Place | None
    slot: int


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


Item: TypeAlias = Tree | Portion | Batch | Large | Chunk | Gather[Tree | Batch] | Seal | Merge


class Difference(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """An entry that differs from the manifest: "changed", "missing", "new" or "corrupt"."""

    what: str
    path: bytes


class Digest(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """The digest of a whole file, in hexadecimal; `path` as the user would name it."""

    path: bytes
    digest: bytes


Notice: TypeAlias = Failure | Recalled | Difference


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What came of a part of a directory: its entries, see `pcircle.signature.signer.Result`."""

    runs: tuple[bytes, ...] = ()
    spilled: tuple[tuple[int, int], ...] = ()
    signed: int = 0
    blocks: bytes = b""


NOTHING = Part()


class Done(msgspec.Struct, frozen=True, array_like=True):
    """An item's result: parts by the slot of their directory.

    Of a chunk it is the `blocks` of its file, or the `cause` why it could not be read.
    """

    slots: dict[int, Part] = {}
    cause: Failure | None = None
    blocks: bytes = b""

    @property
    def roots(self) -> Part:
        """Of a whole job: the entries of the roots."""
        return self.slots.get(0, NOTHING)
