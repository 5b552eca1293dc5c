"""Counts fail when they grow by more than a tenth, and the update command records them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests import counts, strace


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PCIRCLE_UPDATE_COUNTS", raising=False)
    path = tmp_path / "counts.json"
    path.write_text(json.dumps({"tool": {"calls": 100}}))
    return path


@pytest.mark.parametrize("number", [0, 100, 110])
def test_a_count_may_shrink_or_grow_by_a_tenth(table: Path, number: int) -> None:
    counts.check("tool", lambda: {"calls": number}, table)


@pytest.mark.parametrize(
    ("subject", "found"),
    [("tool", {"calls": 111}), ("tool", {"calls": 100, "new": 0}), ("unknown", {"calls": 1})],
)
def test_a_count_that_grows_or_is_not_recorded_fails(
    table: Path, subject: str, found: dict[str, int]
) -> None:
    with pytest.raises(pytest.fail.Exception):
        counts.check(subject, lambda: found, table)


def test_a_count_that_is_too_high_once_is_counted_again(table: Path) -> None:
    numbers = iter([200, 100])
    counts.check("tool", lambda: {"calls": next(numbers)}, table)
    assert list(numbers) == []


def test_the_command_records_the_middle_one(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCIRCLE_UPDATE_COUNTS", "1")
    numbers = iter([300, 7, 150])
    counts.check("tool", lambda: {"calls": next(numbers)}, table)
    counts.check("other", lambda: {"calls": 0}, table)
    assert json.loads(table.read_text()) == {"other": {"calls": 0}, "tool": {"calls": 150}}


def test_the_first_of_two_runs_makes_a_growth_too_high() -> None:
    numbers = iter([50, 10])
    assert counts.growth(lambda: next(numbers), lambda: next(numbers)) == 40


def test_calls_are_found_in_a_trace() -> None:
    text = '7 openat(1, "a", 0) = 2\n8 futex(0x1 <unfinished ...>\n7 newfstatat(2, "", 0) = 0\n'
    found = counts.by_name(strace.parse(text + "8 <... futex resumed>) = 0\n"))
    assert found == Counter(openat=1, futex=1, fstat=1)
    assert counts.total(found) == 2
