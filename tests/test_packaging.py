"""The launchers start, and the README is accurate.

These are the first things that a user sees.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import pcircle
from tests.conftest import ROOT, Run

README = (ROOT / "README.rst").read_text(encoding="utf-8")
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
SCRIPTS = re.findall(r'^(\w+) = "pcircle\.[\w.]+:\w+"$', PYPROJECT, re.MULTILINE)


def test_every_tool_has_a_launcher() -> None:
    assert SCRIPTS
    assert sorted(path.name for path in (ROOT / "bin").iterdir() if path.is_file()) == SCRIPTS


@pytest.mark.parametrize("tool", SCRIPTS)
def test_a_launcher_works_from_anywhere(run: Run, tmp_path: Path, tool: str) -> None:
    """A launcher works through a link without installation, and runs the checkout's own package."""
    (tmp_path / "link").symlink_to(ROOT / "bin" / tool)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = run([sys.executable, tmp_path / "link", "--version"], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert pcircle.__version__ in done.stdout.decode()
    assert os.access(ROOT / "bin" / tool, os.X_OK)


def test_ci_runs_the_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    command = re.search(r"^test_command='(.*)'$", script, re.MULTILINE)
    assert command is not None
    assert f"\n    {command[1]}\n" in README


def test_the_readme_names_only_existing_options(run: Run) -> None:
    help_text = run([sys.executable, ROOT / "bin" / "fcp", "--help"]).stdout.decode()
    there = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", help_text))
    examples = re.findall(r"^    (?:.* )?fcp (.*)$", README, re.MULTILINE)
    named = {word for line in examples for word in line.split() if word.startswith("-")}
    assert len(named) > 1
    assert named - there == set()
