"""The promises of the protocol at scale, checked in the model: `tox -e soak` for full size.

Every run uses a tenth of the ranks, with bounds that allow for another seed. Times are the
simulation's own, the same in every run.
"""

from __future__ import annotations

import pytest

from pcircle.circle import EngineSettings
from pcircle.simulation.job import Figures, SimulatedTask, play
from pcircle.simulation.work_model import ETHERNET, INFINIBAND, Machine
from tests.conftest import SOAK

pytestmark = pytest.mark.sim

MANY = 10_000 if SOAK else 1000
MOST = 100_000
SEEDS = (1, 2, 3) if SOAK else (1,)
ITEM_S = 0.1
MAX_INBOX = 300

every_network = pytest.mark.parametrize(
    "machine", [ETHERNET, INFINIBAND], ids=["ethernet", "infiniband"]
)
every_seed = pytest.mark.parametrize("seed", SEEDS)


def figures(shape: str, ranks: int, per_rank: int, machine: Machine, seed: int) -> Figures:
    """Return the figures of a job of items of a tenth of a second."""
    task = SimulatedTask(shape, 0, 0, 300, 0.0, ranks * per_rank, ITEM_S)
    return play(task, ranks, machine, EngineSettings(), seed)


@every_network
@every_seed
def test_a_wide_directory_reaches_all_ranks(machine: Machine, seed: int) -> None:
    found = figures("flat", MANY, 10, machine, seed)
    assert found.of_ideal >= 0.85
    assert found.max_inbox < MAX_INBOX
    # All work exists at one moment, on one rank.
    assert found.half_busy_latencies is not None
    assert found.half_busy_latencies <= 5
    assert found.messages_per_entry < 0.03
    assert found.stop_rounds <= 3


@every_network
@every_seed
def test_an_unbalanced_tree_is_shared(machine: Machine, seed: int) -> None:
    found = figures("geometric", MANY, 100, machine, seed)
    assert found.of_bound >= 0.8
    assert found.max_inbox < MAX_INBOX
    assert found.messages_per_entry < 0.01
    assert found.stop_rounds <= 3


@every_network
@every_seed
def test_a_balanced_tree_is_shared(machine: Machine, seed: int) -> None:
    found = figures("balanced", MOST if SOAK else MANY, 100, machine, seed)
    assert found.of_ideal >= 0.95
    assert found.efficiency >= 0.95
    assert found.stop_rounds <= 3
    assert found.max_inbox < MAX_INBOX
    assert found.messages_per_entry < 0.01
