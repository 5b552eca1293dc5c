"""The exit codes: numbers, precedence, and agreement with the manual page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.core import errors

CODES = (0, 1, 2, 3, 4, 70, 130, 143)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.EntriesFailed, 1),
        (errors.UsageError, 2),
        (errors.IntegrityError, 3),
        (errors.StoppedEarly, 4),
        (errors.NoSpace, 4),
        (errors.RankLost, 4),
        (errors.Defect, 70),
        (errors.Interrupted, 130),
        (errors.Terminated, 143),
    ],
)
def test_codes_are_those_promised(error: type[errors.PcircleError], code: int) -> None:
    assert error("why").exit_code == code
    assert str(error("why")) == "why"
    assert (error.__doc__ or "").strip()


def test_every_class_is_public() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined <= set(errors.__all__)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 1, 0], 1),
        ([1, 3], 3),
        ([3, 4, 1], 4),
        ([4, 130], 130),
        ([130, 143], 143),
        ([143, 70, 4], 70),
        ([0, 2], 2),
    ],
)
def test_worst(codes: list[int], expected: int) -> None:
    assert errors.worst(codes) == expected


@given(st.lists(st.sampled_from(CODES)), st.lists(st.sampled_from(CODES)))
def test_the_worst_code_does_not_depend_on_grouping(left: list[int], right: list[int]) -> None:
    """A tree of ranks combines partial results first, in any order."""
    together = errors.worst(left + right)
    assert together == errors.worst([errors.worst(right), errors.worst(left)])
    assert (together == 0) == (not any(left + right))


@given(st.integers().filter(lambda code: code not in CODES), st.sampled_from(CODES))
def test_an_unknown_code_is_a_defect(unknown: int, known: int) -> None:
    assert errors.worst([unknown, known]) == 70


@pytest.mark.parametrize(
    ("cause", "text"), [("", "rank 12 was lost"), ("killed", "rank 12 was lost: killed")]
)
def test_which_rank_was_lost_is_read_from_the_text(cause: str, text: str) -> None:
    assert str(errors.RankLost.of(12, cause)) == text
    assert errors.RankLost.rank_in(text) == 12


@pytest.mark.parametrize("text", ["", "rank", "rank x was lost", "rank 3 is late", "3 was lost"])
def test_other_reasons_name_no_lost_rank(text: str) -> None:
    assert errors.RankLost.rank_in(text) is None
