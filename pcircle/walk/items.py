"""The walk's units of work, as they travel between ranks.

An item is never one small directory: whoever has one goes on into what is found, and what is left
after some milliseconds is packed into items. Names are packed into one byte string (a name can't
contain NUL), so that a queue of a million names is a few thousand objects.

Every item names its directory by (root, path), see `pcircle.fs.directories`, and carries the
identities of that directory on both sides: if something else has the path by then, its entries
fail. `slot` is the number of the directory among those that were open in the item that made this
one: what comes of it counts there. An item that opens no directories hands its own number on to
what it makes. `weight` is a share of the job's 1.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from pcircle.fs.listed import Listed
from pcircle.guards import require
from pcircle.timestamps import Timestamp

I = TypeVar("I")  # noqa: E741 - item

Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

NOWHERE: Identity = (0, 0)


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which directory it is, in the source and, where there are two sides, in the target.

    `copy` is the root's own copy, which must not be copied in its turn, as it
    would be where a mount shows a part of the source in another place.
    `file_system` is the walk's own number of the source's file system. The
    target was made in `epoch`: what is done in it counts no sooner. `made` tells
    that this run has made it, and nobody else has put anything into it; `bare`
    that it hands down no access control list. `since` says what became of it since an earlier run,
    where that is known and counts.
    """

    source: tuple[int, int]
    target: tuple[int, int] = NOWHERE
    copy: tuple[int, int] = NOWHERE
    file_system: int = 0
    epoch: int = 0
    made: bool = False
    bare: bool = False
    since: int = 0


class Tree(msgspec.Struct, frozen=True, array_like=True, tag="d", gc=False):
    """Walk the directories of these names in the directory `path`, and all below them.

    Without names, and then without a place, it is the root itself. With `only` nothing of the one
    directory is meant but what that names. `ancestors`, where links are followed, are the
    identities of the directories on the path.
    """

    root: int
    path: bytes
    weight: float  # of each name
    names: bytes = b""
    place: Place | None = None
    slot: int = 0
    only: Listed | None = None
    ancestors: bytes = b""


class Portion(msgspec.Struct, frozen=True, array_like=True, tag="p", gc=False):
    """What a list names in a directory, of which this text is a part."""

    root: int
    path: bytes
    text: bytes
    weight: float
    place: Place
    slot: int
    ancestors: bytes = b""


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="b", gc=False):
    """Entries of a directory that are no directories; without a place where a root has its name."""

    root: int
    path: bytes
    files: bytes
    links: bytes
    weight: float  # of each name
    place: Place | None
    specials: bytes = b""
    slot: int = 0
    ancestors: bytes = b""


class Accesses(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """Device, inode, change time and access time of entries, for another rank."""

    entries: tuple[tuple[int, int, Timestamp, Timestamp], ...]


class Gather(msgspec.Struct, Generic[I], frozen=True, array_like=True, tag="sink"):
    """All work of a job whose records go to a sink: the parent of what it begins with."""

    items: tuple[I, ...]


class Seal(msgspec.Struct, frozen=True, array_like=True, tag="seal"):
    """End the part of the rank that this is posted to."""


class Merge(msgspec.Struct, frozen=True, array_like=True, tag="merge"):
    """Put a range in order: the keys from `low` on, to `high`, which the last range has not."""

    number: int
    low: bytes
    high: bytes | None


SINK_ITEMS = (Gather, Seal, Merge)
"""Those of `pcircle.walk.sink`."""


def unpack(packed: bytes) -> list[bytes]:
    """The names as bytes."""
    return packed.split(b"\0") if packed else []


def handed_back(item: Any, files: Sequence[bytes]) -> Iterable[Batch]:
    """What a slow batch has left, in two parts."""
    half = (len(files) + 1) // 2
    for part in (files[:half], files[half:]):
        if part:
            yield Batch(
                item.root,
                item.path,
                b"\0".join(part),
                b"",
                item.weight,
                require(item.place),
                b"",
                item.slot,
                item.ancestors,
            )
