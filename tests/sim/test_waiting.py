"""An item that waits for an item that depends on its own bundle.

The file X is copied in chunks, and Y is another name of it. A chunk and Y are stolen together. Y
waits for X, and X for its chunk: so the chunk's result must not wait for Y's.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pcircle.circle import Engine, EngineSettings
from pcircle.circle import instructions as do
from pcircle.circle.messages import Message
from tests.sim import mutants

STEP_S = 0.001


class Pair:
    """Two ranks: the first finishes its work only when the second has stolen."""

    def __init__(self, engine_type: type[Engine[Any, Any]]) -> None:
        settings = EngineSettings(tries=0, ahead=0)
        self.engines = [
            engine_type(rank, 2, merge=add, rng=Random(rank), settings=settings) for rank in (0, 1)
        ]
        self.flying: list[tuple[int, int, Message]] = []
        self.x: int | None = None  # the ticket of a long item, at the first rank
        self.y: int | None = None  # the ticket of the waiting item, at the second rank
        self.done: list[str] = []  # the order of completion
        self.end: Any = None
        self.now_s = 0.0

    def play(self) -> None:
        """Play until the job ends, or for ten seconds."""
        first, second = self.engines
        # The second rank waits once it has registered, not from the start.
        first.sharing.lifelines.got(1)
        second.sharing.lifelines.got(0)
        first.seed(["Y", "X"], 0.0)
        while self.end is None and self.now_s < 10:
            self.now_s += STEP_S
            if self.x is not None and self.now_s > 10 * STEP_S:
                ticket, self.x = self.x, None
                first.finished(ticket, 1, self.now_s)
            for engine in self.engines:
                engine.tick(self.now_s)
                for instruction in engine.take():
                    self._carry_out(engine, instruction)
            flying, self.flying = self.flying, []
            for source, dest, message in flying:
                self.engines[dest].receive(source, message, self.now_s)

    def _carry_out(self, engine: Engine[Any, Any], instruction: do.Instruction[str, int]) -> None:
        now_s = self.now_s
        if isinstance(instruction, do.Send):
            self.flying.append((engine.rank, instruction.dest, instruction.message))
        elif isinstance(instruction, do.StartItem):
            self._run(engine, instruction.ticket, instruction.item)
        elif isinstance(instruction, do.CompleteItem):
            self.done.append(instruction.item)
            if self.done == ["X"]:  # the first time: again, when the posted item has run
                engine.posted(instruction.ticket, 1, ["X is there"], now_s)
            engine.finished(instruction.ticket, 1, now_s)
        elif isinstance(instruction, do.Conclude):
            self.end = instruction
            engine.conclude(0, now_s)

    def _run(self, engine: Engine[Any, Any], ticket: int, item: str) -> None:
        now_s = self.now_s
        if item == "X":
            # Half of the remaining items are stolen: Y and the first chunk.
            engine.spawned(ticket, ["stolen", "chunk", "chunk"], now_s)
            self.x = ticket
            return  # it runs for a while
        elif item == "Y":
            self.y = ticket
            engine.held(ticket, now_s)
        elif item == "X is there":
            assert self.y is not None
            self.engines[1].resumed(self.y, (), 1, now_s)

        engine.finished(ticket, 1, now_s)


def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    ("engine_type", "ends"),
    [
        (Engine, True),
        (mutants.WithUnansweredBundles, False),
        (mutants.WithIdleOwers, False),
    ],
)
def test_a_part_of_a_bundle_returns_before_parts_that_wait_for_it(
    engine_type: type[Engine[Any, Any]], ends: bool
) -> None:
    pair = Pair(engine_type)
    pair.play()
    assert pair.engines[1].activity.parcels_got >= 2
    ended_well = pair.end is not None and pair.end.account.code == 0
    assert ended_well == ends
