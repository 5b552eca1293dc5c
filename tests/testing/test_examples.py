"""The examples in docstrings and in docs/testing-tasks.rst work as described."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path

import pytest

from pcircle import testing
from tests.conftest import ROOT, Run
from tests.docs.pages import blocks

EXAMPLE = ROOT / "examples" / "test_word_lengths.py"


@pytest.mark.parametrize("name", testing.__all__)
def test_the_docstring_of_each_public_name_has_an_example(name: str) -> None:
    found = getattr(testing, name)
    module = importlib.import_module(found.__module__)
    examples = doctest.DocTestFinder().find(found, name, module)
    assert sum(len(example.examples) for example in examples) > 1
    for example in examples:
        said: list[str] = []
        assert doctest.DocTestRunner().run(example, out=said.append).failed == 0, "".join(said)


def test_the_example_as_a_user_runs_it(run: Run) -> None:
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE)]
    done = run(line, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert b"22 passed" in done.stdout


def test_the_example_counts_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("to be or not to be")
    done = run([sys.executable, str(ROOT / "examples" / "word_lengths.py"), str(tmp_path / "text")])
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"       5 words of 2\n       1 words of 3\n"


def test_the_page_quotes_the_example() -> None:
    source = EXAMPLE.read_text(encoding="utf-8")
    page = ROOT / "docs" / "testing-tasks.rst"
    quoted = [block.text for block in blocks(page) if not block.language]
    assert len(quoted) == 2
    assert [text for text in quoted if text not in source] == []
