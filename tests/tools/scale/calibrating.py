"""The same job in two simulators: the real engine with every message, and the abstract model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from statistics import mean
from typing import Any

import msgspec

from pcircle.circle import EngineSettings
from pcircle.circle.messages import (
    BundleResults,
    LifelineRequest,
    StealRefusal,
    StealRequest,
    TreeBroadcast,
    TreeReduction,
    WorkTransfer,
)
from pcircle.simulation import work_model
from pcircle.simulation.job import SimulatedTask
from pcircle.simulation.model import Simulation
from pcircle.simulation.tree import ItemTree
from pcircle.simulation.work_model import Machine
from pcircle.transport._sim import Conditions, Network
from tests.sim.cases import Case
from tests.sim.judge import Run
from tests.sim.work import Forest, Item

MACHINE = Machine(ranks_per_node=32, near_s=5e-6, far_s=3e-5, jitter=0.5, message_s=2e-5)
KINDS = ("ask", "refuse", "answer", "push", "wait", "returns", "quiesce", "drain", "gather", "stop")
_BY_TYPE: dict[Any, int] = {
    StealRequest: work_model.ASK,
    StealRefusal: work_model.REFUSE,
    LifelineRequest: work_model.WAIT,
    BundleResults: work_model.RETURNS,
}


class Outcome(msgspec.Struct, frozen=True):
    """A simulator's result for a job, or the mean of several: `by_kind` are messages."""

    efficiency: float
    by_kind: tuple[float, ...]

    @property
    def messages(self) -> float:
        """Return the total number of messages."""
        return sum(self.by_kind)

    def __str__(self) -> str:
        kinds = ", ".join(
            f"{name} {count:,.0f}" for name, count in zip(KINDS, self.by_kind, strict=True)
        )
        return f"{100 * self.efficiency:.1f} %, {self.messages:,.0f} messages: {kinds}"


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the mean of several results."""
    columns = zip(*(outcome.by_kind for outcome in outcomes), strict=True)
    return Outcome(mean(outcome.efficiency for outcome in outcomes), tuple(map(mean, columns)))


def grown(shape: str, items: int, seed: int) -> ItemTree:
    """Return a tree of items of half to one and a half of 100 ms.

    With exponential times a few long items determine when a short job ends.
    """
    return SimulatedTask(shape, items=items, item_s=0.1).tree(seed)


class Planted(Forest, frozen=True):
    """The tree of the model for the engine: a range is an item's number and the end of its subtree.

    The last one that is spawned is run first.
    """

    below: Callable[[Item], list[Item]] = lambda item: []

    def children(self, item: Item) -> list[Item]:
        return self.below(item)


def planted(tree: ItemTree) -> Planted:
    """Return the tree of the model."""
    numbers = {place: number for number, place in enumerate(tree.place)}

    def below(item: Item) -> list[Item]:
        number = numbers[item[0]]
        first = tree.first_child[number]
        children = range(first, first + tree.children[number])
        return [
            (tree.place[child], tree.place[child] + tree.size[child]) for child in children[::-1]
        ]

    return Planted(size=tree.items, item_s=tree.work_s / tree.items, early=1.0, below=below)


class _Counting(Network):
    """A network that counts messages by kind."""

    by_kind: Counter[int]

    def send(self, source: int, dest: int, payload: Any) -> None:
        self.by_kind[_kind(payload)] += 1
        super().send(source, dest, payload)


def _kind(message: Any) -> int:
    if isinstance(message, WorkTransfer):
        return work_model.ANSWER if message.is_answer else work_model.PUSH
    if isinstance(message, TreeBroadcast | TreeReduction):
        return work_model.QUIESCE + message.kind - 1
    return _BY_TYPE[type(message)]


def real(ranks: int, tree: ItemTree, settings: EngineSettings, seed: int = 0) -> Outcome:
    """Return the result of the engine."""
    forest = planted(tree)
    case = Case(
        family="scale",
        seed=seed,
        nodes=tuple(rank // MACHINE.ranks_per_node for rank in range(ranks)),
        settings=settings,
        forest=forest,
        conditions=Conditions(
            near_s=MACHINE.near_s,
            far_s=MACHINE.far_s,
            jitter=MACHINE.jitter,
            step_s=MACHINE.message_s,
        ),
        limit_s=inf,
    )
    run = Run(case, watch=False)
    run.network.__class__ = _Counting
    counted: Any = run.network
    counted.by_kind = Counter()
    until = tree.until_s
    for player in run.players:
        player.duration_s = lambda item: until[item[0] + 1] - until[item[0]]
    run.play()
    assert bytes(run.record.processed) == b"\1" * tree.items
    by_kind = tuple(float(counted.by_kind[kind]) for kind in range(work_model.STOP + 1))
    assert sum(by_kind) == run.network.messages
    stopped_s = max(outcome.at_s for outcome in run.outcomes if outcome is not None)
    return Outcome(tree.work_s / ranks / stopped_s, by_kind)


def model(ranks: int, tree: ItemTree, settings: EngineSettings, seed: int = 0) -> Outcome:
    """Return the result of the model."""
    counts = Simulation(tree, ranks, MACHINE, settings, seed).run()
    efficiency = tree.work_s / ranks / counts.stopped_s
    return Outcome(efficiency, tuple(map(float, counts.messages)))
