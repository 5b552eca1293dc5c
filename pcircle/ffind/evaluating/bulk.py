"""-printf for all names of a directory at once, where a format wants nothing but columns.

Of an entry by itself each directive is a call, with an object that stands for what was looked up:
three times what find takes in all. Here each directive is a column, made of the numbers that the
kernel wrote side by side (`pcircle.fs.stats`), and an entry's text is one formatting operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import add
from typing import Any, NamedTuple

from pcircle.ffind.evaluating.printing import GROUPS, MODES, USERS, WITH_NS, time_text
from pcircle.ffind.language.formats import Piece, parse_format
from pcircle.fs.stats import Stats

_NS = 1_000_000_000
_MAX_KNOWN = 1 << 14  # seconds; then they are forgotten
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


class In(NamedTuple):
    """The directory that names are in, and the kind of these: see `Entry`.

    Of names in several directories of that one, `holders` are these, one for each and with a slash.
    """

    prefix: bytes
    below: bytes
    start: bytes
    depth: int
    kind: str
    holders: Sequence[bytes] = ()

    def inside(self, names: Sequence[bytes]) -> Sequence[bytes]:
        """The paths of names in the directory."""
        return list(map(add, self.holders, names)) if self.holders else names


Column = Callable[[In, Sequence[bytes], "Stats | None", Sequence[int]], Iterable[object]]
"""Of names, by their places among those that were looked up."""


class Bulk:
    """What a format makes of many names. `looks`: they have to be looked up."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._template = b"".join(map(_part, pieces))
        self._columns = [_column(piece) for piece in pieces if piece.letter]
        self.looks = any(piece.letter not in _OF_NAME for piece in pieces if piece.letter)

    def text(
        self, where: In, names: Sequence[bytes], stats: Stats | None, places: Sequence[int]
    ) -> bytes:
        """The text of all of them."""
        columns = [column(where, names, stats, places) for column in self._columns]
        if not columns:
            return self._template % () * len(names)
        return b"".join(map(self._template.__mod__, zip(*columns, strict=False)))


def bulk_of(text: bytes) -> Bulk | None:
    """What stands for a format, if all of it can be done so."""
    pieces, _ = parse_format(text, [])
    return Bulk(pieces) if all(map(_is_plain, pieces)) else None


def _is_plain(piece: Piece) -> bool:
    if piece.flags:
        return False
    if piece.kind:
        return piece.letter in _TIMES
    return not piece.letter or piece.letter in _OF_NAME or piece.letter in {*_NUMBERS, *"kmMug"}


def _part(piece: Piece) -> bytes:
    """A directive as Python has it."""
    if not piece.letter:
        return piece.text.replace(b"%", b"%%")
    if not piece.kind and (piece.letter in _NUMBERS or piece.letter in "kd"):
        return b"%d"
    return b"%o" if piece.letter == "m" else b"%b"


def _column(piece: Piece) -> Column:
    letter = piece.letter
    if piece.kind:
        return _times(_TIMES[letter], piece.kind)
    if letter in _OF_NAME:
        return _of_name(letter)
    if letter in _NUMBERS:
        return _numbers(_NUMBERS[letter], None)
    changed: dict[str, tuple[str, Callable[[int], object]]] = {
        "k": ("blocks", lambda blocks: (blocks + 1) // 2),
        "m": ("mode", (0o7777).__and__),
        "M": ("mode", MODES.__getitem__),
        "u": ("uid", USERS.__getitem__),
        "g": ("gid", GROUPS.__getitem__),
    }
    return _numbers(*changed[letter])


def _of_name(letter: str) -> Column:
    if letter == "f":
        return lambda where, names, stats, places: names
    if letter == "p":
        return lambda where, names, stats, places: map(where.prefix.__add__, where.inside(names))
    if letter == "P":
        return _below
    if letter == "h":
        return _holders
    same: dict[str, Callable[[In], object]] = {
        "H": lambda where: where.start,
        "d": lambda where: where.depth,
        "y": lambda where: where.kind.encode(),
    }
    of = same[letter]
    return lambda where, names, stats, places: repeat(of(where), len(names))


def _below(
    where: In, names: Sequence[bytes], stats: Stats | None, places: Sequence[int]
) -> Iterable[bytes]:
    names = where.inside(names)
    return map((where.below + b"/").__add__, names) if where.below else names


def _holders(
    where: In, names: Sequence[bytes], stats: Stats | None, places: Sequence[int]
) -> Iterable[bytes]:
    if where.holders:
        return [where.prefix + holder[:-1] for holder in where.holders]
    return repeat(where.prefix[:-1], len(names))


def _numbers(name: str, change: Callable[[int], object] | None) -> Column:
    def column(where: In, names: Any, stats: Any, places: Sequence[int]) -> Iterable[object]:
        return _chosen(stats.column(name, 0, places[-1] + 1), places, change)

    return column


def _times(name: str, kind: str) -> Column:
    if kind == "@":
        return _times_since(name)
    text = _times_text(kind)

    def column(where: In, names: Any, stats: Any, places: Sequence[int]) -> Iterable[object]:
        times = stats.times_ns(name, 0, places[-1] + 1)
        return _chosen(times, places, text)

    return column


def _times_since(name: str) -> Column:
    def column(where: In, names: Any, stats: Any, places: Sequence[int]) -> Iterable[object]:
        seconds, rest = _numbers(name, None), _numbers(f"{name}_ns", None)
        parts = (each(where, names, stats, places) for each in (seconds, rest))
        return map(b"%d.%09d0".__mod__, zip(*parts, strict=True))

    return column


def _times_text(kind: str) -> Callable[[int], bytes]:
    if kind in WITH_NS:
        return lambda time_ns: time_text(time_ns, kind)
    known: dict[int, bytes] = {}  # by second

    def text(time_ns: int) -> bytes:
        second = time_ns // _NS
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
