"""The plan of a profile, which rank 0 decides for all ranks.

In addition to the items of the walk, a profile has items for names of any kind, for ranges of a
list, and for claims to hard-linked files.
"""

import os
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.fs.path_list_slice import PathListSlice
from pcircle.jobs.tree_task import TreePlan, resolve_root
from pcircle.walk.items import Batch, Gather, Merge, Seal, Tree
from pcircle.walk.roots import Root


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
    only: PathListSlice
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


class ProfileResult(msgspec.Struct, frozen=True, array_like=True):
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


class ProfilePlan(TreePlan, frozen=True, kw_only=True):
    """The roots and the resolved options.

    `volumes` has the same number for roots on the same file system. `facets` are the sums in
    addition to sizes, `top` is the length of top lists, and `edges` are the edges of an exact
    histogram. `pieces` is the size of the sample to compress. `index` is the path prefix of the
    parts of an index; each of the `ranks` appends its number. `lists` are the requested lists of
    files, with their terminator.
    """

    volumes: tuple[int, ...]
    facets: tuple[str, ...] = ()
    top: int = 1
    edges: tuple[int, ...] = ()
    pieces: int = 0
    index: bytes | None = None
    lists: tuple[str, ...] = ()
    list_end: bytes = b"\n"
    ranks: int = 1


def index_of(save: str) -> str:
    """Return the name of the index file that belongs to a profile."""
    from pcircle.walk.index import ENDING  # imported late, as few runs write an index

    return save + os.fsdecode(ENDING)


def resolve(paths: Sequence[bytes]) -> tuple[tuple[Root, ...], tuple[int, ...]]:
    """Return the roots, and the numbers of their file systems. Symbolic links are followed.

    Raise UsageError if a root does not exist, or if a root contains another root, whose entries
    would count twice.
    """
    found = [resolve_root(path, "profile") for path in paths]
    real = [os.path.realpath(path) for path in paths]
    places: dict[bytes, int] = {}
    for place, path in enumerate(real):
        if places.setdefault(path, place) != place:
            raise UsageError(f"'{show(paths[place])}' is in '{show(paths[places[path]])}'")
    for place, path in enumerate(real):
        outer = path
        while outer != b"/":
            outer = os.path.dirname(outer)
            if outer in places:
                raise UsageError(f"'{show(paths[place])}' is in '{show(paths[places[outer]])}'")
    same: dict[tuple[int, int], int] = {}
    for place, (root, status) in enumerate(found):
        # Bind mounts give a directory a second path. Files may repeat, as hard links count once.
        other = same.setdefault((status.st_dev, status.st_ino), place)
        if other != place and not root.name:
            raise UsageError(f"'{show(paths[place])}' is '{show(paths[other])}'")
    devices = [status.st_dev for _, status in found]
    return tuple(root for root, _ in found), tuple(map(devices.index, devices))
