"""The layout of names on a terminal, in columns as in ls."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_GAP = 2
_LEAST = 3
_ESCAPES = re.compile(rb"\x1b\[[0-9;]*m|\x1b\]8;;.*?\x07")


def width_of(line: bytes) -> int:
    """Return the number of terminal columns of a line."""
    if b"\x1b" in line:
        line = _ESCAPES.sub(b"", line)
    if line.isascii():
        return len(line)
    text = line.decode(errors="replace")
    return sum(
        0
        if unicodedata.combining(character)
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def in_columns(lines: Sequence[bytes], terminal: int) -> bytes:
    """Return lines side by side in as many columns as fit, ordered top to bottom."""
    widths = list(map(width_of, lines))
    count = len(lines)
    for columns in range(min(count, max(1, terminal // _LEAST)), 0, -1):
        rows = -(-count // columns)
        tops = range(0, count, rows)
        wide = [
            max(_LEAST, max(widths[top : top + rows]) + _GAP * (number < columns - 1))
            for number, top in enumerate(tops)
        ]
        if columns == 1 or sum(wide) + _LEAST * (columns - len(wide)) < terminal:
            break
    text = []
    for row in range(rows):
        places = range(row, count, rows)
        cells = [lines[at] + b" " * (wide[at // rows] - widths[at]) for at in places]
        text.append(b"".join([*cells[:-1], lines[places[-1]], b"\n"]))
    return b"".join(text)
