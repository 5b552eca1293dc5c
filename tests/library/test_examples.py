"""The examples in the docstrings of the functions run."""

from __future__ import annotations

import doctest
import inspect
import os
from pathlib import Path

import pytest

import pcircle
from pcircle.library.call import FUNCTIONS


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
