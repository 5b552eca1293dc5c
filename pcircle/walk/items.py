"""The walk's units of work, as they travel between ranks.

A small directory is usually not an item by itself. The rank that has read a directory also walks
its subdirectories, and packs those that remain after some milliseconds into items. The names in an
item are joined into one byte string, separated by NUL, which no name contains. A queue of a million
names thus consists of only a few thousand objects.

Every item identifies its directory by (root, path) as in `pcircle.fs.directories`, and carries the
identities of that directory on both sides. If another directory has taken the path before the item
is processed, the item's entries fail. `slot` is the number of the directory among those that are
open in the parent item; results are merged into that directory. An item that opens no directories
passes its own `slot` on to the items that it spawns. `weight` is a fraction of the whole job, whose
weight is 1.
"""

# Annotations are not deferred, because msgspec would compile each of them on every rank.
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from pcircle.core.units import Timestamp
from pcircle.fs.scan import PathListSlice

I = TypeVar("I")  # noqa: E741 - item

Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

NOWHERE: Identity = (0, 0)


class DirectoryIdentity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity of a directory in the source and, if there is one, in the target.

    `copy` is the copy of the root, which must not be copied into itself if a mount shows it within
    the source. `file_system` is the number that the walk has assigned to the source's file system.
    `epoch` is the latest epoch in which the target or one of its parents was created; work in the
    target belongs to no earlier epoch. `made` means that this run has created the target and no
    other process fills it, and `bare` that the target has no default access control list. `since`
    states how the directory has changed since an earlier run, if that is known and relevant.
    """

    source: tuple[int, int]
    target: tuple[int, int] = NOWHERE
    copy: tuple[int, int] = NOWHERE
    file_system: int = 0
    epoch: int = 0
    made: bool = False
    bare: bool = False
    since: int = 0


ANYWHERE = DirectoryIdentity(NOWHERE)
"""The place of names in any directory, such as the parent of a root; it is not checked."""
UNREACHED = DirectoryIdentity((-1, -1), (-1, -1))
"""The place of a directory that has not been entered. It matches no directory."""


def source_of(place: DirectoryIdentity) -> Identity | None:
    """Return the identity of a place's source, or None if any directory is accepted."""
    return None if place is ANYWHERE or place == ANYWHERE else place.source


def target_of(place: DirectoryIdentity) -> Identity | None:
    """Return the identity of a place's target, or None if any directory is accepted."""
    return None if place is ANYWHERE or place == ANYWHERE else place.target


class Tree(msgspec.Struct, frozen=True, array_like=True, tag="d", gc=False):
    """Walk the subdirectories with these names in the directory `path`, and everything below them.

    If there are no names, the item is the root itself, whose parent is not checked. If `only` is
    given, the item is one directory, which is restricted to these listed paths. If links are
    followed, `ancestors` contains the identities of the directories on the path.
    """

    root: int
    path: bytes
    weight: float  # of each name
    names: bytes = b""
    place: DirectoryIdentity = ANYWHERE
    slot: int = 0
    only: PathListSlice | None = None
    ancestors: bytes = b""


class Portion(msgspec.Struct, frozen=True, array_like=True, tag="p", gc=False):
    """Process some of the listed entries of a directory; `text` is that part of the list."""

    root: int
    path: bytes
    text: bytes
    weight: float
    place: DirectoryIdentity
    slot: int
    ancestors: bytes = b""


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="b", gc=False):
    """Process entries, other than directories, of one directory or of a root's parent."""

    root: int
    path: bytes
    files: bytes
    links: bytes
    weight: float  # of each name
    place: DirectoryIdentity
    specials: bytes = b""
    slot: int = 0
    ancestors: bytes = b""


WalkItem: TypeAlias = Tree | Batch
"""The items that every walk creates. A walk with lists also creates `Portion` items."""


class Accesses(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """The device, inode, change time and access time of each entry, sent to another rank."""

    entries: tuple[tuple[int, int, Timestamp, Timestamp], ...]


class Gather(msgspec.Struct, Generic[I], frozen=True, array_like=True, tag="sink"):
    """The parent of the first items of a job that writes its records to a sink."""

    items: tuple[I, ...]


class Seal(msgspec.Struct, frozen=True, array_like=True, tag="seal"):
    """End the part of the rank to which this item is posted."""


class Merge(msgspec.Struct, frozen=True, array_like=True, tag="merge"):
    """Sort the records with keys from `low` to `high`. The last range has no `high`."""

    number: int
    low: bytes
    high: bytes | None


SINK_ITEMS = (Gather, Seal, Merge)
"""The items of `pcircle.walk.segments`."""


def unpack(packed: bytes) -> list[bytes]:
    """Return the names in a packed byte string."""
    return packed.split(b"\0") if packed else []


def handed_back(item: Any, files: Sequence[bytes]) -> Iterable[Batch]:
    """Yield the remaining files of a slow batch, in at most two batches."""
    half = (len(files) + 1) // 2
    for part in (files[:half], files[half:]):
        if part:
            yield Batch(
                item.root,
                item.path,
                b"\0".join(part),
                b"",
                item.weight,
                item.place,
                b"",
                item.slot,
                item.ancestors,
            )
