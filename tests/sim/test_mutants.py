"""Engines with a known defect: the search must find each of them, or it proves nothing.

Nobody watches their steps here: what is found, is found by what a job came to.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.sim import mutants
from tests.sim.cases import draw
from tests.sim.judge import EngineType, Violation, play

SEEDS = 3000

pytestmark = pytest.mark.sim


def first_violation(engine_type: EngineType, choices: dict[str, Any]) -> Violation | None:
    replace = msgspec.structs.replace
    for seed in range(SEEDS):
        case = draw("ending", seed)
        case = replace(case, settings=replace(case.settings, **choices))
        try:
            play(case, engine_type, watch=False)
        except Violation as violation:
            return violation
    return None


@pytest.mark.parametrize(
    ("engine_type", "choices"),
    [
        (mutants.WithoutCounters, {"structured": False, "termination": "counters"}),
        (mutants.WithStaleReports, {"structured": False, "termination": "counters"}),
        (mutants.WithOverlappingWaves, {"structured": False, "termination": "counters"}),
        (mutants.WithForgottenItems, {"structured": False, "termination": "counters"}),
        (mutants.WithForgottenItems, {"structured": False, "termination": "ring"}),
        (mutants.RingWithoutCounts, {"structured": False, "termination": "ring"}),
        (mutants.RingWithoutBlackening, {"structured": False, "termination": "ring"}),
        (mutants.WithForgottenChild, {"structured": True}),
        (mutants.WithUncountedRefusals, {}),
    ],
)
def test_search_finds_mutant(engine_type: EngineType, choices: dict[str, Any]) -> None:
    violation = first_violation(engine_type, choices)
    assert violation is not None
    assert "python -m tests.sim ending" in str(violation)
