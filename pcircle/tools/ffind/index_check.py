"""The index of `--in`, and the position of each PATH in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.tools.ffind.language.formats import parse_format
from pcircle.tools.ffind.language.nodes import Node
from pcircle.tools.ffind.plan import Kept, Sections, Start
from pcircle.walk.index import (
    DIRECTORY,
    NAMES,
    Columns,
    Damaged,
    Index,
    Range,
    Section,
    is_below,
    key,
    place_of,
)
from pcircle.walk.roots import Root

_LIVE = frozenset(
    (
        "access", "xtype", "samefile", "fstype", "flags", "xattr", "xattrname", "acl", "capable",
        "layout_number", "pool", "released", "delete",
    )
)  # fmt: skip
_LIVE_LETTERS = frozenset("YZFB")


def is_live(node: Node) -> bool:
    """Return whether a primary needs data that an index does not have."""
    if node.name in ("exec", "execplus"):
        return bool(node.args[0])  # -execdir needs the directory of the entry
    if node.name in ("newer_than_file", "newer_than_date"):
        return bool(node.args[0] == "B")
    if node.name == "printf":
        pieces, _ = parse_format(bytes(node.args[1]), [])
        letters = {piece.letter for piece in pieces if piece.letter != "B" or piece.kind}
        return not letters.isdisjoint(_LIVE_LETTERS)
    return node.name in _LIVE


def kept(name: str, paths: Sequence[bytes], *, in_order: bool) -> tuple[Kept, tuple[Root, ...]]:
    """Return an index, and the roots of PATHs in it; without PATHs, all roots of the index.

    With `in_order`, one rank reads the index sequentially. UsageError.
    """
    named = path = os.path.abspath(os.fsencode(name))
    shown = show(os.fsencode(name))
    try:
        path = place_of(named)
        with closing(Index(path)) as index:
            ranges = index.verify()
            return _found(index, ranges, paths, in_order=in_order)
    except OSError as error:
        why = error.strerror or str(error)
        if path != named:
            why = f"'{show(path)}': {why}; a profile has one with --entries"
        raise UsageError(f"--in: cannot read '{shown}': {why}") from None
    except Damaged as error:
        raise UsageError(f"--in: '{shown}' is damaged or not an index: {error}") from None


def _found(
    index: Index, ranges: Sequence[Range], paths: Sequence[bytes], *, in_order: bool
) -> tuple[Kept, tuple[Root, ...]]:
    starts: list[Start] = []
    roots: list[Root] = []
    portions: list[tuple[int, int, int]] = []
    if not paths:
        starts = [Start(number, b"") for number in range(len(index.roots))]
        roots = [Root(b".", b"", root.shown) for root in index.roots]
    for path in paths:
        start = _start(index, ranges, path)
        starts.append(start)
        roots.append(Root(b".", start.name, path))
    for number, start in enumerate(starts):
        matching = _about(ranges, start.root, start.path)
        if in_order and matching:
            portions.append((number, matching[0].begin, matching[-1].end))
        else:
            portions += [(number, portion.begin, portion.end) for portion in matching]
    weight = 1.0 / max(1, len(portions))
    items = tuple(Sections(*portion, weight) for portion in portions)
    return Kept(index.path, index.digest, tuple(starts), items), tuple(roots)


def _about(ranges: Sequence[Range], root: int, path: bytes) -> list[Range]:
    """Return the ranges that may contain sections of a directory and its subdirectories."""
    wanted = key(root, path)
    depth = len(wanted[1])
    found = []
    for number, portion in enumerate(ranges):
        first = portion.key[0], portion.key[1][:depth]
        is_last = number + 1 == len(ranges)
        if first <= wanted and (is_last or ranges[number + 1].key >= wanted):
            found.append(portion)
    return found


def _start(index: Index, ranges: Sequence[Range], path: bytes) -> Start:
    """Return the position of a PATH in an index. UsageError."""
    shown = show(path)
    if not path:
        raise UsageError("empty file name")
    wanted = os.path.abspath(path)
    places = [
        (number, wanted[len(root.path.rstrip(b"/")) :].lstrip(b"/"))
        for number, root in enumerate(index.roots)
        if is_below(wanted, root.path.rstrip(b"/"))
    ]
    for root, below in places:
        above, _, name = below.rpartition(b"/")
        for section in _sections(index, ranges, root, above):
            if section.path == below and section.kind == DIRECTORY:
                if path.endswith(b"/") and not stat.S_ISDIR(section.status().st_mode):
                    raise UsageError(f"--in: '{shown}' is not a directory")
                return Start(root, below)
            is_above = section.path == above and section.kind == NAMES
            if is_above and name in Columns(section).names:
                if path.endswith(b"/"):
                    raise UsageError(f"--in: '{shown}' is not a directory")
                return Start(root, above, name)
    all_ = ", ".join(show(root.path) for root in index.roots[:4])
    raise UsageError(f"--in: '{shown}' is not in the index, which is of {all_}")


def _sections(index: Index, ranges: Sequence[Range], root: int, path: bytes) -> Iterator[Section]:
    for portion in _about(ranges, root, path):
        for section, _ in index.sections(portion.begin, portion.end):
            if section.root == root and is_below(section.path, path):
                yield section
