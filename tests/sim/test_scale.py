"""Hundreds of virtual ranks on fifty thousand directories, and a comparison of policies.

``tox -e soak`` plays two thousand ranks on two hundred thousand as well, which takes a minute or
two. `pytest tests/sim/test_scale.py` prints the figures: balance of the work, numbers of messages
and steals, and the speed-up in virtual time. They are the same in every run; the tests assert
bounds on counts, with room for another seed, never a time.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from pcircle.circle import EngineSettings
from pcircle.transport._sim import Conditions
from tests.conftest import SOAK
from tests.sim.cases import Case
from tests.sim.judge import Run, play
from tests.sim.work import Forest

pytestmark = pytest.mark.sim

CORES_PER_NODE = 32
RANKS = (500, 2000) if SOAK else (500,)


def cluster(ranks: int, directories: int, **choices: Any) -> Case:
    """Return a tree of directories that take 0.1 s on average, on nodes of 32 ranks."""
    return Case(
        family="scale",
        seed=0,
        nodes=tuple(rank // CORES_PER_NODE for rank in range(ranks)),
        settings=EngineSettings(progress_period_s=1.0, **choices),
        forest=Forest(salt=7, size=directories, fan=32, item_s=0.1),
        conditions=Conditions(near_s=5e-6, far_s=3e-5, step_s=2e-5),
        limit_s=1e6,
    )


class Figures:
    """The costs and results of a run."""

    def __init__(self, run: Run) -> None:
        size, ranks = run.case.forest.size, run.case.ranks
        assert run.record.concluded_s is not None
        self.items = sorted(player.items for player in run.players)
        activities = [engine.activity for engine in run.engines]
        self.asked = sum(activity.asked for activity in activities)
        self.got = sum(activity.got for activity in activities)
        self.taken = sum(activity.parcels_got for activity in activities)
        self.messages_per_item = run.network.messages / size
        self.far_per_item = run.network.far_messages / size
        self.speed_up = run.case.forest.work_s() / run.record.concluded_s
        self.efficiency = self.speed_up / ranks
        self.balance = self.items[-1] * ranks / size

    def __str__(self) -> str:
        return (
            f"items per rank {self.items[0]} / {median(self.items):.0f} / {self.items[-1]} "
            f"(min, median, max; max is {self.balance:.2f} of the mean), "
            f"{self.messages_per_item:.2f} messages per item, {self.far_per_item:.2f} of them "
            f"between nodes, {self.asked} requests, "
            f"{self.got} steals of {self.taken / max(1, self.got):.1f} items, "
            f"speed-up {self.speed_up:.0f} ({100 * self.efficiency:.0f} %)"
        )


@pytest.mark.slow
@pytest.mark.parametrize("ranks", RANKS)
def test_work_is_even_and_cheap(ranks: int, capsys: pytest.CaptureFixture[str]) -> None:
    run = play(cluster(ranks, 100 * ranks), watch=False)
    figures = Figures(run)
    with capsys.disabled():
        print(f"\n{ranks} ranks, {100 * ranks} directories: {figures}")
    assert figures.messages_per_item < 10
    assert figures.far_per_item < 3.5
    assert figures.items[0] >= 40
    assert figures.balance < 2
    assert figures.efficiency > 0.7


@pytest.mark.parametrize(
    "choices",
    [
        {"victims": "random", "split": "random", "termination": "counters"},
        {"victims": "random", "split": "equal", "termination": "counters"},
        {"victims": "nearest", "split": "random", "termination": "counters"},
        {"victims": "nearest", "split": "equal", "termination": "counters"},
        {"victims": "random", "split": "random", "termination": "ring"},
    ],
    ids=lambda choices: "-".join(choices.values()),
)
def test_policies_at_hundreds_of_ranks(
    choices: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = 200 if SOAK else 100
    # Unstructured, so that the detector ends the job.
    run = play(cluster(ranks, 100 * ranks, structured=False, **choices), watch=False)
    figures = Figures(run)
    with capsys.disabled():
        print(f"\n{ranks} ranks, {' '.join(choices.values())}: {figures}")
    assert figures.messages_per_item < 8
    assert figures.balance < 2
    assert figures.efficiency > 0.7
