"""The model agrees with the real engine: efficiency within 3 points, messages within 10 %.

The engine runs unchanged in its simulator, every message and every item of it, and the model on the
same trees with the same durations. One run is chance, in both: who happens to hold a long item when
the rest is done. So means of a few seeds are compared. `tox -e soak` plays two thousand ranks too.
"""

from __future__ import annotations

from statistics import mean

import pytest

from pcircle.circle import Settings
from pcircle.scale.machine import Policy
from tests.conftest import SOAK
from tests.scale.calibrating import Outcome, model, real
from tests.sim.work import Forest

pytestmark = pytest.mark.sim

POINTS = 0.03
SHARE = 0.10
MODELS_PER_RUN = 3

CASES = [
    pytest.param("even", 100, 40, 3),
    pytest.param("odd", 100, 40, 3),
    pytest.param("flat", 100, 40, 3),
    pytest.param("even", 200, 20, 3, marks=pytest.mark.slow),
]
if SOAK:
    CASES += [
        pytest.param(shape, ranks, 50, 4)
        for shape in ("even", "odd", "flat")
        for ranks in (300, 1000)
    ]
    CASES += [pytest.param("even", 2000, 50, 1), pytest.param("odd", 2000, 50, 1)]


def forest(shape: str, items: int, salt: int) -> Forest:
    """A tree of equal or of random subtrees, or one wide directory."""
    fan = items if shape == "flat" else 32
    return Forest(salt=salt, size=items, fan=fan, even=shape != "odd", item_s=0.1, early=1.0)


def _mean(outcomes: list[Outcome]) -> Outcome:
    efficiency = mean(outcome.efficiency for outcome in outcomes)
    return Outcome(efficiency, round(mean(outcome.messages for outcome in outcomes)))


@pytest.mark.parametrize("victims", ["random", "auto"])
@pytest.mark.parametrize(("shape", "ranks", "per_rank", "seeds"), CASES)
def test_the_model_agrees_with_the_engine(
    capsys: pytest.CaptureFixture[str],
    shape: str,
    ranks: int,
    per_rank: int,
    seeds: int,
    victims: str,
) -> None:
    played, modelled = [], []
    for seed in range(seeds):
        trees = forest(shape, ranks * per_rank, seed)
        played.append(real(ranks, trees, Settings(victims=victims), seed))
        for other in range(MODELS_PER_RUN):
            modelled.append(model(ranks, trees, Policy(victims=victims), other))
    engine, ours = _mean(played), _mean(modelled)
    with capsys.disabled():
        print(f"\n{shape}, {ranks} ranks, {victims}: engine {engine}; model {ours}")
    assert abs(ours.efficiency - engine.efficiency) <= POINTS
    assert abs(ours.messages - engine.messages) <= SHARE * engine.messages
