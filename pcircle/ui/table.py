"""Plain text tables: columns of words left, columns of numbers right.

The idea: a table that a person reads, a mail keeps, and ``awk`` still takes apart: no frames, two
spaces between columns, nothing at the end of a line.  Columns are as wide as what they hold, in
terminal cells, so names with wide or combining characters line up.

What this is not: wrapping, colour or units.  Cells come as finished text.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["cell_width", "render"]


def cell_width(text: str) -> int:
    """The number of terminal cells that *text* takes."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    import unicodedata  # only now: most tables are ASCII

    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def render(rows: Sequence[Sequence[str]], *, align: str, header: Sequence[str] = ()) -> str:
    """The table of *rows*, each line ended; an empty text for no rows.

    *align* has one letter a column, ``l`` or ``r``; *header* follows it.  A row of another number
    of cells is a ValueError.
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
