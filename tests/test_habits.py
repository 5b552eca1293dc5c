"""Pages and files for contributors agree with what runs: tox, the hooks, the changelog, links."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_layering import TOOLS

PAGES = sorted([*ROOT.glob("*.rst"), *(ROOT / "docs").rglob("*.rst")])


def _tox() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    return parser


def _commands(environment: str) -> list[str]:
    return _tox()[environment]["commands"].strip().splitlines()


def _environments() -> set[str]:
    """Return the names of tox environments, expanding sections for several (``py{310,311}-x``)."""
    found = set()
    for section in _tox().sections():
        before, brace, after_brace = section.removeprefix("testenv:").partition("{")
        inner, _, after = after_brace.partition("}")
        found |= {f"{before}{factor}{after}" for factor in (inner.split(",") if brace else [""])}
    return found


def test_hooks_run_the_checks_of_tox() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    hooks = re.findall(r"^ +entry: (.+)$", text, re.MULTILINE)
    assert hooks == [*_commands("testenv:lint"), *_commands("testenv:types")]
    assert text.count("language: system") == text.count("pass_filenames: false") == len(hooks)
    assert re.findall(r"^ +rev:", text, re.MULTILINE) == [], "a second version of a tool"


def test_the_oldest_versions_are_tested() -> None:
    """`tox -e oldest` installs exactly the lower limits of pyproject.toml."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    limits = dict(re.findall(r'^ +"([\w-]+)>=([\d.]+)",', project, re.MULTILINE))
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    pinned = dict(line.split("==") for line in tox["testenv:oldest"]["deps"].split())
    assert {"numpy", "msgspec", "pytest"} <= set(pinned)
    for name, version in pinned.items():
        padded = limits[name].split(".")
        assert version.split(".")[: len(padded)] == padded, name
        assert set(version.split(".")[len(padded) :]) <= {"0"}, name


def test_the_constraints_name_all_dependencies() -> None:
    """Setuptools is left out: its version would then hold for builds of other packages too."""
    lines = (ROOT / "packaging/constraints.txt").read_text(encoding="utf-8").splitlines()
    named = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = text[: text.index("[project.scripts]")]
    names = set(re.findall(r'^ +"([\w-]+)(?:\[\w+\])?(?:>=[\d.]+)?",', project, re.MULTILINE))
    assert {"msgspec", "mypy", "pyright", "pytest"} <= names
    assert names - {"setuptools"} <= named


def test_the_quick_list_is_valid() -> None:
    """The list names existing paths and tests, and the end-to-end test of each tool."""
    assert any("@tests/quick.txt" in command for command in _commands("testenv:quick"))
    listed = (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").splitlines()
    assert listed == list(dict.fromkeys(listed))
    for line in listed:
        path, _, function = line.partition("[")[0].partition("::")
        assert (ROOT / path).exists(), line
        if function:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^def {function}\(", text, re.MULTILINE), line
    tests = [line for line in listed if "::" in line]
    tools = {line.split("/")[2] for line in tests if line.startswith("tests/tools/")}
    assert tools == TOOLS
    assert any(line.startswith("tests/test_new_tool.py::") for line in tests)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_references_in_pages_exist(page: Path) -> None:
    """Files that a page names or links to exist, and so do tox environments."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"<([\w./-]+\.rst)>`_", text)
    assert [link for link in links if not (page.parent / link).is_file()] == []
    named = re.findall(r"``((?:pcircle|tests|docs|examples)/[\w./-]+)``", text)
    assert [name for name in named if not (ROOT / name).exists()] == []
    given = re.findall(r"\btox -e ([\w,-]+)", text)
    assert {name for names in given for name in names.split(",")} - _environments() == set()
