"""``docs/design.rst`` shows the house as it stands: its picture, its table and the package agree.

``tests/test_layering.py`` holds the imports to its own table; here that table is held to the page.
"""

from __future__ import annotations

import re

from tests.conftest import ROOT
from tests.test_layering import MAY_IMPORT, PACKAGE

DESIGN = (ROOT / "docs" / "design.rst").read_text(encoding="utf-8")
# Left out of the page's third column: anybody may import them.
FOR_ALL = {"guards", "timestamps", "writing"}
# What the transports know of the engine; the page says so beside the picture.
UPWARDS = {("transport", "circle")}


def _picture() -> list[list[str]]:
    """The rooms of each line of the picture, from the top."""
    drawn = re.search(r"^::\n\n((?:    .*\n)+)", DESIGN, re.MULTILINE)
    assert drawn is not None
    lines = [line[4:] for line in drawn[1].splitlines()]
    return [re.split(r" {3,}", line)[0].split() for line in lines if line[0].isalpha()]


def _table() -> dict[str, str]:
    """What each room of the table may import, as the page says it, in the table's order."""
    edge = r"^={4,} +={4,} +={4,}\n"
    found = re.search(f"{edge}package .*\n{edge}((?:.+\n)+?){edge}", DESIGN, re.MULTILINE)
    assert found is not None
    second, third = (match.start() for match in list(re.finditer(r"(?<= )=", found[0][:200]))[:2])
    rows: list[list[str]] = []
    for line in found[1].splitlines():
        names, imports = line[:second].strip(), line[third:].strip()
        if names and not (rows and rows[-1][0].endswith(",")):
            rows.append([names, imports])
        else:
            rows[-1] = [f"{rows[-1][0]} {names}", f"{rows[-1][1]} {imports}".strip()]
    return {room: imports for names, imports in rows for room in re.findall(r"``(\w+)``", names)}


def _packages() -> set[str]:
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def _modules() -> set[str]:
    return {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}


def test_the_picture_shows_every_package() -> None:
    """And the one module that is no leaf: where commands begin and end."""
    rooms = [room for line in _picture() for room in line]
    assert sorted(rooms) == sorted({*_packages(), "entry"})


def test_the_table_has_every_package_and_module() -> None:
    assert set(_table()) == _packages() | _modules() == set(MAY_IMPORT) - {""}


def test_nothing_in_the_picture_knows_what_is_above_it() -> None:
    lines = _picture()
    floor = {room: -number for number, line in enumerate(lines) for room in line}
    upwards = {
        (room, imported)
        for room in floor
        for imported in MAY_IMPORT[room]
        if floor.get(imported, -len(lines)) > floor[room]
    }
    assert upwards == UPWARDS


def test_the_table_says_who_may_import_whom() -> None:
    above: set[str] = set()
    for room, said in _table().items():
        tools = {other for other, text in _table().items() if text == said} - {"tool"}
        if said == "everything above":
            wanted = above - tools
        else:
            wanted = set(re.findall(r"[a-z]+", said.replace("circle's messages", "circle")))
        assert wanted - {"nothing"} - FOR_ALL == MAY_IMPORT[room] - FOR_ALL, room
        above.add(room)
