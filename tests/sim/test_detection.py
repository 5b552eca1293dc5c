"""The contract of termination detectors holds for both strategies and for no mutant.

Each plays thousands of small games against an adversary (`detection`): it must find the end, and
must never find it too early. The mutants drop one premise of the argument each, and the same search
catches every one of them.
"""

from __future__ import annotations

import pytest

from pcircle.circle.messages import QUIESCE
from pcircle.circle.termination import FourCounter, TokenRing
from pcircle.circle.topology import TreePosition
from tests.sim.detection import Game, MakeDetector
from tests.sim.mutants import IdleFlags, NoBlackening, NoCounts, OverlappingWaves, StaleReports
from tests.sim.seeds import played

GAMES = 6000
CHUNKS = 3

pytestmark = pytest.mark.sim


def on_tree(kind: type[FourCounter]) -> MakeDetector:
    return lambda tree: kind(tree, QUIESCE)


def on_ring(kind: type[TokenRing]) -> MakeDetector:
    return lambda tree: TokenRing(0, 1) if tree.size == 1 else kind(tree.rank, tree.size)


@pytest.mark.always
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize(
    "make", [on_tree(FourCounter), on_ring(TokenRing)], ids=["counters", "ring"]
)
def test_finds_the_end_and_never_too_early(make: MakeDetector, chunk: int) -> None:
    per_chunk = GAMES // CHUNKS
    for seed in played(range(chunk * per_chunk, (chunk + 1) * per_chunk)):
        Game(make, seed).play()


def first_deceived(make: MakeDetector) -> AssertionError | None:
    for seed in range(GAMES):
        try:
            Game(make, seed).play()
        except AssertionError as error:
            return error
    return None


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(on_tree(IdleFlags), id="without-counters"),
        pytest.param(on_tree(StaleReports), id="with-stale-reports"),
        pytest.param(on_tree(OverlappingWaves), id="with-overlapping-waves"),
        pytest.param(on_ring(NoCounts), id="ring-without-counts"),
        pytest.param(on_ring(NoBlackening), id="ring-without-blackening"),
    ],
)
def test_every_mutant_is_deceived(make: MakeDetector) -> None:
    error = first_deceived(make)
    assert error is not None
    assert "terminated, but" in str(error)


def test_a_wave_costs_two_messages_an_edge() -> None:
    """The price is the one that the docstring names, for a job without work."""
    size, messages = 30, 0
    detectors = [FourCounter(TreePosition(rank, size, 3), QUIESCE) for rank in range(size)]
    waiting = [(0, dest, message) for dest, message in detectors[0].advance(True, 0.0)]
    for rank in range(1, size):
        assert detectors[rank].advance(True, 0.0) == []
    while waiting:
        source, dest, message = waiting.pop(0)
        messages += 1
        out = detectors[dest].handle(source, message) + detectors[dest].advance(True, 0.0)
        waiting += [(dest, further, sent) for further, sent in out]
    assert detectors[0].terminated
    assert detectors[0].waves == 2
    assert messages == 2 * 2 * (size - 1)
