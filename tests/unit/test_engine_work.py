"""The engine counts its items and looks for work again whenever there was some."""

from __future__ import annotations

from random import Random

import pytest

from pcircle.circle import Engine, EngineSettings
from pcircle.circle.instructions import SpillSegment, StartItem
from pcircle.circle.messages import Parcel, PinnedWork
from pcircle.circle.stealing import RandomVictims, Thief
from pcircle.circle.termination import FourCounter, TokenRing
from pcircle.transport._sim import Conditions
from tests.sim.cases import Case
from tests.sim.judge import play
from tests.sim.work import Forest


@pytest.mark.sim
def test_each_started_item_counts_once() -> None:
    """The ranks' numbers of items add up to the number of items of the job."""
    forest = Forest(size=80, fan=5, item_s=0.01)
    run = play(Case("promise", 0, (0,) * 4, EngineSettings(), forest, Conditions()))
    assert sum(engine.activity.items for engine in run.engines) == 80


def test_pinned_work_starts_the_attempts_again() -> None:
    """A rank that has received an item for itself asks others for more when that has ended."""
    engine: Engine[int, int] = Engine(1, 9, merge=int.__add__, rng=Random(1))
    assert engine.sharing.thief.waits, "at the start only rank 0 has work"
    engine.receive(0, PinnedWork((Parcel(7, None),)), 0.0)
    assert [each.item for each in engine.take() if isinstance(each, StartItem)] == [7]
    assert not engine.sharing.thief.waits


def test_a_thief_whose_victim_is_lost_registers_at_its_neighbours() -> None:
    """It makes no more attempts until there was work."""
    thief = Thief(RandomVictims(1, 2), 3, Random(4))
    thief.fed()
    assert thief.ask(1.0, {0}) is None
    assert thief.waits
    assert thief.registers


@pytest.mark.parametrize(("name", "detector"), [("counters", FourCounter), ("ring", TokenRing)])
def test_termination_is_detected_as_the_settings_say(name: str, detector: type) -> None:
    settings = EngineSettings(termination=name)
    engine: Engine[int, int] = Engine(0, 2, merge=int.__add__, rng=Random(1), settings=settings)
    assert isinstance(engine.detector, detector)


def test_parcels_on_disk_are_counted() -> None:
    engine: Engine[int, int] = Engine(0, 1, merge=int.__add__, rng=Random(1))
    engine.seed(range(3000), 0.0)
    segments = [order for order in engine.take() if isinstance(order, SpillSegment)]
    assert len(segments) > 1
    assert engine.activity.spilled == sum(len(segment.parcels) for segment in segments)
