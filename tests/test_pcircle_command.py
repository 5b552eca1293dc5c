"""`pcircle TOOL` runs a tool exactly as its own name does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pcircle.tools.commands import TOOLS
from tests.conftest import ROOT, Run

PCIRCLE = [sys.executable, str(ROOT / "bin" / "pcircle")]


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS])
def test_help_is_that_of_the_tool(run: Run, tool: str) -> None:
    own = run([sys.executable, ROOT / "bin" / tool, "--help"])
    assert own.stdout
    for words in ([tool, "--help"], ["help", tool]):
        done = run([*PCIRCLE, *words])
        assert (done.returncode, done.stdout, done.stderr) == (0, own.stdout, own.stderr)


def test_a_tool_gets_its_arguments_and_gives_its_exit_code(run: Run, tmp_path: Path) -> None:
    """A name keeps its bytes where the locale cannot decode it."""
    name = os.fsencode(tmp_path) + b"/caf\xe9"
    with open(name, "wb"):
        pass
    environment = {**os.environ, "LC_ALL": "C"}
    done = run([*PCIRCLE, "fcp", "-j2", name, tmp_path / "copy"], env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy").is_file()
    missing = run([*PCIRCLE, "fcp", "missing", tmp_path / "copy"], cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.startswith(b"fcp: ")


@pytest.mark.parametrize("words", [["fpc"], ["help", "fpc"]])
def test_a_mistyped_tool_is_answered_with_the_similar_one(run: Run, words: list[str]) -> None:
    done = run([*PCIRCLE, *words])
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"'fcp'" in done.stderr


@pytest.mark.parametrize("columns", [40, 80])
def test_the_list_of_commands_fits_the_terminal(run: Run, columns: int) -> None:
    done = run(PCIRCLE, env={**os.environ, "COLUMNS": str(columns)})
    lines = done.stdout.decode().splitlines()
    assert max(map(len, lines)) <= columns
    words = " ".join(done.stdout.decode().split())
    assert " fdiff compare two files or trees ffind " in words
