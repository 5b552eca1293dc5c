"""Tests of status, and -printf, for all names of a directory at once.

Both work on columns of the status table that the kernel filled (`pcircle.fs.stats`). Tests compare
columns as numbers, and no object is created for an entry that fails a test.

-printf works on columns if the format needs nothing else. If entries were formatted one by one,
each directive would be a call and each status an object. A search would then take three times as
long. Here each directive is a column of the table, and one operation formats all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import add
from typing import NamedTuple, Protocol

import msgspec

from pcircle.core.units import MIN_NS, NS_PER_S, Timestamp
from pcircle.tools.ffind.eval.checks import (
    FIELD_OF_NUMBER,
    EvaluationContext,
    compared,
    fits_size,
    limits_ns,
    permitted,
)
from pcircle.tools.ffind.eval.entry import TIMES, Status
from pcircle.tools.ffind.eval.output import GROUPS, MODES, USERS, WITH_NS, time_text
from pcircle.tools.ffind.language.formats import FormatPiece, parse_format
from pcircle.tools.ffind.plan import ExpressionNode


class StatusColumns(Protocol):
    """The status of names by column, as in `pcircle.fs.stats.Stats`."""

    def look(self, directory_fd: int, names: Sequence[bytes], /) -> None: ...
    def column(self, name: str, start: int, stop: int, /) -> list[int]: ...
    def times_ns(self, name: str, start: int, stop: int, /) -> list[int]: ...


class Prefetch(Protocol):
    """Looks up names before they are evaluated, as `StatPrefetch` does."""

    @property
    def is_known(self) -> bool: ...
    def look(self, directory_fd: int, names: Sequence[bytes], /) -> Sequence[Status | None]: ...
    def done(self, count: int, /) -> None: ...


# ---- tests ---------------------------------------------------------------------------------------

Choose = Callable[[StatusColumns, Sequence[int]], Sequence[int]]
"""A function from the rows of names to the rows that pass a test."""


def chosen_by_column(node: ExpressionNode, kind: str, context: EvaluationContext) -> Choose | None:
    """Return a test of columns for entries of a kind, or None if the node needs more data."""
    args = node.args
    if node.name == "not" and (inner := chosen_by_column(node.children[0], kind, context)):
        return _negated(inner)
    if node.name == "number":
        return _by(FIELD_OF_NUMBER[args[0]], compared(*args[1:]))
    if node.name == "size":
        return _by("size", fits_size(*args))
    if node.name == "perm" and kind in ("f", "l"):
        return _by("mode", permitted(args[0], args[1]))
    if node.name == "time":
        low_ns, high_ns = limits_ns(context, *args)
        return _in_time(TIMES[args[0]], low_ns, high_ns)
    if node.name == "newer" and args[0] in TIMES:
        return _in_time(TIMES[args[0]], Timestamp(*args[1:]).ns, None)
    return None


def _by(name: str, fits: Callable[[int], bool]) -> Choose:
    def choose(stats: StatusColumns, places: Sequence[int]) -> list[int]:
        column = stats.column(name, 0, places[-1] + 1)
        return [place for place in places if fits(column[place])]

    return choose


def _negated(choose: Choose) -> Choose:
    def complement(stats: StatusColumns, places: Sequence[int]) -> list[int]:
        found = set(choose(stats, places))
        return [place for place in places if place not in found]

    return complement


def _in_time(name: str, low_ns: int | None, high_ns: int | None) -> Choose:
    """Return a test for times after `low_ns` and up to `high_ns`."""

    def choose(stats: StatusColumns, places: Sequence[int]) -> Sequence[int]:
        end = places[-1] + 1
        seconds = stats.column(name, 0, end)
        # If all times are on the same side of each limit, they need not be compared one by one.
        first_ns, after_ns = min(seconds) * NS_PER_S, (max(seconds) + 1) * NS_PER_S
        if low < first_ns and (high_ns is None or after_ns <= high_ns):
            return places
        if after_ns <= low or (high_ns is not None and high_ns < first_ns):
            return []
        parts = stats.column(f"{name}_ns", 0, end)
        times = ((place, seconds[place] * NS_PER_S + parts[place]) for place in places)
        if high_ns is None:
            return [place for place, at_ns in times if at_ns > low]
        return [place for place, at_ns in times if low < at_ns <= high_ns]

    low = MIN_NS - 1 if low_ns is None else low_ns
    return choose


# ---- formats -------------------------------------------------------------------------------------

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


class DirectoryContext(msgspec.Struct, frozen=True):
    """The directory that contains the names, and their kind; see `FindEntry`.

    If the names are in several subdirectories, `holders` contains the subdirectory of each name,
    followed by a slash.
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


