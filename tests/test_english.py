"""What users read is plain technical English, and help fits a terminal.

The texts that this suite holds are those that read badly once: phrases that an engineer would not
say aloud, each of which has an established word.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from pcircle.ui.arguments import Parser
from tests.conftest import ROOT, Run

TOOLS = ("fcp", "fsum", "fprof", "fbench")
COLUMNS = 80
MAX_PHRASE = 60
EXAMPLES = 4
# Help that lists the values of an option is as long as the list.
LISTS_VALUES = {"--preserve", "--signature", "--algorithm", "--sparse", "--reflink"}
GROUPS = {
    "fcp": ["Source and destination", "Filters", "Existing files", "Checkpoints", "Performance",
            "Output"],
    "fsum": ["Signature", "Manifests", "Filters", "Performance", "Output"],
    "fprof": ["Report", "Filters", "Report formats", "Saved profiles", "Performance", "Output"],
    "fbench": ["Measurement", "Performance", "Output"],
}  # fmt: skip

every_tool = pytest.mark.parametrize("tool", TOOLS)


def _parser(tool: str) -> Parser:
    built: Parser = importlib.import_module(f"pcircle.{tool}.cli").parser()
    return built


def _examples(tool: str) -> list[str]:
    text = _parser(tool).format_help()
    return [line.strip() for line in text.partition("\nExamples:\n")[2].splitlines()]


@every_tool
def test_help_fits_eighty_columns(run: Run, tool: str) -> None:
    environment = os.environ | {"COLUMNS": str(COLUMNS)}
    done = run([sys.executable, ROOT / "bin" / tool, "--help"], env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) > 20
    assert [line for line in lines if len(line) > COLUMNS] == []


@every_tool
def test_help_follows_the_width(monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    """In a narrow window options are broken; the long texts stay as they are."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = _parser(tool).format_help().splitlines()
    begin, end = lines.index("Options:"), lines.index("Performance:")
    options = [line for line in lines[begin:end] if re.match(r" +--?\w| {20,}", line)]
    explained = [line for line in options if not line.lstrip().startswith("-")]
    assert explained
    assert [line for line in explained if len(line) > 40] == []


@every_tool
def test_a_help_line_is_one_phrase(tool: str) -> None:
    actions = [a for a in _parser(tool)._actions if a.help not in (None, argparse.SUPPRESS)]
    assert len(actions) > 10
    for action in actions:
        name, text = action.option_strings[-1], action.help or ""
        assert not text.endswith("."), name
        assert len(text) <= MAX_PHRASE or name in LISTS_VALUES, (name, len(text))


@every_tool
def test_groups_have_the_usual_names(tool: str) -> None:
    titles = [group.title for group in _parser(tool)._action_groups if group._group_actions]
    assert titles[0] == "positional arguments"
    assert titles[1:] == ["Options", *GROUPS[tool]]


def test_a_value_that_may_be_left_out_is_shown_so() -> None:
    assert "  -s[=ALGORITHM], --signature[=ALGORITHM]\n" in _parser("fcp").format_help()
    assert "  --preserve[=LIST] " in _parser("fcp").format_help()
    assert "  --reflink[={auto,always,never}]\n" in _parser("fcp").format_help()
    assert "  --compress[=SAMPLE] " in _parser("fprof").format_help()


@every_tool
def test_help_ends_with_examples(tool: str) -> None:
    examples = _examples(tool)
    assert len(examples) == EXAMPLES
    for line in examples:
        words = shlex.split(line)
        if words[0] == "mpirun":
            words = words[3:]
        assert words[0] == tool
        assert (
            _parser(tool).parse(words[1:], {}).operands or "--check" in words or "--diff" in words
        )


@pytest.mark.parametrize("tool", ["fcp", "fsum", "fprof"])
def test_examples_work_one_after_the_other(run: Run, tmp_path: Path, tool: str) -> None:
    """In a directory that stands for the root; where an example has a launcher, with -j 2."""
    for name in ("data", "archive", "backup", "scratch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"content" * 1000)
    if tool == "fsum":
        (tmp_path / "archive" / "data").mkdir()
    profile = [sys.executable, str(ROOT / "bin" / "fprof"), "-q", "--save", "last.profile", "data"]
    assert run(profile, cwd=tmp_path).returncode == 0
    for line in _examples(tool):
        words = shlex.split(line)
        jobs = ["-j", "2"] if words[0] == "mpirun" else []
        given = [word.removeprefix("/") for word in words[words.index(tool) + 1 :]]
        done = run([sys.executable, ROOT / "bin" / tool, *jobs, *given], cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    if tool == "fcp":
        assert (tmp_path / "backup" / "data" / "file").read_bytes() == b"content" * 1000
