"""The model agrees with the real engine: efficiency within 3 points, messages within 10 %.

The engine runs unchanged in its simulator, with every message and item, and the model on the same
trees with the same durations. A single run is random in both: a rank may have a long item when all
others are done. So means of a few seeds are compared, with several runs of the model for each of
the engine's. `tox -e soak` plays two thousand ranks too.
"""

from __future__ import annotations

import itertools

import pytest

from pcircle.circle import EngineSettings
from pcircle.circle.instructions import with_policies
from tests.conftest import SOAK
from tests.tools.scale.calibrating import grown, model, real, together

pytestmark = pytest.mark.sim

POINTS = 0.03
SHARE = 0.10
MODELS_PER_RUN = 3

# Ranks, items per rank, and trees: with few ranks trees differ the most.
CASES = [(100, 20, 6), (500, 10, 1)]
if SOAK:
    CASES += [(100, 40, 12), (500, 50, 3), (2000, 50, 2)]


JOBS = [
    *itertools.product(CASES, ("balanced", "geometric", "flat"), ("steal=random", "")),
    *itertools.product([(100, 20, 2)], ["flat"], ("split=half", "steal=lifelines")),
]


@pytest.mark.parametrize(("case", "shape", "policies"), JOBS)
def test_the_model_agrees_with_the_engine(
    capsys: pytest.CaptureFixture[str], case: tuple[int, int, int], shape: str, policies: str
) -> None:
    ranks, per_rank, seeds = case
    settings = with_policies(EngineSettings(), policies) if policies else EngineSettings()
    played, modelled = [], []
    for seed in range(seeds):
        tree = grown(shape, ranks * per_rank, seed)
        played.append(real(ranks, tree, settings, seed))
        for other in range(MODELS_PER_RUN):
            drawn = MODELS_PER_RUN * seed + other
            modelled.append(model(ranks, tree, settings, drawn))
    engine, ours = together(played), together(modelled)
    with capsys.disabled():
        print(f"\n{shape}, {ranks} ranks, {per_rank} items each, {policies or 'defaults'}:")
        print(f"  engine {engine}\n  model  {ours}")
    assert abs(ours.efficiency - engine.efficiency) <= POINTS
    assert abs(ours.messages - engine.messages) <= SHARE * engine.messages
