"""Generate docs/coming-from.rst from the template next to this module.

The template names options by the fields that declare them, in braces, so it need not change if an
option is renamed: ``fcp {preserve}=mode``. Where several options set a field, the value of one
follows after a dot: ``{filters.exclude-from}``. Without the name of a tool, that of the table
counts.

The lines of a table, from `@table TOOL` to `@end`, have three cells: options of the other program,
their equivalents, and remarks. The second cell shows all names of an option, or that they are the
same.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docs.generate.reference import references
from pcircle.cli.declarations import Option
from pcircle.core.errors import require
from pcircle.tools.commands import find_tool

_TEMPLATE = Path(__file__).with_name("coming-from.txt")
_TABLE = re.compile(r"@table (\w+)\n(.*?)@end\n", re.DOTALL)
_CODE = re.compile(r"``(.+?)``")
_FIELD = re.compile(r"\{([\w.-]+)\}")
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z0-9@][\w-]*")
_MAX_WIDTHS = (36, 40, 48)
_SPACE = "\0"  # a space at which no line ends


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of the page."""
    text = _TABLE.sub(lambda found: _table(*found.groups()), _TEMPLATE.read_text(encoding="utf-8"))
    yield "docs/coming-from.rst", _shown("", text)


def _table(tool: str, lines: str) -> str:
    head, *rows = ([cell.strip() for cell in line.split("|")] for line in lines.splitlines())
    cells = [head]
    for theirs, ours, remarks in rows:
        cells.append([theirs, _equivalent(tool, theirs, ours), _shown(tool, remarks)])
    columns = list(zip(*cells, strict=True))
    widths = [
        min(limit, max(map(len, column)))
        for limit, column in zip(_MAX_WIDTHS, columns, strict=True)
    ]
    border = " ".join("=" * width for width in widths)
    first, *others = (_lines(row, widths) for row in cells)
    return "\n".join(
        (border, *first, border, *(line for row in others for line in row), border, "")
    )


def _equivalent(tool: str, theirs: str, ours: str) -> str:
    """Return the second cell of a row."""
    given = set(_OPTION.findall(theirs.replace("``", " ")))
    if ours == "the same":
        if not given <= known_options(tool):
            raise ValueError(f"{tool} does not have all of {theirs}")
        return ours
    if by_hand := set(_OPTION.findall(_FIELD.sub("", ours).replace("``", " "))) - known_options(
        "ffind"
    ):
        raise ValueError(f"not the field of an option: {by_hand} in {ours!r}")
    fields = [_FIELD.fullmatch(code) for code in _CODE.findall(ours)]
    known = [set(_names(tool, found[1])) for found in fields if found is not None]
    is_complete = len(known) == len(fields) and given <= set().union(*known)
    if given and is_complete and all(given & names for names in known):
        return "the same"
    return _shown(tool, ours, all_names=True)


def _shown(tool: str, text: str, *, all_names: bool = False) -> str:
    """Return text with the names of options in place of their fields."""

    def code(found: re.Match[str]) -> str:
        before, *_ = found[1].partition(" ")
        owner = before if find_tool(before) else tool
        last = _FIELD.search(found[1])
        if all_names and last is not None and last.end() == len(found[1]):
            first, *others = _names(owner, last[1])
            names = [found[1][: last.start()] + first, *others]
            return ", ".join(f"``{name}``" for name in names)
        return f"``{_FIELD.sub(functools.partial(name, owner), found[1])}``"

    def name(owner: str, found: re.Match[str]) -> str:
        names = _names(owner, found[1])
        takes_value = found.string[found.end() :].startswith("=")
        long_names = [name for name in names if name.startswith("--")]
        return (long_names if takes_value and long_names else names)[0]

    return _CODE.sub(code, text)


@functools.cache
def _names(tool: str, place: str) -> tuple[str, ...]:
    """Return the names of the options that set a field of a tool, or one value of it."""
    field, _, value = place.partition(".")
    options: Any = require(find_tool(tool)).built()
    declared = dict(options.options.offered())
    if field not in declared:
        raise ValueError(f"{tool} has no option that sets {field!r}")
    found = (declared[field], *declared[field].also)
    names = tuple(name for one in found if value in ("", _value(one)) for name in one.names)
    if not names:
        raise ValueError(f"{tool} has no option that sets {field!r} to {value!r}")
    return names


def _value(option: Option) -> object:
    """Return the value that an option gives to its field, or the kind of its value."""
    kind = option.arguments.get("type")
    return option.arguments.get("const") if kind is None else kind.args[0]


@functools.cache
def known_options(tool: str) -> set[str]:
    """Return the names of all options and primaries of a tool."""
    about = next(found for found in references() if found.command.name == tool)
    options = {flag for option in about.options for flag in option.flags}
    return options.union(*(primary.flags for primary in about.primaries))


def _lines(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row."""
    columns = [
        textwrap.wrap(
            _CODE.sub(lambda found: found[0].replace(" ", _SPACE), cell),
            width,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for cell, width in zip(cells, widths, strict=True)
    ]
    for number in range(max(map(len, columns))):
        parts = (column[number] if number < len(column) else "" for column in columns)
        line = " ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True))
        yield line.replace(_SPACE, " ").rstrip()
