"""Replaying: `pytest tests/sim --family nasty --seed 1234` plays that one case and no other."""

from __future__ import annotations

import pytest

from tests.sim.cases import FAMILIES

CHUNKS = 12


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulator")
    group.addoption("--seed", type=int, help="play one seed of the simulator, not the search")
    group.addoption("--family", choices=FAMILIES, default="nasty", help="the family of --seed")
