"""-printf for all names of a directory at once, for formats that need only columns.

With single entries, each directive is a call and each status an object, which triples the total
time of a search. Here each directive is a column of the table that the kernel filled
(`pcircle.fs.stats`), and one operation formats all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import add
from typing import NamedTuple

import msgspec

from pcircle.core.timestamps import NS_PER_S
from pcircle.tools.ffind.eval.columns import StatusColumns
from pcircle.tools.ffind.eval.line_formats import GROUPS, MODES, USERS, WITH_NS, time_text
from pcircle.tools.ffind.language.formats import FormatPiece, parse_format

_MAX_KNOWN = 1 << 14  # seconds; a full cache is cleared
_NUMBERS = {
    "b": "blocks",
    "i": "inode",
    "n": "links",
    "s": "size",
    "G": "gid",
    "U": "uid",
}
_OF_NAME = "pPfhHdy"
_TIMES = {"A": "atime", "C": "ctime", "T": "mtime"}


class DirectoryContext(NamedTuple):
    """The directory that contains the names, and their kind; see `FindEntry`.

    If the names are in several subdirectories, `holders` has the subdirectory of each name, with a
    slash.
    """

    prefix: bytes
    below: bytes
    start: bytes
    depth: int
    kind: str
    holders: Sequence[bytes] = ()

    def inside(self, names: Sequence[bytes]) -> Sequence[bytes]:
        """Return the paths of names relative to the directory."""
        return list(map(add, self.holders, names)) if self.holders else names


Column = Callable[
    [DirectoryContext, Sequence[bytes], StatusColumns, Sequence[int]], Iterable[object]
]
"""A function from the rows of names to values."""


class FormatPart(msgspec.Struct, frozen=True):
    """A directive in the template, and the columns that fill it."""

    template: Callable[[DirectoryContext], bytes]
    columns: Sequence[Column] = ()


class BulkFormat:
    """A format for many names. With `looks`, the names must be looked up."""

    def __init__(self, pieces: Sequence[FormatPiece]) -> None:
        self._parts = list(map(_part, pieces))
        self.looks = any(piece.letter not in _OF_NAME for piece in pieces if piece.letter)

    def text(
        self,
        where: DirectoryContext,
        names: Sequence[bytes],
        stats: StatusColumns,
        places: Sequence[int],
    ) -> bytes:
        """Return the text of all names."""
        template = b"".join(part.template(where) for part in self._parts) * len(names)
        columns = [
            column(where, names, stats, places) for part in self._parts for column in part.columns
        ]
        # The template repeats once for each entry, so one operation formats all entries in order.
        return template % tuple(chain.from_iterable(zip(*columns, strict=False)))


def bulk_of(text: bytes) -> BulkFormat | None:
    """Return a bulk format if all directives permit it, otherwise None."""
    pieces, _ = parse_format(text, [])
    return BulkFormat(pieces) if all(map(_is_plain, pieces)) else None


def _is_plain(piece: FormatPiece) -> bool:
    if piece.flags:
        return False
    if piece.kind:
        return piece.letter in _TIMES
    return not piece.letter or piece.letter in _OF_NAME or piece.letter in {*_NUMBERS, *"kmMug"}


def _part(piece: FormatPiece) -> FormatPart:
    letter = piece.letter
    if not letter:
        return _constant(piece.text)
    if piece.kind == "@":
        name = _TIMES[letter]
        return FormatPart(
            lambda where: b"%d.%09d0", [_numbers(name, None), _numbers(f"{name}_ns", None)]
        )
    if piece.kind:
        return FormatPart(lambda where: b"%b", [_times(_TIMES[letter], piece.kind)])
    if letter in _OF_NAME:
        return _of_name(letter)
    if letter in _NUMBERS:
        return FormatPart(lambda where: b"%d", [_numbers(_NUMBERS[letter], None)])
    changed: dict[str, tuple[bytes, str, Callable[[int], object]]] = {
        "k": (b"%d", "blocks", lambda blocks: (blocks + 1) // 2),
        "m": (b"%o", "mode", (0o7777).__and__),
        "M": (b"%b", "mode", MODES.__getitem__),
        "u": (b"%b", "uid", USERS.__getitem__),
        "g": (b"%b", "gid", GROUPS.__getitem__),
    }
    template, name, change = changed[letter]
    return FormatPart(lambda where: template, [_numbers(name, change)])


def _constant(text: bytes) -> FormatPart:
    escaped = _escaped(text)
    return FormatPart(lambda where: escaped)


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _of_name(letter: str) -> FormatPart:
    if letter == "f":
        return FormatPart(lambda where: b"%b", [_names])
    if letter in "pP":
        return FormatPart(_path if letter == "p" else _path_below, [_holders, _names])
    if letter == "h":
        return FormatPart(lambda where: _escaped(where.prefix[:-1]) + b"%b", [_holders_below])
    same: dict[str, Callable[[DirectoryContext], bytes]] = {
        "H": lambda where: where.start,
        "d": lambda where: b"%d" % where.depth,
        "y": lambda where: where.kind.encode(),
    }
    of = same[letter]
    return FormatPart(lambda where: _escaped(of(where)))


def _path(where: DirectoryContext) -> bytes:
    return _escaped(where.prefix) + b"%b%b"


def _path_below(where: DirectoryContext) -> bytes:
    return (_escaped(where.below) + b"/" if where.below else b"") + b"%b%b"


def _names(
    where: DirectoryContext, names: Sequence[bytes], stats: StatusColumns, places: Sequence[int]
) -> Iterable[bytes]:
    return names


def _holders(
    where: DirectoryContext, names: Sequence[bytes], stats: StatusColumns, places: Sequence[int]
) -> Iterable[bytes]:
    return where.holders or repeat(b"", len(names))


def _holders_below(
    where: DirectoryContext, names: Sequence[bytes], stats: StatusColumns, places: Sequence[int]
) -> Iterable[bytes]:
    """Return the paths between the directory and the names, with a leading slash."""
    if where.holders:
        return [b"/" + holder[:-1] for holder in where.holders]
    return repeat(b"", len(names))


def _numbers(name: str, change: Callable[[int], object] | None) -> Column:
    def column(
        where: DirectoryContext, names: Sequence[bytes], stats: StatusColumns, places: Sequence[int]
    ) -> Iterable[object]:
        return _chosen(stats.column(name, 0, places[-1] + 1), places, change)

    return column


def _times(name: str, kind: str) -> Column:
    text = _times_text(kind)

    def column(
        where: DirectoryContext, names: Sequence[bytes], stats: StatusColumns, places: Sequence[int]
    ) -> Iterable[object]:
        times = stats.times_ns(name, 0, places[-1] + 1)
        return _chosen(times, places, text)

    return column


def _times_text(kind: str) -> Callable[[int], bytes]:
    if kind in WITH_NS:
        return lambda time_ns: time_text(time_ns, kind)
    known: dict[int, bytes] = {}  # by second

    def text(time_ns: int) -> bytes:
        second = time_ns // NS_PER_S
        found = known.get(second)
        if found is None:
            if len(known) > _MAX_KNOWN:
                known.clear()
            found = known[second] = time_text(time_ns, kind)
        return found

    return text


def _chosen(
    found: list[int], places: Sequence[int], change: Callable[[int], object] | None
) -> Iterable[object]:
    chosen = found if len(found) == len(places) else map(found.__getitem__, places)
    return chosen if change is None else map(change, chosen)
