"""Options for replays: `pytest tests/sim/test_search.py -k one_seed --family nasty --seed 1234`."""

from __future__ import annotations

import pytest

from tests.sim.cases import FAMILIES


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulator")
    group.addoption("--seed", type=int, help="the seed that test_one_seed plays")
    group.addoption("--family", choices=FAMILIES, default="nasty", help="the family of --seed")
