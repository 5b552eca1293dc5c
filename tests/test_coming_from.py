"""What `docs/coming-from.rst` promises of our options: each is one of the tool that it is of."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.conftest import ROOT

TOOLS = {"From rsync": "fmirror", "From dcp": "fmirror", "From rclone": "fmirror", "From cp": "fcp"}
_ALL = re.compile(r"\b(f(?:cp|mirror|rm|sum|diff|prof|find|ls|chmod|chown|chgrp|bcast))\b")


def known(tool: str) -> set[str]:
    """The options of a tool."""
    module = "fchmod" if tool in ("fchown", "fchgrp") else tool
    parser = importlib.import_module(f"pcircle.{module}.cli").parser()
    return set(parser._option_string_actions)


def rows() -> list[tuple[str, str, str]]:
    """The tool that is meant where none is named, theirs and ours."""
    found, tool = [], ""
    for line in (ROOT / "docs/coming-from.rst").read_text().splitlines():
        tool = next((TOOLS[head] for head in TOOLS if line.startswith(head)), tool)
        if re.match(r"\S.{36}\S", line) and not line.startswith("=") and tool:
            found.append((tool, line[:36], line[37:73]))
    return found


def test_there_are_tables() -> None:
    assert len(rows()) > 80


@pytest.mark.parametrize(("tool", "theirs", "ours"), rows())
def test_the_options_exist(tool: str, theirs: str, ours: str) -> None:
    words = theirs if ours.strip() == "the same" else ours
    named = _ALL.findall(ours)
    tools = named if named else [*named, "fcp"]
    options = re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", words.replace("``", " "))
    for option in options:
        assert any(option in known(each) for each in {tool, *tools}), option
