"""Fields of a listing in the format of ls (modes, owners, sizes, times), and plain text tables.

Fields cache their results, because a tree has many files, but few modes and owners. Their text is
bytes, like names.

Tables align words left and numbers right. They have no frames, two spaces between columns and no
trailing spaces, so they can be pasted into an email or split by ``awk``. Widths are measured in
terminal cells, so wide and combining characters line up. Cells are printed unchanged, and never
wrapped.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from stat import filemode
from typing import Any

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import NS_PER_S, format_time
from pcircle.fs.attributes.owners import find_group_name, find_user_name

_HALF_A_YEAR_NS = 31_556_952 // 2 * NS_PER_S
_MAX_KNOWN = 1 << 14  # distinct seconds in a cache before it is cleared
_UNITS = b"KMGTPEZY"

RECENT, FULL_ISO = "locale", "full-iso"
_STYLES = {  # for times less than half a year ago, and for others
    RECENT: ("%b %e %H:%M", "%b %e  %Y"),
    "long-iso": ("%Y-%m-%d %H:%M",) * 2,
    "iso": ("%m-%d %H:%M", "%Y-%m-%d "),
    FULL_ISO: ("%Y-%m-%d %H:%M:%S.%N %z",) * 2,
}


class Modes(dict[int, bytes]):
    """Kind and permissions by `st_mode`: ``modes[0o41777]`` is ``b"drwxrwxrwt"``."""

    def __missing__(self, mode: int) -> bytes:
        text = self[mode] = filemode(mode).encode()
        return text


class Owners(dict[int, bytes]):
    """Names by number; the number as text if it has no name."""

    def __init__(self, name_of: Callable[[int], str | None]) -> None:
        super().__init__()
        self._name_of = name_of

    def __missing__(self, number: int) -> bytes:
        name = self._name_of(number)
        text = self[number] = b"%d" % number if name is None else os.fsencode(name)
        return text


def users(*, numeric: bool = False) -> Owners:
    """Return the names of users, or only their numbers if `numeric`."""
    return Owners(_nobody if numeric else find_user_name)


def groups(*, numeric: bool = False) -> Owners:
    """Return the names of groups, or only their numbers if `numeric`."""
    return Owners(_nobody if numeric else find_group_name)


def _nobody(number: int) -> None:
    """Return no name."""


def human(size: int) -> bytes:
    """Return a size as ``ls -h`` prints it: at most three digits and a unit, rounded up."""
    if size < 1024:
        return b"%d" % size
    unit, power = -1, 1
    while size >= 1024 * power and unit + 1 < len(_UNITS):
        unit, power = unit + 1, power * 1024
    tenths = -(-size * 10 // power)
    if tenths < 100:
        return b"%d.%d%c" % (*divmod(tenths, 10), _UNITS[unit])
    whole = -(-size // power)
    return b"1.0%c" % _UNITS[unit + 1] if whole == 1024 else b"%d%c" % (whole, _UNITS[unit])


class Times:
    """Formats times in a style of ls, or by a format string.

    Styles are ``locale``, ``long-iso``, ``iso`` and ``full-iso``. ``+FORMAT`` is a format of
    strftime, with ``%N`` for nanoseconds; a second format, after a newline, applies to times within
    half a year before `now_ns`. Raises UsageError for any other style.
    """

    def __init__(self, style: str, now_ns: int) -> None:
        style = style.removeprefix("posix-")
        if style.startswith("+"):
            old, newline, recent = style[1:].partition("\n")
            formats = (recent if newline else old, old)
        elif style in _STYLES:
            formats = _STYLES[style]
        else:
            shown, known = show(os.fsencode(style)), ", ".join((*_STYLES, "+FORMAT"))
            raise UsageError(f"unknown time style '{shown}'; choose from {known}")
        self._recent = _Seconds(formats[0])
        self._old = _OtherSeconds(formats[1], self._recent, now_ns // NS_PER_S)
        self._is_one = formats[0] == formats[1]
        self._from_ns, self._now_ns = now_ns - _HALF_A_YEAR_NS, now_ns

    def text(self, time_ns: int) -> bytes:
        """Return a time in the user's time zone, from nanoseconds since the epoch."""
        second, ns = divmod(time_ns, NS_PER_S)
        is_recent = self._is_one or self._from_ns < time_ns <= self._now_ns
        seconds = self._recent if is_recent else self._old
        return seconds[second] % ((ns,) * seconds.count)

    @property
    def change(self) -> tuple[Any, ...]:
        """The arguments with which `native.format_entries` formats a field of times."""
        older = self._recent if self._is_one else self._old
        bounds = (*divmod(self._from_ns, NS_PER_S), *divmod(self._now_ns, NS_PER_S))
        return self._recent.__getitem__, older.__getitem__, *bounds

    def texts(self, seconds: Sequence[int], rest_ns: Sequence[int]) -> list[bytes]:
        """Return times as text, from their seconds and nanoseconds."""
        known = self._recent
        if self._is_one and known.count == 1:
            return [known[second] % ns for second, ns in zip(seconds, rest_ns, strict=True)]
        times = zip(seconds, rest_ns, strict=True)
        return [self.text(NS_PER_S * second + ns) for second, ns in times]


