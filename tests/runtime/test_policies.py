"""Policies of work sharing, chosen by a text: its values, its mistakes, and jobs that use them."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from pcircle.circle.instructions import EngineSettings, with_policies
from pcircle.core.errors import UsageError
from tests.runtime.conftest import Job, Ranks
from tests.runtime.test_jobs import grown
from tests.sim.cases import draw
from tests.sim.judge import play

STEAL, SPLIT, END = ("random", "near", "lifelines"), ("random", "half"), ("waves", "ring")
RANKS = [Ranks(3), pytest.param(Ranks(3, mpi=True), marks=pytest.mark.mpi)]


def test_each_key_changes_its_setting() -> None:
    settings = with_policies(EngineSettings(), "steal=near,split=half,end=ring,arity=2")
    expected = EngineSettings(victims="nearest", split="equal", termination="ring", arity=2)
    assert settings == expected
    assert with_policies(EngineSettings(), "steal=lifelines") == EngineSettings(tries=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stael=random", "unknown key 'stael': .*did you mean 'steal'"),
        ("split=halv", "invalid split 'halv': must be one of random, half; did you mean 'half'"),
        ("end=x", "invalid end 'x': must be one of waves, ring$"),
        ("arity=0", "from 1 to 1024"),
        ("arity=two", "from 1 to 1024"),
        ("steal", "must be KEY=VALUE"),
        ("arity=2,arity=3", "set twice"),
    ],
)
def test_a_mistake_is_a_usage_error(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_policies(EngineSettings(), text)


@pytest.mark.parametrize("ranks", RANKS, ids=str)
def test_a_job_with_other_policies_has_the_same_result(
    job: Job, ranks: Ranks, environment: dict[str, str]
) -> None:
    environment["PCIRCLE_ENGINE"] = "steal=lifelines,split=half,end=ring,arity=1"
    ended = job(ranks, "grow-loose", 3, 6)
    assert (ended.code, ended.known.result) == (0, grown(3, 6))


@pytest.mark.parametrize("ranks", RANKS, ids=str)
def test_a_job_rejects_a_mistake_before_it_begins(
    job: Job, ranks: Ranks, environment: dict[str, str]
) -> None:
    environment["PCIRCLE_ENGINE"] = "steal=rnadom"
    ended = job(ranks, "grow", 3, 6)
    assert (ended.code, ended.output) == (2, None)
    assert ended.said.count("did you mean 'random'?") == 1


@pytest.mark.parametrize("steal", STEAL)
@pytest.mark.parametrize("split", SPLIT)
@pytest.mark.parametrize("end", END)
def test_every_combination_completes_all_work(steal: str, split: str, end: str) -> None:
    for seed, structured in itertools.product(range(5), (False, True)):
        text = f"steal={steal},split={split},end={end},arity={1 + seed}"
        case = draw("calm", seed)
        settings = replace(with_policies(case.settings, text), structured=structured)
        play(replace(case, settings=settings))
