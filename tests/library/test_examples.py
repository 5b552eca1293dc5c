"""The examples in the docstrings of the functions run."""

from __future__ import annotations

import doctest
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pcircle
from pcircle.library.call import FUNCTIONS
from tests.conftest import ROOT
from tests.docs.pages import blocks


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_example_of_a_function(here: Path, function: str) -> None:
    for number, name in enumerate(("a", "b", "sub/c"), 1):
        Path("data", name).write_bytes(b"x" * 1000 * number)
    os.mkdir("node0")
    os.mkdir("node1")
    text = inspect.getdoc(getattr(pcircle, function)) or ""
    test = doctest.DocTestParser().get_doctest(text, {"pcircle": pcircle}, function, None, 0)
    assert test.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append)
    assert said == []


@pytest.mark.slow
def test_the_examples_of_the_page_have_correct_types(tmp_path: Path) -> None:
    """They pass mypy --strict, like programs of users."""
    pytest.importorskip("mypy")
    for block in blocks(ROOT / "docs" / "library.rst"):
        if block.language == "python" and block.runs:
            (tmp_path / f"line_{block.line}.py").write_text(block.text)
    report = "import pcircle\n\ntext: str = pcircle.sign('data').signature\n"
    names = [name for name in pcircle.__all__ if not name.islower()]
    report += "".join(
        f"value_{name}: pcircle.{name}{'[str]' * (name == 'Results')}\n" for name in names
    )
    (tmp_path / "names.py").write_text(report)
    command = [sys.executable, "-m", "mypy", "--strict", "--scripts-are-modules"]
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'examples'}"
    done = subprocess.run(
        [*command, cache, "--config-file=", tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", [name for name in pcircle.__all__ if name.endswith("Report")])
def test_the_types_of_reports_are_public(name: str) -> None:
    assert inspect.isclass(getattr(pcircle, name))
