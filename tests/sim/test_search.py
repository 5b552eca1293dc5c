"""The search: thousands of jobs drawn from seeds, none of which may break a promise.

`judge` checks the promises: every item exactly once, no early end, exact results and sums, no
message left, all ranks stopped with one code, in time, with ranks that are slow, stuck, aborted or
killed.
"""

from __future__ import annotations

from itertools import product

import pytest

from pcircle.testing.simulated_job import POLICIES
from tests.sim.__main__ import main
from tests.sim.cases import FAMILIES, draw
from tests.sim.judge import play, search
from tests.sim.seeds import played

# The number of seeds of each family; in chunks, so that xdist can distribute them.
SEEDS = {
    "calm": 240,
    "nasty": 800,
    "ending": 640,
    "abort": 720,
    "kill": 960,
    "stuck": 160,
    "posts": 480,
    "epochs": 800,
    "quiet": 160,
    "walk": 480,
}
CHUNKS = 8

pytestmark = pytest.mark.sim


@pytest.mark.always
@pytest.mark.parametrize(("family", "chunk"), list(product(FAMILIES, range(CHUNKS))))
def test_no_promise_is_broken(family: str, chunk: int) -> None:
    per_chunk = SEEDS[family] // CHUNKS
    search(family, played(range(chunk * per_chunk, (chunk + 1) * per_chunk)))


def test_one_seed(request: pytest.FixtureRequest) -> None:
    """Replay the case of --family and --seed, by default the first case of all."""
    family = request.config.getoption("--family", default="nasty")
    seed = request.config.getoption("--seed", default=0)
    play(draw(family, seed or 0))


@pytest.mark.parametrize("family", FAMILIES)
def test_seeds_cover_all_choices(family: str) -> None:
    """A mistake in `cases` must not lose any choice of the engine or number of ranks."""
    cases = [draw(family, seed) for seed in range(SEEDS[family])]
    chosen = {
        (s.victims, s.split, s.termination, s.structured) for s in (case.settings for case in cases)
    }
    assert chosen == {
        policy[:4] for policy in POLICIES if policy[3] or family not in ("quiet", "walk")
    }  # have joins
    ranks = {case.ranks for case in cases}
    assert ranks >= {2, 3, 4, 5, 8}
    assert family == "ending" or ranks >= {16, 64}
    assert len(cases) >= len(POLICIES)


@pytest.mark.parametrize(("family", "seed"), [("nasty", 4), ("walk", 4), ("walk", 9)])
def test_a_seed_determines_the_run(family: str, seed: int) -> None:
    """The same seed gives the same run, to the last message and the last digit of its time."""
    runs = [play(draw(family, seed)) for _ in range(2)]
    first, second = [
        (run.network.messages, run.network.steps, run.network.now_s, run.record.shows)
        for run in runs
    ]
    assert first == second


def test_a_case_can_be_replayed_from_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["calm", "17"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(draw("calm", 17))
    assert any("> StartItem(" in line for line in lines)
    assert any("< Delivery(" in line for line in lines)
    assert lines[-1].endswith("as it should be")
    assert main(["calm"]) == 2
    assert "FAMILY SEED" in capsys.readouterr().err


@pytest.mark.slow
def test_seeds_reach_the_intended_states() -> None:
    """Spilling, handing on and unagreed ends are reached, else the search proves nothing."""
    runs = [play(draw("nasty", seed)) for seed in range(60)]
    runs += [play(draw("ending", seed)) for seed in range(60)]
    activities = [engine.activity for run in runs for engine in run.engines]
    assert sum(activity.spilled for activity in activities) > 100
    assert sum(activity.got > 0 and activity.given > 0 for activity in activities) > 20
    aborted = [play(draw("abort", seed)) for seed in range(60)]
    assert sum(bool(run.record.abort_codes) for run in aborted) > 30
    assert any(sum(run.record.processed) < run.case.forest.size for run in aborted)
    stuck = [play(draw("stuck", seed)) for seed in range(40)]
    assert any(run.record.account and run.record.account.silent for run in stuck)
    killed = [play(draw("kill", seed)) for seed in range(60)]
    outcomes = [outcome for run in killed for outcome in run.outcomes if outcome is not None]
    assert any(not outcome.agreed for outcome in outcomes)
    assert any(outcome.agreed and outcome.code for outcome in outcomes)
