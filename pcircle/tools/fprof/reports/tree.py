"""The largest directories as a tree, fitted to a terminal.

A profile lists the 4,096 largest directories, by their size including subdirectories
(`profile.model`). A directory is at least as large as each subdirectory. The first n directories
therefore form a tree without gaps, and no omitted directory is larger than the last of them. The
output is therefore exact for any n.

The tree has as many rows as fit below the standard parts of the report. A directory shares a row
with its subdirectory if that contains all its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pcircle.cli import listing
from pcircle.cli.output import Terminal
from pcircle.core.encoding import show
from pcircle.core.units import format_count, format_size, plural
from pcircle.tools.fprof.profile.groups import below_of, share
from pcircle.tools.fprof.profile.model import MAX_DIRECTORIES, DirectoryRow, Profile
from pcircle.tools.fprof.reports.text import bar

FEWEST_ROWS = 9  # even if the first rows scroll out of view
_ENTRIES_FROM_COLUMNS = 60  # narrower terminals show only sizes and names
_BAR_FROM_COLUMNS = 72
_MAX_BAR_CELLS = 20
_FEWEST_NAME_CELLS = 8
_OWN = "(files in it)"
_HEADERS = {
    2: ("size", "directory"),
    4: ("size", "share", "entries", "directory"),
    5: ("size", "share", "", "entries", "directory"),
}


class _Row(msgspec.Struct):
    """A row of the tree; `below` contains the rows of its subdirectories and own files."""

    name: str
    entries: int
    bytes: int
    below: list[_Row] = []
    is_own: bool = False  # the files directly in a directory
    directories: int = 1  # directories that share the row


class _Fitted(msgspec.Struct):
    """Rows of the largest directories, and the bytes of the largest omitted directory."""

    rows: list[_Row]
    shown: int  # number of directories
    omitted_bytes: int


def _fitted(profile: Profile, most: int) -> _Fitted:
    """Return the largest directories that fit in `most` rows."""
    weights = profile.weights
    count = most
    while True:
        rows = _grown(profile, weights[:count], full=count < len(weights))
        spare = most - _count(rows)
        if spare <= 0 or count >= len(weights):
            break
        count += spare  # directories that share a row leave room for more
    shown = min(count, len(weights))
    largest_omitted = (
        weights[count]
        if count < len(weights)
        else weights[-1]
        if len(weights) == MAX_DIRECTORIES
        else None
    )
    omitted = 0 if largest_omitted is None else largest_omitted.size_bytes
    for _ in range(-spare):
        row = _without_least(rows)
        if not row.is_own:
            shown, omitted = shown - row.directories, max(omitted, row.bytes)
    return _Fitted(rows, shown, omitted)


def _count(rows: Sequence[_Row]) -> int:
    return sum(1 + _count(row.below) for row in rows)


def _without_least(rows: list[_Row]) -> _Row:
    """Remove and return the smallest row that has no rows below it."""
    holder, least = rows, rows[-1]
    waiting = [rows]
    while waiting:
        siblings = waiting.pop()
        waiting += [row.below for row in siblings if row.below]
        if not siblings[-1].below and (least.below or siblings[-1].bytes <= least.bytes):
            holder, least = siblings, siblings[-1]
    return holder.pop()


def _grown(profile: Profile, rows: Sequence[DirectoryRow], *, full: bool) -> list[_Row]:
    """Return rows for directories, and for the files directly in them if these are large."""
    below = below_of(rows)
    least = rows[-1].size_bytes if rows and full else 0

    def made(directory: DirectoryRow) -> _Row:
        name = show(directory.path.rpartition(b"/")[2] or profile.roots[directory.root])
        inner = below.get((directory.root, directory.path), [])
        row = _Row(name, directory.entries, directory.size_bytes, list(map(made, inner)))
        if len(inner) == 1 and inner[0].size_bytes == directory.size_bytes:
            only = row.below[0]
            row.name = f"{name.rstrip('/')}/{only.name}"
            row.below, row.directories = only.below, only.directories + 1
        elif inner and directory.own_bytes > least:
            number = max(0, directory.own_entries - len(inner))
            row.below.append(_Row(_OWN, number, directory.own_bytes, is_own=True))
            row.below.sort(key=lambda child: -child.bytes)
        return row

    return list(map(made, below.get(None, [])))


def lines_of(parts: Sequence[str], terminal: Terminal) -> int:
    """Return the number of lines that the other parts of the report take.

    The empty lines between parts, the head and the foot of the tree, and the prompt are included.
    """
    lines = [line for part in parts for line in (*part.splitlines(), "")]
    return 3 + sum(max(1, -(-listing.cell_width(line) // terminal.columns)) for line in lines)


def render(profile: Profile, terminal: Terminal, taken: int, *, unicode: bool) -> str:
    """Return the tree for a terminal on which `taken` lines are reserved, or an empty string."""
    most, directories = max(FEWEST_ROWS, terminal.lines - taken), profile.kinds["directory"][0]
    fitted = _fitted(profile, most)
    if directories - fitted.shown == 1:  # showing it takes no more lines than mentioning it
        fitted = _fitted(profile, most + 1)
    if not fitted.rows:
        return ""
    total = sum(row.bytes for row in fitted.rows)
    lines = list(_lines(fitted.rows, _GLYPHS[unicode]))
    cells = _cells(lines, total, terminal.columns, unicode=unicode)
    omitted = directories - fitted.shown
    align = "r" * (len(cells[0]) - 1) + "l"
    text = listing.render(cells, align=align, header=_HEADERS[len(cells[0])])
    if omitted > 0:
        count = plural(omitted, "smaller directory", "smaller directories")
        foot = f"and {count} of at most {format_size(fitted.omitted_bytes)}"
        text += (foot if len(foot) <= terminal.columns else f"and {count}") + "\n"
    return text


class _Glyphs(msgspec.Struct, frozen=True):
    """The characters with which branches are drawn."""

    inner: str
    last: str
    along: str
    cut: str


_GLYPHS = {
    True: _Glyphs("├─ ", "└─ ", "│  ", "…"),
    False: _Glyphs("|- ", "`- ", "|  ", "..."),
}


def _lines(rows: Sequence[_Row], glyphs: _Glyphs) -> Iterator[tuple[_Row, str]]:
    """Yield each row with the branches that lead to it."""
    waiting = [(row, "", "") for row in reversed(rows)]
    while waiting:
        row, branch, stem = waiting.pop()
        yield row, branch
        for place, inner in enumerate(reversed(row.below)):
            mark, on = (glyphs.inner, glyphs.along) if place else (glyphs.last, "   ")
            waiting.append((inner, stem + mark, stem + on))


def _cells(
    lines: Sequence[tuple[_Row, str]], total: int, columns: int, *, unicode: bool
) -> list[list[str]]:
    """Return the cells of the table, with fewer columns on a narrow terminal."""
    cells = []
    bar_cells = min(_MAX_BAR_CELLS, (columns - 2 * _BAR_FROM_COLUMNS // 3) // 3)
    for row, _ in lines:
        part = share(row.bytes, total)
        values = [format_size(row.bytes)]
        if columns >= _ENTRIES_FROM_COLUMNS:
            values += [f"{part:.1%}", format_count(row.entries)]
        if columns >= _BAR_FROM_COLUMNS:
            values.insert(2, bar(part, unicode=unicode, cells=bar_cells).ljust(bar_cells))
        cells.append(values)
    header = _HEADERS[len(cells[0]) + 1][:-1]
    columns_of = zip(header, *cells, strict=True)
    taken = sum(max(map(len, column)) + 2 for column in columns_of)
    left = max(_FEWEST_NAME_CELLS, columns - taken)
    for values, (row, branch) in zip(cells, lines, strict=True):
        values.append(_name(row.name, branch, left, _GLYPHS[unicode].cut))
    return cells


def _name(name: str, branch: str, cells: int, cut: str) -> str:
    """Return a name with its branches, shortened to `cells`; a root loses its first letters."""
    if len(branch) > cells - _FEWEST_NAME_CELLS:
        branch = cut + branch[len(branch) - max(0, cells - _FEWEST_NAME_CELLS - len(cut)) :]
    room = cells - len(branch)
    if listing.cell_width(name) <= room:
        return branch + name
    while name and listing.cell_width(name) > room - len(cut):
        name = name[:-1] if branch else name[1:]
    return branch + name + cut if branch else cut + name
