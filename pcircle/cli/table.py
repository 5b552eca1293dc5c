"""Plain text tables: words are left-aligned, numbers right-aligned.

Tables have no frames, two spaces between columns and no trailing spaces, so they can be pasted into
a mail or split by ``awk``. Widths are measured in terminal cells, so wide and combining characters
line up. Cells are finished text; tables do not wrap.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["cell_width", "render"]


def cell_width(text: str) -> int:
    """Return the number of terminal cells of a text."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    import unicodedata  # only now: most tables are ASCII

    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def render(rows: Sequence[Sequence[str]], *, align: str, header: Sequence[str] = ()) -> str:
    """Return a table of lines; an empty text without rows.

    `align` has one letter per column, ``l`` or ``r``. ValueError if a row has another number of
    cells.
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
