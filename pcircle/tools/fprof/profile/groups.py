"""Groups of files by age, owner, extension and more, top lists, and lists of directories.

Each hard-linked file is registered at its home, a rank determined by hashing the inode. So the file
counts once even if several ranks find its names. The memory of a home is bounded
(`pcircle.fs.registry`): it stores only how many names of an inode are missing, and forgets the
inode when all names have been found.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from typing import NamedTuple, TypeVar

import msgspec

from pcircle.core.encoding import show
from pcircle.core.units import DAY_S
from pcircle.fs import registry
from pcircle.fs.attributes.owners import find_group_name, find_user_name
from pcircle.tools.fprof.profile.model import (
    DEEPEST,
    MAX_DIRECTORIES,
    DirectoryRow,
    FileRow,
    Profile,
)
from pcircle.tools.fprof.profile.sizes import bin_of, edge_of, rebin

_PACKED = struct.Struct("=QQIQQIIq")


class Claim(NamedTuple):
    """A message to the home of a hard-linked file, sent for each of its names.

    `volume` is the device number of the file system.
    """

    volume: int
    inode: int
    links: int
    size_bytes: int
    allocated_bytes: int
    uid: int
    gid: int
    modified_s: int

    def pack(self) -> bytes:
        """Return the claim as bytes of fixed length."""
        return _PACKED.pack(*self)


def unpack(packed: bytes) -> Iterator[Claim]:
    """Decode a concatenation of packed claims."""
    return map(Claim._make, _PACKED.iter_unpack(packed))


def home_of(claim: Claim, size: int) -> int:
    """Return the rank that registers the inode of a claim."""
    return registry.home_of((claim.volume, claim.inode), size)


AGES_DAYS = (1, 7, 30, 90, 180, 365, 730, 1825, 3650)
DIRECTORY_SIZES = (0, 1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 1 << 20, 1 << 24, 1 << 28)


class Group(msgspec.Struct, frozen=True):
    """Files with a common property.

    A group of `dirsize` counts directories instead of files, and entries instead of bytes.
    """

    label: str
    number: int
    bytes: int
    allocated_bytes: int
    number_share: float
    bytes_share: float


class TopFile(msgspec.Struct, frozen=True):
    """A file in a top list, with its size or its modification time."""

    path: str
    bytes: int | None = None
    modified: str | None = None


class DirectorySize(msgspec.Struct, frozen=True):
    """A directory, with the sums of its direct contents and of all contents (`all_`)."""

    path: str
    entries: int
    bytes: int
    all_entries: int
    all_bytes: int


class Top(msgspec.Struct, frozen=True):
    """The top lists of files and directories.

    Directories are ranked by their direct contents.
    """

    largest: tuple[TopFile, ...]
    newest: tuple[TopFile, ...]
    oldest: tuple[TopFile, ...]
    directories_by_bytes: tuple[DirectorySize, ...]
    directories_by_entries: tuple[DirectorySize, ...]


def share(part: float, whole: float) -> float:
    """Return the ratio of a part to a whole, rounded to six digits, or 0 if the whole is 0."""
    return round(part / whole, 6) if whole else 0.0


def groups(profile: Profile, dimension: str) -> tuple[Group, ...]:
    """Return the files of a profile grouped by a dimension, in the order of reports."""
    return _MAKE[dimension](profile)


def _made(rows: Sequence[tuple[str, Sequence[int]]]) -> tuple[Group, ...]:
    number = sum(tally[0] for _, tally in rows)
    total = sum(tally[1] for _, tally in rows)
    return tuple(
        Group(
            label,
            tally[0],
            tally[1],
            tally[2] if len(tally) > 2 else 0,
            share(tally[0], number),
            share(tally[1], total),
        )
        for label, tally in rows
        if any(tally)
    )


K = TypeVar("K", int, str)


def _largest_first(
    tallies: Mapping[K, list[int]],
    other: Sequence[int],
    label: Callable[[K], str],
) -> tuple[Group, ...]:
    ordered: list[tuple[K, list[int]]] = sorted(
        tallies.items(), key=lambda item: (-item[1][1], -item[1][0], item[0])
    )
    return _made([*((label(key), tally) for key, tally in ordered), ("(other)", other)])


@cache
def _owner(uid: int) -> str:
    return find_user_name(uid) or f"uid {uid}"


@cache
def _group(gid: int) -> str:
    return find_group_name(gid) or f"gid {gid}"


def _ages(profile: Profile) -> tuple[Group, ...]:
    """Return the files grouped by whole days since their last modification."""
    today = profile.taken_s // DAY_S
    rows = [[0, 0, 0] for _ in range(len(AGES_DAYS) + 2)]
    for day, tally in profile.ages.items():
        age = today - day
        place = 0 if age < 0 else 1 + sum(age >= edge for edge in AGES_DAYS)
        rows[place] = [a + b for a, b in zip(rows[place], tally, strict=True)]
    labels = ["in the future"]
    labels += [f"under {_days(edge)}" for edge in AGES_DAYS] + [f"{_days(AGES_DAYS[-1])} or more"]
    return _made(list(zip(labels, rows, strict=True)))


def _days(days: int) -> str:
    if days >= 365:
        return f"{days // 365} year{'s' if days >= 730 else ''}"
    return f"{days} day{'s' if days > 1 else ''}"


def directory_sizes(profile: Profile, edges: Sequence[int] = DIRECTORY_SIZES) -> tuple[Group, ...]:
    """Return directories by number of entries, with edges rounded up to those of fine bins."""
    edges = sorted({edge_of(bin_of(edge)) for edge in edges})
    rows = [row or [0, 0] for row in rebin(profile.directory_sizes, edges)]
    names = {0: "empty", 1: "1 entry"}
    labels = [names.get(edge, f"up to {edge:,} entries") for edge in edges]
    return _made(list(zip([*labels, f"more than {edges[-1]:,}"], rows, strict=True)))


def _depth(depth: int) -> str:
    return f"{depth} or more" if depth >= DEEPEST else str(depth)


_MAKE: dict[str, Callable[[Profile], tuple[Group, ...]]] = {
    "age": _ages,
    "owner": lambda p: _largest_first(p.owners, p.other_owners, _owner),
    "group": lambda p: _largest_first(p.groups, p.other_groups, _group),
    "ext": lambda p: _largest_first(
        p.extensions, p.other_extensions, lambda key: f".{key}" if key else "(none)"
    ),
    "depth": lambda p: _made([(_depth(depth), p.depths[depth]) for depth in sorted(p.depths)]),
    "dirsize": directory_sizes,
    "stripe": lambda p: _largest_first(p.stripes, p.other_stripes, str),
}


def top_of(profile: Profile, most: int) -> Top:
    """Return the top lists of a profile, with at most `most` rows each."""
    roots = profile.roots

    def sized(row: FileRow) -> TopFile:
        return TopFile(shown_path(roots, row.root, row.path), bytes=row.value)

    def dated(row: FileRow) -> TopFile:
        return TopFile(shown_path(roots, row.root, row.path), modified=moment(row.value))

    return Top(
        largest=tuple(map(sized, profile.largest[:most])),
        newest=tuple(map(dated, profile.newest[:most])),
        oldest=tuple(map(dated, profile.oldest[:most])),
        directories_by_bytes=tuple(directory_of(roots, row) for row in profile.heavy[:most]),
        directories_by_entries=tuple(directory_of(roots, row) for row in profile.wide[:most]),
    )


def directory_of(roots: tuple[bytes, ...], row: DirectoryRow) -> DirectorySize:
    """Return a directory as shown in reports."""
    path = shown_path(roots, row.root, row.path)
    return DirectorySize(path, row.own_entries, row.own_bytes, row.entries, row.size_bytes)


def shown_path(roots: tuple[bytes, ...], root: int, path: bytes) -> str:
    """Return a path for reports. It begins with the PATH of the command line."""
    return show(roots[root].rstrip(b"/") + b"/" + path if path else roots[root])


def moment(seconds: int) -> str:
    """Return a time in UTC, or the number of seconds since 1970 if it is out of range."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"


