"""Tests of examples/word_lengths.py: `python -m pytest examples/test_word_lengths.py`."""

from __future__ import annotations

from examples.word_lengths import Lengths
from pcircle import testing

WORDS = ["a", "tree", "is", "walked", "by", "all", "of", "us", "at", "once", "and", "in", "parts"]
COUNTS = {1: 1, 2: 6, 3: 2, 4: 2, 5: 1, 6: 1}


def make() -> Lengths:
    return Lengths(WORDS)


def test_lengths() -> None:
    testing.check(make, expected=COUNTS)


def test_no_words() -> None:
    testing.check(lambda: Lengths([]), expected=None)


@testing.each(range(20), ranks=(2, 7), lost=1)
def test_lengths_when_a_rank_is_lost(case: testing.Case) -> None:
    run = testing.check_case(make, case, expected=COUNTS)
    assert run.code in (0, 4)
