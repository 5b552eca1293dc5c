"""For generated expressions ffind finds the same as find, byte for byte except for the order.

300 expressions, 2,000 with PCIRCLE_SOAK=1, or the number in `FFIND_EXPRESSIONS`; new ones each time
with HYPOTHESIS_PROFILE=explore.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcircle.core.errors import UsageError
from tests.conftest import SOAK
from tests.tools.ffind.calling import find
from tests.tools.ffind.expressions import Answer, Words, answer, by_find, searches

FEW = os.environ.get("HYPOTHESIS_PROFILE") == "quick"
COUNT = int(os.environ.get("FFIND_EXPRESSIONS", "20" if FEW else "2000" if SOAK else "200"))


def by_ffind(words: Words, *, acting: bool) -> Answer | None:
    """Return ffind's results, in this process; None if it refuses the search."""
    try:
        found = find(*words, jobs=1, threads=1)
    except UsageError:
        return None
    return answer(words, found.report.exit_code, found.text, acting=acting)


@pytest.fixture(autouse=True)
def _here(tree: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.fsdecode(tree))
    monkeypatch.setenv("LC_ALL", "C")


@settings(max_examples=COUNT)
@given(data=st.data())
def test_generated_expressions_match_find(tree: bytes, data: st.DataObject) -> None:
    acting = data.draw(st.booleans())
    words = data.draw(searches(acting=acting))
    expected = by_find(tree, words, acting=acting)
    assert by_ffind(words, acting=acting) == expected, b" ".join(words)
