"""The walk's units of work, as they travel between ranks.

An item is never one small directory: the rank that holds a directory continues into it, and what is
left after some milliseconds is packed into items. Names are packed into one byte string (a name
cannot contain NUL), so a queue of a million names is a few thousand objects.

Every item names its directory by (root, path), see `pcircle.fs.directories`, and carries the
identities of that directory on both sides: if another directory has the path by then, its entries
fail. `slot` is the number of the directory among the open ones of the item that made this one, to
which results belong. An item that opens no directories passes its own number on. `weight` is a
share of the job's 1.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from pcircle.core.errors import require
from pcircle.core.units import Timestamp
from pcircle.fs.path_list_slice import PathListSlice

I = TypeVar("I")  # noqa: E741 - item

Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

NOWHERE: Identity = (0, 0)


class DirectoryIdentity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity of a directory in the source and, with two sides, in the target.

    `copy` is the root's own copy, which must not be copied again, as it would be where a mount
    shows a part of the source elsewhere. `file_system` is the walk's own number of the source's
    file system. The target was made in `epoch`: work in it counts no sooner. `made` means that this
    run has made it, and no other process fills it; `bare` that it has no default access control
    list. `since` is its state since an earlier run, if known and relevant.
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
    """Walk the directories of these names in the directory `path`, and everything below them.

    Without names, and then without a place, it is the root itself. With `only` the one directory is
    restricted to its listed paths. `ancestors`, if links are followed, are the identities of the
    directories on the path.
    """

    root: int
    path: bytes
    weight: float  # of each name
    names: bytes = b""
    place: DirectoryIdentity | None = None
    slot: int = 0
    only: PathListSlice | None = None
    ancestors: bytes = b""


class Portion(msgspec.Struct, frozen=True, array_like=True, tag="p", gc=False):
    """Process the listed entries of a directory, of which this text is a part."""

    root: int
    path: bytes
    text: bytes
    weight: float
    place: DirectoryIdentity
    slot: int
    ancestors: bytes = b""


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="b", gc=False):
    """Process entries other than directories; without a place, in the parent of a root."""

    root: int
    path: bytes
    files: bytes
    links: bytes
    weight: float  # of each name
    place: DirectoryIdentity | None
    specials: bytes = b""
    slot: int = 0
    ancestors: bytes = b""


WalkItem: TypeAlias = Tree | Batch
"""The items that every walk makes; a walk with lists also makes a `Portion`."""


class Accesses(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """Device, inode, change time and access time of entries, for another rank."""

    entries: tuple[tuple[int, int, Timestamp, Timestamp], ...]


class Gather(msgspec.Struct, Generic[I], frozen=True, array_like=True, tag="sink"):
    """The whole work of a job whose records go to a sink: the parent of its first items."""

    items: tuple[I, ...]


class Seal(msgspec.Struct, frozen=True, array_like=True, tag="seal"):
    """End the part of the rank to which this is posted."""


class Merge(msgspec.Struct, frozen=True, array_like=True, tag="merge"):
    """Sort a range: the keys from `low` to `high`; the last range has no `high`."""

    number: int
    low: bytes
    high: bytes | None


SINK_ITEMS = (Gather, Seal, Merge)
"""The items of `pcircle.walk.segments`."""


def unpack(packed: bytes) -> list[bytes]:
    """Return the names as bytes."""
    return packed.split(b"\0") if packed else []


def handed_back(item: Any, files: Sequence[bytes]) -> Iterable[Batch]:
    """Return the rest of a slow batch in two parts."""
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
