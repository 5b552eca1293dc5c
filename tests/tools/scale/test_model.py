"""The abstract protocol: every item once, the same for any step size, and its costs."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from pcircle.circle import EngineSettings
from pcircle.circle.topology import NodeMap
from pcircle.circle.topology import TreePosition as EngineTree
from pcircle.simulation.job import Figures, SimulatedTask, ideal_s, play
from pcircle.simulation.model import RUN, Simulation
from pcircle.simulation.waves import WORKING, RankTree, Waves, round_duration_s
from pcircle.simulation.work_model import (
    ASK,
    DRAIN,
    ETHERNET,
    GATHER,
    INFINIBAND,
    LAST_LOOSE,
    NONE,
    QUIESCE,
    STOP,
    Machine,
    SimulatedRank,
    SimulationTotals,
)

SHAPES = ("files", "balanced", "geometric", "flat")
SETTINGS = (
    EngineSettings(),
    EngineSettings(victims="random", split="equal", arity=2),
    EngineSettings(tries=0),
    EngineSettings(share_limit=3, combine_s=0.0, queue_high=8, ahead=0),
)


def task(shape: str, items: int) -> SimulatedTask:
    """Return a task of about the given number of items of a tenth of a second."""
    if shape == "files":
        return SimulatedTask(shape, items * 50, items // 2, 100, 0.002)
    return SimulatedTask(shape, 0, 0, 300, 0.0, items, 0.1)


class Watched(Simulation):
    """A simulation whose ranks can be inspected after its end."""

    @property
    def under_way(self) -> list[int]:
        """Return the messages that no rank has received."""
        return [event[2] for event in self.events if event[2] <= STOP]

    def check(self, counts: SimulationTotals) -> None:
        """Check that everything was done, and nothing is left."""
        assert counts.items == self.tree.items
        for rank in self.ranks:
            assert rank.current == NONE
            assert rank.ahead == NONE
            assert rank.stack == []
            assert (rank.queued, rank.owing) == (0, 0)
        assert not self.under_way


class Stepwise(Watched):
    """A simulation that checks every rank whenever an item spawns children or ends."""

    def _schedule(self, rank: SimulatedRank) -> None:
        rank.version += 1
        if rank.current != NONE:
            due_s = rank.spawn_s if rank.spawn_s >= 0 else rank.until_s
            self._push(due_s, RUN, rank.number, rank.version, None)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 13, 64, 100])
def test_every_item_is_done_once(shape: str, settings: EngineSettings, ranks: int) -> None:
    tree = task(shape, 20 * ranks).tree(ranks)
    machine = Machine(ranks_per_node=8, look_s=0.004 if ranks == 13 else 0.0)
    job = Watched(tree, ranks, machine, settings, 5)
    counts = job.run()
    job.check(counts)
    assert tree.bound_s(ranks) <= counts.last_work_s * (1 + 1e-9)
    assert counts.last_work_s <= counts.root_s <= counts.stopped_s


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_rank_needs_no_event_for_each_item(shape: str, settings: EngineSettings) -> None:
    tree = task(shape, 3000).tree(1)
    whole, stepwise = (kind(tree, 32, ETHERNET, settings, 2) for kind in (Watched, Stepwise))
    one, other = (msgspec.structs.asdict(job.run()) for job in (whole, stepwise))
    assert one.pop("messages") == other.pop("messages")
    assert one.pop("events") < other.pop("events")
    assert one == pytest.approx(other)


def test_one_rank_takes_as_long_as_the_work() -> None:
    figures = play(task("files", 1000), 1, ETHERNET, EngineSettings(), 1)
    assert figures.time_s == pytest.approx(figures.work_s)
    assert figures.messages == 0
    assert figures.efficiency == pytest.approx(1)


def test_the_same_seed_is_the_same_job() -> None:
    first, again, other = (
        play(task("geometric", 3000), 64, ETHERNET, EngineSettings(), s) for s in (1, 1, 2)
    )
    assert first == again != other


def test_ranks_that_rely_on_lifelines_send_no_requests() -> None:
    job = Simulation(task("flat", 2000).tree(1), 100, ETHERNET, EngineSettings(tries=0), 1)
    assert job.run().messages[ASK] == 0


@pytest.mark.parametrize("other", [{"termination": "ring"}, {"workers": 2}, {"structured": False}])
def test_settings_that_are_not_modelled_are_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="only structured work"):
        Simulation(task("flat", 10).tree(1), 4, ETHERNET, EngineSettings(**other))


@pytest.mark.parametrize("per_node", [1, 3, 64, 5000])
@pytest.mark.parametrize("arity", [1, 2, 8])
@pytest.mark.parametrize("ranks", [1, 2, 9, 10, 63, 100, 1000])
def test_the_tree_of_ranks_is_that_of_the_engine(ranks: int, arity: int, per_node: int) -> None:
    tree = RankTree(ranks, arity, per_node)
    places = NodeMap([rank // per_node for rank in range(ranks)])
    real = [EngineTree(rank, ranks, arity, places) for rank in range(ranks)]
    assert tree.parents.tolist() == [-1, *(position.parent for position in real[1:])]
    assert [tree.children(rank) for rank in range(ranks)] == [
        list(position.children) for position in real
    ]
    depths = {rank: depth for depth, level in enumerate(tree.levels()) for rank in level.tolist()}
    assert depths == {position.rank: position.depth for position in real}


@pytest.mark.parametrize("ranks", [1, 2, 9, 10, 100, 1000])
def test_a_round_takes_as_long_as_its_slowest_path(ranks: int) -> None:
    machine = Machine(ranks_per_node=1, jitter=0.0)
    slowest = round_duration_s(RankTree(ranks, 8, 1), machine, np.random.default_rng(1))
    step_s = machine.far_s + machine.message_s
    height = EngineTree(0, ranks, 8).height
    # The way up is as slow as the way down, and a rank with several children must wait for all.
    assert 2 * height * step_s <= slowest * (1 + 1e-9)
    assert slowest <= 2 * height * step_s + 7 * height * machine.message_s


def one_by_one(tree: RankTree, machine: Machine) -> float:
    """Run a round, message by message."""

    def travel_s(a: int, b: int) -> float:
        same = a // machine.ranks_per_node == b // machine.ranks_per_node
        return machine.near_s if same else machine.far_s

    times = [0.0] * tree.size
    order = [rank for level in tree.levels() for rank in level.tolist()]
    for rank in order:
        for child in tree.children(rank):
            times[child] = times[rank] + travel_s(rank, child) + machine.message_s
    for rank in reversed(order):
        is_free_s = 0.0
        for at_s in sorted(times[child] + travel_s(child, rank) for child in tree.children(rank)):
            is_free_s = max(is_free_s, at_s) + machine.message_s
        times[rank] = max(times[rank], is_free_s)
    return times[0]


@pytest.mark.parametrize("per_node", [1, 3, 64, 5000])
@pytest.mark.parametrize("arity", [1, 2, 8])
@pytest.mark.parametrize("ranks", [1, 2, 9, 10, 63, 300])
def test_a_round_is_its_messages(ranks: int, arity: int, per_node: int) -> None:
    machine = Machine(ranks_per_node=per_node, jitter=0.0)
    tree = RankTree(ranks, arity, per_node)
    round_s = round_duration_s(tree, machine, np.random.default_rng(1))
    assert round_s == pytest.approx(one_by_one(tree, machine))


class Waiting:
    """Ranks that are passive or not, and messages that arrive at once."""

    def __init__(self, ranks: int, arity: int) -> None:
        self.passive = [True] * ranks
        self.sums = [(0, 0)] * ranks
        self.sent: list[int] = []
        self.alarms: list[float] = []
        tree = RankTree(ranks, arity, ranks)
        self.waves = Waves(
            tree.parents.tolist(),
            tree.children,
            self.send,
            self.alarms.append,
            lambda rank, kind: self.passive[rank],
            lambda rank, kind: self.sums[rank],
        )

    def send(
        self, source: int, dest: int, kind: int, body: tuple[int, int] | None, at_s: float
    ) -> None:
        self.sent.append(kind)
        self.waves.handle(dest, kind, body, at_s)


def test_a_wave_waits_while_a_rank_works() -> None:
    job = Waiting(4, 2)
    job.passive[2] = False
    job.sums[1] = (3, 2)
    job.waves.passive(0, 0.0)
    assert job.sent == [QUIESCE] * (3 + 2)  # 3 has reported, so 1 has; 2 has not, so 0 has not
    job.passive[0], job.passive[2] = False, True
    job.waves.passive(2, 0.0)
    job.waves.passive(2, 0.0)
    assert len(job.sent) == 3 + 3
    job.passive[0] = True
    job.waves.passive(0, 1.0)  # it closes the wave; a message is in transit, so there will be more
    assert len(job.sent) == 3 + 3
    assert job.alarms == [pytest.approx(1.0005)]
    job.waves.passive(0, 1.0001)
    assert len(job.sent) == 3 + 3
    job.waves.passive(0, 1.0006)
    assert len(job.sent) == 2 * (3 + 3)
    assert job.alarms[1] == pytest.approx(1.0016)
    assert job.waves.phases == [WORKING] * 4


def test_the_end_takes_a_round_and_a_message() -> None:
    job = Waiting(10, 8)
    job.sums[3], job.sums[9] = (5, 4), (0, 1)
    job.waves.complete(2.0)
    assert job.sent == [GATHER] * 18 + [STOP] * 9
    assert job.waves.stopped == 10


def test_if_messages_are_left_they_are_drained_before_the_end() -> None:
    job = Waiting(10, 8)
    job.sums[3] = (5, 4)
    job.waves.complete(2.0)
    assert job.sent == [GATHER] * 18 + [DRAIN] * 18
    assert job.alarms == [pytest.approx(2.0005)]
    job.sums[9] = (0, 1)
    job.waves.passive(0, 2.0005)
    assert [job.sent.count(kind) for kind in (DRAIN, GATHER, STOP)] == [36, 18, 9]
    assert job.waves.stopped == 10


def test_a_job_ends_with_some_messages_a_rank() -> None:
    counts = Simulation(task("flat", 5000).tree(1), 500, ETHERNET, EngineSettings(), 1).run()
    loose = sum(counts.messages[: LAST_LOOSE + 1])
    assert counts.messages[GATHER] == 2 * 499
    assert counts.messages[STOP] == 499
    for kind, least in ((QUIESCE, 998), (DRAIN, 0)):
        assert counts.messages[kind] % 998 == 0
        assert least <= counts.messages[kind] <= 5 * 998
    assert sum(counts.messages) - loose == sum(counts.messages[QUIESCE:])


def test_late_polls_cost_time() -> None:
    late = msgspec.structs.replace(ETHERNET, look_s=0.004)
    prompt, slow = (
        play(task("flat", 10_000), 256, machine, EngineSettings(), 1)
        for machine in (ETHERNET, late)
    )
    assert slow.efficiency < prompt.efficiency


def bars(shape: str, ranks: int, per_rank: int, machine: Machine, seed: int) -> Figures:
    """Return a job of items of 100 ms."""
    return play(task(shape, ranks * per_rank), ranks, machine, EngineSettings(), seed)


@pytest.mark.parametrize("machine", [ETHERNET, INFINIBAND], ids=["ethernet", "infiniband"])
def test_a_thousand_ranks(machine: Machine) -> None:
    ranks = 1000
    even = bars("balanced", ranks, 30, machine, 1)
    odd = bars("geometric", ranks, 30, machine, 1)
    wide = bars("flat", ranks, 10, machine, 1)
    assert even.of_ideal > 0.9
    assert odd.of_ideal > 0.8
    assert wide.of_ideal > 0.7
    for figures in (even, odd, wide):
        assert figures.max_inbox < 300


def test_the_ideal_is_better() -> None:
    tree = task("geometric", 5000).tree(1)
    counts = Simulation(tree, 50, ETHERNET, EngineSettings(), 1).run()
    assert ideal_s(tree, 50)[0] < counts.root_s