class NameRows(NamedTuple):
    """Names in a directory, and their rows in the status table."""

    where: DirectoryContext
    names: Sequence[bytes]
    stats: StatusColumns
    places: Sequence[int]


Column = Callable[[NameRows], Iterable[object]]
"""A function from the rows of names to values."""


class FormatPart(msgspec.Struct, frozen=True):
    """The template of a directive, and the columns that fill it."""

    template: Callable[[DirectoryContext], bytes]
    columns: Sequence[Column] = ()


class BulkFormat:
    """A format for many names. If `looks` is set, the names must be looked up."""

    def __init__(self, pieces: Sequence[FormatPiece]) -> None:
        self._parts = list(map(_part, pieces))
        self.looks: bool = any(piece.letter not in _OF_NAME for piece in pieces if piece.letter)

    def text(
        self,
        where: DirectoryContext,
        names: Sequence[bytes],
        stats: StatusColumns,
        places: Sequence[int],
    ) -> bytes:
        """Return the text of all names."""
        template = b"".join(part.template(where) for part in self._parts) * len(names)
        rows = NameRows(where, names, stats, places)
        columns = [column(rows) for part in self._parts for column in part.columns]
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
    return piece.letter in {"", *_OF_NAME, *_NUMBERS, *"kmMug"}


def _part(piece: FormatPiece) -> FormatPart:
    letter = piece.letter
    if not letter:
        escaped = _escaped(piece.text)
        return FormatPart(lambda where: escaped)
    if piece.kind == "@":
        name = _TIMES[letter]
        return FormatPart(lambda where: b"%d.%09d0", [_numbers(name), _numbers(f"{name}_ns")])
    if piece.kind:
        return FormatPart(lambda where: b"%b", [_times(_TIMES[letter], piece.kind)])
    if letter in _OF_NAME:
        return _of_name(letter)
    if letter in _NUMBERS:
        return FormatPart(lambda where: b"%d", [_numbers(_NUMBERS[letter])])
    changed: dict[str, tuple[bytes, str, Callable[[int], object]]] = {
        "k": (b"%d", "blocks", lambda blocks: (blocks + 1) // 2),
        "m": (b"%o", "mode", (0o7777).__and__),
        "M": (b"%b", "mode", MODES.__getitem__),
        "u": (b"%b", "uid", USERS.__getitem__),
        "g": (b"%b", "gid", GROUPS.__getitem__),
    }
    template, name, change = changed[letter]
    return FormatPart(lambda where: template, [_numbers(name, change)])


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _of_name(letter: str) -> FormatPart:
    if letter == "f":
        return FormatPart(lambda where: b"%b", [lambda rows: rows.names])
    if letter in "pP":
        before = _path if letter == "p" else _path_below
        return FormatPart(before, [_holders, lambda rows: rows.names])
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


def _holders(rows: NameRows) -> Iterable[bytes]:
    return rows.where.holders or repeat(b"", len(rows.names))


def _holders_below(rows: NameRows) -> Iterable[bytes]:
    """Return the paths between the directory and the names, with a leading slash."""
    if rows.where.holders:
        return [b"/" + holder[:-1] for holder in rows.where.holders]
    return repeat(b"", len(rows.names))


def _numbers(name: str, change: Callable[[int], object] | None = None) -> Column:
    def column(rows: NameRows) -> Iterable[object]:
        return _chosen(rows.stats.column(name, 0, rows.places[-1] + 1), rows.places, change)

    return column


def _times(name: str, kind: str) -> Column:
    text = _times_text(kind)

    def column(rows: NameRows) -> Iterable[object]:
        return _chosen(rows.stats.times_ns(name, 0, rows.places[-1] + 1), rows.places, text)

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
