"""Engines with a known defect: the search must find each of them, or it proves nothing.

The steps are not watched here: a defect is found by the outcome of a job.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import msgspec
import pytest

from pcircle.circle import Engine
from pcircle.testing import Violation
from pcircle.walk.walker import Walker
from tests.sim import mutants, walk_mutants
from tests.sim.cases import Case, draw
from tests.sim.judge import EngineType, play
from tests.sim.walking import CopyModel

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


def first_loss(engine_type: EngineType, defect: dict[str, bool]) -> Violation | None:
    """Return the first epoch after which a power cut would lose work."""
    replace = msgspec.structs.replace
    for seed in range(SEEDS):
        case = draw("epochs", seed)
        settings = replace(case.settings, epoch_period_s=0.0005, structured=True)
        forest = replace(case.forest, item_s=0.001, holds=0.0)
        case = replace(case, aborts=(), sync_s=0.002, settings=settings, forest=forest, **defect)
        if case.ranks > 8:
            continue
        try:
            play(case, engine_type, watch=False)
        except Violation as violation:
            if "would be lost" in str(violation):
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
        (mutants.WithUncountedWaits, {}),
        (mutants.WithOneSidedDrain, {}),
        (mutants.WithBusyDrain, {}),
        (mutants.WithUndrainedEnd, {}),
    ],
)
def test_search_finds_mutant(engine_type: EngineType, choices: dict[str, Any]) -> None:
    violation = first_violation(engine_type, choices)
    assert violation is not None
    assert "python -m tests.sim ending" in str(violation)


@pytest.mark.parametrize("family", ["abort", "epochs"])
def test_search_finds_ignored_aborts(family: str) -> None:
    """The engine does not decide whether an abort came in time."""
    cases = (draw(family, seed) for seed in range(SEEDS))
    aborted = (case for case in cases if case.aborts)  # not those of a correct engine
    with pytest.raises(Violation, match="the ranks stopped with"):
        deque((play(case, mutants.WithDeafAccounts, watch=False) for case in aborted), 0)


@pytest.mark.parametrize(
    ("family", "engine_type"),
    [
        ("nasty", mutants.WithForgottenLines),
        ("nasty", mutants.WithHastyProxies),
        ("ending", mutants.WithDoubledReturns),
        ("nasty", mutants.WithLostValues),
        ("nasty", mutants.WithDoubledValues),
        ("nasty", mutants.WithHastyMoves),
    ],
)
def test_search_finds_mutants_of_sharing(family: str, engine_type: EngineType) -> None:
    with pytest.raises(Violation):
        deque((play(draw(family, seed), engine_type) for seed in range(SEEDS)), 0)


@pytest.mark.parametrize(
    ("engine_type", "defect"),
    [
        (mutants.WithEagerCommits, {}),
        (mutants.WithBlindAnswers, {}),
        (Engine, {"late_seals": True}),
        (Engine, {"forgetful_joins": True}),
        (Engine, {"stale_syncs": True}),
    ],
)
def test_search_finds_mutant_of_epochs(engine_type: EngineType, defect: dict[str, bool]) -> None:
    """The loss that a power cut would cause is detected at once."""
    assert first_loss(engine_type, defect) is not None


def test_search_finds_overlapping_epochs() -> None:
    """Overlapping epochs may lose work, or never end."""
    cases = (draw("epochs", seed) for seed in range(SEEDS))
    often = (case for case in cases if case.settings.epoch_period_s == 0.005 and case.sync_s)
    with pytest.raises(Violation):
        deque((play(case, mutants.WithOverlappingEpochs, watch=False) for case in often), 0)


@pytest.mark.parametrize(
    ("engine_type", "found"),
    [
        (mutants.WithHastyDrain, "notices lost"),
        (mutants.WithoutAnswers, "a second pack of notices"),
    ],
)
def test_search_finds_mutants_of_notices(engine_type: EngineType, found: str) -> None:
    replace = msgspec.structs.replace
    cases = (replace(draw("ending", seed), notice_every=1) for seed in range(SEEDS))
    with pytest.raises(Violation, match=found):
        deque((play(case, engine_type, watch=False) for case in cases), 0)


def test_search_finds_accounts_that_do_not_wait_for_notices() -> None:
    """The notices belong to an epoch that ends after its rank has reported to the drain."""
    replace = msgspec.structs.replace
    cases = (replace(draw("epochs", seed), notice_every=1) for seed in range(SEEDS))
    with pytest.raises(Violation, match=r"messages are left|notices (of epochs|lost)"):
        deque((play(case, mutants.WithHastyAccounts, watch=False) for case in cases), 0)


@pytest.mark.parametrize(
    ("engine_type", "found"),
    [
        (mutants.WithLateAnswers, "wait forever"),
        (mutants.WithHastyAnswers, "before rank 0 has received"),
    ],
)
def test_search_finds_mutants_of_quiet_epochs(engine_type: EngineType, found: str) -> None:
    """No timer compensates for a missed wake-up."""
    with pytest.raises(Violation, match=found):
        deque((play(draw("quiet", seed), engine_type, watch=False) for seed in range(SEEDS)), 0)


def test_epochs_reach_the_intended_states() -> None:
    runs = [play(draw("epochs", seed)) for seed in range(80)]
    assert sum(run.record.disks.claims for run in runs) > 500
    assert sum(run.record.disks.committed > 3 for run in runs) > 10
    assert sum(run.record.disks.spared for run in runs) > 100
    urged = [run for run in runs if run.case.settings.epoch_period_s == 1000.0]
    assert len(urged) > 5
    assert all(run.network.now_s < 60 for run in urged), "who waits for a commit urges"


@pytest.mark.parametrize(
    ("walker_type", "found"),
    [
        (walk_mutants.WithShiftedSlots, "is completed with"),
        (walk_mutants.WithLostSlots, "is completed with"),
        (walk_mutants.WithoutStops, "in place by a job that stops"),
        (walk_mutants.WithHastyStops, "in place by a job that stops"),
        (walk_mutants.WithEarlyEnds, "is completed with"),
    ],
)
def test_search_finds_mutants_of_the_walk(walker_type: type[Walker[Any]], found: str) -> None:
    with pytest.raises(Violation, match=found):
        search_walks(walker_type)


def search_walks(walker_type: type[Walker[Any]]) -> None:
    for seed in range(SEEDS // 10):
        play(draw("walk", seed), watch=False, walker_type=walker_type)


def test_search_finds_the_effects_of_a_hasty_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search finds the resulting error, not only the early completion."""
    monkeypatch.setattr(CopyModel, "may_complete", lambda _: True)
    with pytest.raises(Violation, match="is completed with"):
        search_walks(walk_mutants.WithHastyStops)