class _Constant(bytes):
    """A fully formatted time, without nanoseconds."""

    def __mod__(self, value: object) -> bytes:
        return bytes(self)


class _Seconds(dict[int, bytes]):
    """A cache of times in one format, each with `count` placeholders for nanoseconds."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pieces = _pieces(pattern)
        self.count = len(self._pieces) - 1

    def __missing__(self, second: int) -> bytes:
        try:
            made = [os.fsencode(format_time(piece, second, padded=True)) for piece in self._pieces]
        except (OverflowError, OSError):  # the year is out of range: ls prints the seconds
            width = len(self[0] % ((0,) * self.count))  # the width of the epoch, as in ls
            text: bytes = _Constant((b"%d" % second).rjust(width))
        else:
            text = b"%09d".join(piece.replace(b"%", b"%%") for piece in made)
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self[second] = text
        return text


class _OtherSeconds(_Seconds):
    """A cache of times that are not recent at the start of a run.

    A time after the start has the format of recent times once it has passed, since the entry may
    have changed during the run. Like ls, only times in the future have the other format.
    """

    def __init__(self, pattern: str, recent: _Seconds, start_s: int) -> None:
        super().__init__(pattern)
        self._recent = recent
        self._start_s = start_s

    def __missing__(self, second: int) -> bytes:
        if self._start_s <= second <= time.time() and self.count == self._recent.count:
            return self._recent[second]
        return super().__missing__(second)


def _pieces(pattern: str) -> Sequence[str]:
    """Split a format at each `%N`, except `%%N`."""
    words = re.findall(r"%%|%N|[^%]+|%", pattern)
    pieces = [""]
    for word in words:
        if word == "%N":
            pieces.append("")
        else:
            pieces[-1] += word
    return pieces


# ---- tables --------------------------------------------------------------------------------------


def cell_width(text: str) -> int:
    """Return the number of terminal cells that text occupies."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    import unicodedata  # imported late, because most tables are ASCII

    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def render(rows: Sequence[Sequence[str]], *, align: str, header: Sequence[str] = ()) -> str:
    """Return a table as lines of text, or an empty string if there are no rows.

    `align` contains one letter per column, ``l`` or ``r``. Raises ValueError if the rows differ in
    their number of cells.
    """
    if not rows:
        return ""
    lines = [header, *rows] if header else list(rows)
    widths = [max(map(cell_width, column)) for column in zip(*lines, strict=True)]
    return "".join(_render_line(line, widths, align) for line in lines)


def _render_line(cells: Sequence[str], widths: Sequence[int], align: str) -> str:
    padded = [
        cell + " " * (width - cell_width(cell)) if side == "l" else _right(cell, width)
        for cell, width, side in zip(cells, widths, align, strict=True)
    ]
    return "  ".join(padded).rstrip(" ") + "\n"


def _right(cell: str, width: int) -> str:
    return " " * (width - cell_width(cell)) + cell
