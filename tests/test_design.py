"""``docs/design.rst`` shows the current structure: picture, table and package agree.

``tests/test_layering.py`` checks the imports against its own table; here that table is compared
with the page.
"""

from __future__ import annotations

import re

from tests.conftest import ROOT
from tests.test_layering import LIBRARIES, MAY_IMPORT, PACKAGE

DESIGN = (ROOT / "docs" / "design.rst").read_text(encoding="utf-8")
# Imports of the engine by the transports; the page mentions them next to the picture.
UPWARDS: set[tuple[str, str]] = set()


def _picture() -> list[list[str]]:
    """Return the packages in each line of the picture, from the top."""
    packages = DESIGN.partition("\nPackages\n")[2]
    drawn = re.search(r"^::\n\n((?:    .*\n)+)", packages, re.MULTILINE)
    assert drawn is not None
    lines = [line[4:] for line in drawn[1].splitlines()]
    return [re.split(r" {3,}", line)[0].split() for line in lines if line[0].isalpha()]


def _table() -> dict[str, str]:
    """Return the imports that the table on the page permits each package, in the table's order."""
    edge = r"^={4,} +={4,} +={4,}\n"
    found = re.search(f"{edge}package .*\n{edge}((?:.+\n)+?){edge}", DESIGN, re.MULTILINE)
    assert found is not None
    second, third = (match.start() for match in list(re.finditer(r"(?<= )=", found[0][:200]))[:2])
    rows: list[list[str]] = []
    for line in found[1].splitlines():
        names, imports = line[:second].strip(), line[third:].strip()
        if names:
            rows.append([names, imports])
        else:
            rows[-1] = [f"{rows[-1][0]} {names}", f"{rows[-1][1]} {imports}".strip()]
    return {room: imports for names, imports in rows for room in re.findall(r"``([\w.]+)``", names)}


def _packages() -> set[str]:
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def _modules() -> set[str]:
    return {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}


def test_the_picture_shows_every_package() -> None:
    """The picture names every package; the public libraries are named below it."""
    packages = [package for line in _picture() for package in line]
    assert sorted(packages) == sorted(_packages() - LIBRARIES)
    assert all(f"``{library}``" in DESIGN for library in LIBRARIES)


def test_the_table_has_every_package_and_module() -> None:
    assert set(_table()) == set(MAY_IMPORT) - {""}
    assert {name.partition(".")[0] for name in _table()} == _packages() | _modules()


def test_packages_import_nothing_from_above() -> None:
    lines = _picture()
    floor = {package: -number for number, line in enumerate(lines) for package in line}
    upwards = {
        (package, imported)
        for package in floor
        for imported in MAY_IMPORT[package]
        if floor.get(imported, -len(lines)) > floor[package]
    }
    assert upwards == UPWARDS


def test_the_table_lists_the_permitted_imports() -> None:
    above: set[str] = set()
    for package, text in _table().items():
        if text.startswith("all above"):
            permitted = above - set(re.findall(r"but (\w+)", text))
        else:
            permitted = set(re.findall(r"[\w.]+", text)) - {"nothing"}
        assert permitted == MAY_IMPORT[package], package
        above.add(package)
