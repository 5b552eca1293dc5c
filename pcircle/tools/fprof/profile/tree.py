"""The directories of a profile down to a depth, for reports with ``-d``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from pcircle.tools.fprof.profile.groups import share, shown_path
from pcircle.tools.fprof.profile.model import MAX_DIRECTORIES, DirectoryRow, Profile

Key = tuple[int, bytes]


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


def below_of(rows: Sequence[DirectoryRow]) -> dict[Key | None, list[DirectoryRow]]:
    """Group directories by their parent, in the given order. The parent of a root is None."""
    below: defaultdict[Key | None, list[DirectoryRow]] = defaultdict(list)
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
