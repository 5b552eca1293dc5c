"""The same job in two simulators: the real engine with every message, and the abstract model."""

from __future__ import annotations

from math import inf

import msgspec
import numpy as np

from pcircle.circle import Settings
from pcircle.scale.job import Task, play_tree
from pcircle.scale.machine import Machine, Policy
from pcircle.scale.tree import Tree
from pcircle.transport._sim import Conditions
from tests.sim.cases import Case
from tests.sim.judge import Run
from tests.sim.work import Forest, Item, unit

MACHINE = Machine(ranks_per_node=32, near_s=5e-6, far_s=3e-5, jitter=0.5, message_s=2e-5)


class Outcome(msgspec.Struct, frozen=True):
    """What a simulator says of a job."""

    efficiency: float
    messages: int

    def __str__(self) -> str:
        return f"{100 * self.efficiency:.1f} %, {self.messages:,} messages"


def duration_s(forest: Forest, item: Item) -> float:
    """How long an item takes: half to one and a half of the mean.

    With the exponential times of `Forest` few long items decide when a short job ends.
    """
    return forest.item_s * (0.5 + unit(forest.salt + 31 * item[0] + 17))


def real(ranks: int, forest: Forest, settings: Settings, seed: int = 0) -> Outcome:
    """The engine's."""
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
    for player in run.players:
        player.duration_s = lambda item: duration_s(forest, item)
    run.play()
    assert run.record.concluded_s is not None
    assert bytes(run.record.processed) == b"\1" * forest.size
    work_s = sum(duration_s(forest, (number, number)) for number in range(forest.size))
    return Outcome(work_s / ranks / run.record.concluded_s, run.network.messages)


def grown(forest: Forest) -> Tree:
    """The tree of a forest: level by level, the children of each in the order they are run in."""
    counts, durations = [], []
    level = forest.roots()
    while level:
        below: list[Item] = []
        for item in level:
            children = forest.children(item)[::-1]
            counts.append(len(children))
            durations.append(duration_s(forest, item))
            below += children
        level = below
    return Tree(np.array(counts), np.array(durations))


def model(ranks: int, forest: Forest, policy: Policy, seed: int = 0) -> Outcome:
    """The model's."""
    figures = play_tree(grown(forest), Task(), ranks, MACHINE, policy, seed)
    return Outcome(figures.efficiency, figures.messages)