# ---- directories down to a depth (-d) ------------------------------------------------------------

_DirectoryKey = tuple[int, bytes]


class Branch(msgspec.Struct, frozen=True):
    """A directory `depth` levels below its PATH, with the sums of all its contents.

    `share` is the directory's fraction of all bytes.
    """

    path: str
    depth: int
    entries: int
    bytes: int
    share: float


class DirectoryTree(msgspec.Struct, frozen=True):
    """Directories, each followed by its subdirectories in descending order of size.

    If the tree is not `complete`, each omitted directory contains at most `omitted_bytes`.
    """

    directories: tuple[Branch, ...]
    complete: bool
    omitted_bytes: int


def tree_of(profile: Profile, levels: range) -> DirectoryTree:
    """Return the directories of these levels below their PATHs."""
    rows = [row for row in profile.weights if row.depth < levels.stop]
    total = sum(row.size_bytes for row in profile.weights if not row.path)
    found = [
        Branch(
            shown_path(profile.roots, row.root, row.path),
            row.depth,
            row.entries,
            row.size_bytes,
            share(row.size_bytes, total),
        )
        for row in _in_order(rows)
        if row.depth in levels
    ]
    weights = profile.weights
    complete = len(weights) < MAX_DIRECTORIES
    return DirectoryTree(tuple(found), complete, 0 if complete else weights[-1].size_bytes)


def below_of(rows: Sequence[DirectoryRow]) -> dict[_DirectoryKey | None, list[DirectoryRow]]:
    """Group directories by their parent, in the given order. The parent of a root is None."""
    below: defaultdict[_DirectoryKey | None, list[DirectoryRow]] = defaultdict(list)
    for row in rows:
        above = (row.root, row.path.rpartition(b"/")[0]) if row.path else None
        below[above].append(row)
    return below


def _in_order(rows: Sequence[DirectoryRow]) -> Iterator[DirectoryRow]:
    """Yield each directory before its subdirectories; omit directories without a listed parent."""
    below = below_of(rows)
    waiting = below[None][::-1]
    while waiting:
        row = waiting.pop()
        yield row
        waiting += below.get((row.root, row.path), [])[::-1]
