"""Each manual begins with examples and their output, which `test_examples.py` runs."""

from __future__ import annotations

import re

import pytest

from pcircle.tools.commands import COMMANDS, Command
from tests.conftest import ROOT
from tests.docs.pages import blocks, commands

FEWEST_EXAMPLES = 3
# The manual of the simulator is an explanation with its own examples.
MANUALS = [each for each in COMMANDS if each.page not in ("scale", "fchmod")] + [
    each for each in COMMANDS if each.name == "fchmod"
]


@pytest.mark.parametrize("command", MANUALS, ids=lambda command: command.page)
def test_a_manual_begins_with_examples_and_their_output(command: Command) -> None:
    page = ROOT / "docs" / f"{command.page}.rst"
    sections = re.findall(r"^(\S.*)\n-{3,}$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] == "Examples"
    assert sections[-2:] == ["All options", "Exit codes"] or "All primaries" in sections
    block = next(block for block in blocks(page) if block.language == "console")
    examples = [shown for shown in commands(block) if command.command_line in shown.line_typed]
    assert block.runs
    assert len(examples) >= FEWEST_EXAMPLES
    assert any(shown.written for shown in examples)


def test_shared_options_are_described_once() -> None:
    """The pages of tools do not repeat the paragraphs of `docs/common.rst`."""
    common = (ROOT / "docs" / "common.rst").read_text(encoding="utf-8")
    paragraphs = {" ".join(text.split()) for text in common.split("\n\n") if len(text) > 200}
    assert len(paragraphs) > 5
    for page in {command.page for command in COMMANDS}:
        text = " ".join((ROOT / "docs" / f"{page}.rst").read_text(encoding="utf-8").split())
        assert [paragraph for paragraph in paragraphs if paragraph in text] == [], page