@pytest.mark.parametrize("defect", [{"late_seals": True}, {"forgetful_joins": True}])
def test_search_finds_forgotten_floors_of_walks(defect: dict[str, bool]) -> None:
    """A record must count no sooner than its ancestor directories, wherever they were created."""
    with pytest.raises(Violation, match="would be lost"):
        deque((play(of_epochs(seed, defect), watch=False) for seed in range(SEEDS // 10)), 0)


def of_epochs(seed: int, defect: dict[str, bool]) -> Case:
    """Return walks with frequent epochs and no disturbance."""
    replace, case = msgspec.structs.replace, draw("walk", seed)
    assert case.walk is not None
    return replace(
        case,
        settings=replace(case.settings, epoch_period_s=0.0005),
        forest=replace(case.forest, item_s=0.001),
        walk=replace(case.walk, fails=0.0, item_s=0.005),
        conditions=replace(case.conditions, kills=(), stalls=()),
        sync_s=0.002,
        aborts=(),
        **defect,
    )


def test_walks_reach_the_intended_states() -> None:
    runs = [play(draw("walk", seed)) for seed in range(100)]
    records = [run.record for run in runs]
    assert sum(record.disks.claims for record in records) > 500
    assert sum(record.disks.committed > 3 for record in records) > 7
    assert sum(len(record.verified) for record in records) > 20
    assert sum(record.failed for record in records) > 10
    reached: Counter[str] = sum((record.reached for record in records), Counter())
    assert reached["in place"] > 500
    assert reached["in a join"] > 200
    assert reached["open when it stops"] > 5
    assert reached["handed back"] > 20
    assert reached["left off"] > 1
