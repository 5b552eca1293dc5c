"""Cases are selected by cost and seed, independently of the order of collection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import drawing

DEAR, CHEAP, MIDDLE = (f"tests/test_x.py::test_{name}" for name in ("dear", "cheap", "middle"))
NODES = [f"{function}[{n}]" for function in (DEAR, CHEAP, MIDDLE) for n in range(40)]


@pytest.fixture(autouse=True)
def _costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {DEAR: drawing.DEAR + 1.0, MIDDLE: 1 / 3}
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    monkeypatch.setattr(drawing, "COSTS", tmp_path / "costs.json")


def test_the_budget_limits_the_number_of_cases() -> None:
    found = [drawing.function_of(node) for node in drawing.drawn(NODES, "1", 1.0)]
    assert found.count(DEAR) == 0
    assert found.count(MIDDLE) == 3
    assert found.count(CHEAP) == int(1 / drawing.CHEAP_S)
    assert len(set(drawing.drawn(NODES, "1", 1.0))) == len(found)


def test_a_seed_determines_the_selection() -> None:
    once = set(drawing.drawn(NODES, "1", 1.0))
    assert set(drawing.drawn(NODES[::-1], "1", 1.0)) == once
    assert set(drawing.drawn([*NODES, "tests/test_y.py::test_more"], "1", 1.0)) > once
    assert set(drawing.drawn(NODES, "2", 1.0)) != once


def test_a_case_of_expensive_tests_runs() -> None:
    drawing.COSTS.write_text(json.dumps({MIDDLE: drawing.DEAR}))
    assert len(list(drawing.drawn([MIDDLE], "1", 1.0))) == 1


def test_each_case_is_drawn_by_some_seed() -> None:
    days = (drawing.drawn(NODES, str(day), 1.0) for day in range(200))
    assert {node for day in days for node in day} == {n for n in NODES if DEAR not in n}
