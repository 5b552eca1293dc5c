"""Single promises of the engine, each in a job made for it.

The search found many of these first; here each has a name, and is tested whatever seeds the search
plays.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random
from typing import Any

import msgspec
import pytest

from pcircle.circle import EngineSettings
from pcircle.circle.instructions import Send
from pcircle.circle.messages import EPOCH, GATHER, PROGRESS, QUIESCE, TreeReduction
from pcircle.core.errors import require
from pcircle.testing.simulated_job import POLICIES
from pcircle.transport._sim import Conditions, Kill, Stall
from tests.sim.cases import AbortAt, Case, draw
from tests.sim.driver import Player
from tests.sim.judge import Run, play
from tests.sim.seeds import part_of
from tests.sim.work import Forest, Item

pytestmark = pytest.mark.sim


def case(ranks: int, *, size: int = 200, **changes: Any) -> Case:
    """Return a job on a well-behaved network, with the given changes."""
    settings = EngineSettings(**changes.pop("settings", {}))
    forest = Forest(size=size, fan=5, item_s=changes.pop("item_s", 0.01))
    conditions = Conditions(**changes.pop("conditions", {}))
    return Case("promise", 0, (0,) * ranks, settings, forest, conditions, **changes)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: "-".join(map(str, policy)))
def test_every_combination_of_choices(policy: tuple[str, str, str, bool, int]) -> None:
    victims, split, termination, structured, arity = policy
    settings = {
        "victims": victims,
        "split": split,
        "termination": termination,
        "structured": structured,
        "arity": arity,
        "queue_high": 8,
    }
    job = case(6, size=80, item_s=0.001, settings=settings)
    play(msgspec.structs.replace(job, nodes=(0, 0, 0, 1, 1, 2)))


LONG = 7  # the number of an item


def _one_is_long(item: Item) -> float:
    return 20.0 if item[0] == LONG else 0.001


# ---- rounds ------------------------------------------------------------------------------


def test_rounds_come_from_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one message per node, not per rank: of progress, epochs, waves and accounts."""
    nodes = tuple(rank * 7 % 5 for rank in range(40))
    sent: Counter[tuple[int, int]] = Counter()
    carry_out = Player._carry_out

    def counted(player: Player, transport: Any, instruction: Any) -> None:
        if isinstance(instruction, Send) and isinstance(instruction.message, TreeReduction):
            is_far = nodes[player.engine.rank] != nodes[instruction.dest]
            sent[instruction.message.kind, instruction.message.number] += is_far
        carry_out(player, transport, instruction)

    monkeypatch.setattr(Player, "_carry_out", counted)
    settings = {"progress_period_s": 0.1, "epoch_period_s": 0.1, "structured": False}
    job = case(40, size=4000, settings=settings)
    play(msgspec.structs.replace(job, nodes=nodes))
    assert {kind for kind, _ in sent} >= {PROGRESS, EPOCH, QUIESCE, GATHER}
    assert max(sent.values()) == 4  # to the node of rank 0
    assert {number for (kind, number) in sent if kind == EPOCH} >= {1, 2, 3}


# ---- progress --------------------------------------------------------------------------------


@pytest.mark.parametrize("stuck", [1, 3, 12])
def test_progress_continues_while_a_rank_is_stuck(stuck: int) -> None:
    job = case(
        13,
        size=4000,
        settings={"progress_period_s": 0.1, "arity": 3},
        conditions={"stalls": (Stall(stuck, 1.0, 3.0),)},
    )
    run = play(job)
    below = {rank for rank in range(13) if stuck in (rank, *run.engines[rank].tree.ancestors)}
    during = [sums for at_s, sums in run.record.shows if 1.3 < at_s < 2.9]
    assert len(during) >= 15
    for sums in during:
        assert sums.ranks == 13
        assert sums.stale == len(below)
    counts = [sums.counts[0] for sums in during]
    assert counts == sorted(set(counts)), "the others' progress stands still"
    assert not any(sums.stale for at_s, sums in run.record.shows if not 0.9 < at_s < 3.3)


def test_progress_is_exact_when_nothing_moves() -> None:
    """One long item holds the job open; the rounds then sum up all other items, exactly."""
    size = 300
    job = case(9, settings={"progress_period_s": 0.05, "arity": 2, "ahead": 0})
    run = Run(msgspec.structs.replace(job, forest=Forest(size=size, seeds=size)))
    for player in run.players:
        player.duration_s = _one_is_long
    run.play().judge()
    last = run.record.shows[-1][1]
    assert last.counts == (size - 1, sum(range(size)) - LONG)
    assert (last.ranks, last.stale) == (9, 0)


# ---- the end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 4])
def test_no_rank_is_silent_in_a_successful_job(rank: int) -> None:
    """A rank that is slow to give its account is waited for without limit, unless all abort."""
    ended_s = play(case(6, settings={"arity": 2})).record.concluded_s
    assert ended_s is not None
    begin_s = ended_s - 1e-5
    run = play(case(6, settings={"arity": 2}, conditions={"stalls": (Stall(rank, begin_s, 90.0),)}))
    assert run.record.concluded_s is not None
    assert run.record.concluded_s > 90.0


def test_accounts_usually_prove_that_no_message_is_left() -> None:
    """Requests that are in transit when the work is done do not cost a wave."""
    job = case(48, settings={"arity": 8}, conditions={"near_s": 1e-3})
    flat = msgspec.structs.replace(job, forest=Forest(size=48, seeds=48, item_s=0.01))
    runs = [play(msgspec.structs.replace(flat, seed=seed)) for seed in range(20)]
    waves = sum(run.engines[0].shutdown.drain.waves for run in runs)
    assert 0 < waves < len(runs) / 2, "as long as the accounts came behind them there were 24"


def _ends(case: Case, step: str) -> tuple[float, float]:
    """Return when a job began to gather accounts, and when it ended."""
    lines: list[str] = []
    run = Run(case, trace=lines.append).play()
    begin_s = min(float(line.split()[0]) for line in lines if step in line or "Conclude" in line)
    return begin_s, max(require(outcome).at_s for outcome in run.outcomes)


@pytest.mark.parametrize("family", ["nasty", "epochs", "posts", "ending"])
def test_aborts_at_the_end_take_little_time(family: str) -> None:
    """One rank or all abort, before, while and after accounts are given, until rank 0 concludes."""
    replace, step = msgspec.structs.replace, f"Down(kind={GATHER}, number=1"
    for seed in part_of(range(400)):
        drawn = draw(family, seed)
        if drawn.ranks > 11:
            continue
        rng = Random(f"{family} {seed}")
        held = rng.choice(((), ("Heard",), ("Notice",), ("Refuse",), ("Wait",), ("Ask", "Refuse")))
        conditions = replace(drawn.conditions, kills=(), stalls=(), held=held, held_s=0.1)
        settings = replace(drawn.settings, final_deadline_s=400.0)
        drawn = replace(drawn, aborts=(), conditions=conditions, settings=settings, limit_s=600.0)
        begin_s, end_s = _ends(drawn, step)
        for many in (False, False, True):
            at_s = begin_s + (end_s - begin_s) * rng.uniform(-0.1, 1)
            ranks = range(drawn.ranks) if many else [rng.randrange(drawn.ranks)]
            aborts = tuple(AbortAt(rank, 130, at_s=at_s + 1e-4 * rng.random()) for rank in ranks)
            run = play(replace(drawn, aborts=aborts))
            took_s = max(require(outcome).at_s for outcome in run.outcomes) - at_s
            assert took_s < 90, f"{family} {seed}, {aborts}"


def test_a_silent_rank_does_not_delay_an_abort_at_the_end() -> None:
    """Its counters are missing, so those of the other ranks do not balance."""
    job = case(6, settings={"arity": 8})
    begin_s, _ = _ends(job, f"Down(kind={GATHER}, number=1")
    for stuck in range(1, 6):
        conditions = Conditions(stalls=(Stall(stuck, begin_s + 1e-6, inf),))
        aborts = (AbortAt(0, 130, at_s=begin_s + 5),)
        run = play(msgspec.structs.replace(job, conditions=conditions, aborts=aborts))
        assert run.network.now_s < begin_s + 5 + 0.3 * job.settings.final_deadline_s


def test_notices_after_the_account_do_not_delay_the_end() -> None:
    job = case(5, settings={"arity": 2}, conditions={"held": ("Wait",), "held_s": 0.05})
    waves = 0
    for seed in range(40):
        run = Run(msgspec.structs.replace(job, seed=seed))
        for engine in run.engines[1:]:
            engine.shutdown.gather.advance = _noting(engine)  # type: ignore[method-assign]
        waves += run.play().engines[0].shutdown.drain.waves
    assert waves


def _noting(engine: Any) -> Any:
    """Add to a rank's outbox right after its account, as a task with threads may."""
    advance = engine.shutdown.gather.advance

    def noting(*arguments: Any) -> Any:
        was_closed = engine.shutdown.gather.closed
        out = advance(*arguments)
        if engine.shutdown.gather.closed and not was_closed:
            engine.outbox.add(0, 1)
        return out

    return noting


def test_abort_while_the_accounts_are_gathered_has_a_deadline() -> None:
    ended_s = play(case(6, settings={"arity": 2})).record.concluded_s
    assert ended_s is not None
    run = play(
        case(
            6,
            settings={"arity": 2},
            conditions={"stalls": (Stall(4, ended_s - 1e-5, inf),)},
            aborts=(AbortAt(0, 130, at_s=ended_s + 1.0),),
        )
    )
    assert run.network.aborted == (0, 130)
    assert run.network.now_s < ended_s + 1.0 + run.case.settings.final_deadline_s


def test_ranks_that_wait_are_silent() -> None:
    """One rank works for a minute.

    A second after the other ranks run out of work they are silent.
    """
    run = Run(case(64), watch=False)
    for player in run.players:
        player.duration_s = _one_is_long
    sent_s: list[float] = []
    send = run.network.send

    def noting(source: int, dest: int, payload: Any) -> None:
        sent_s.append(run.network.now_s)
        send(source, dest, payload)

    run.network.send = noting  # type: ignore[method-assign]
    run.play().judge()
    end_s = run.network.now_s
    assert end_s > 20
    assert not [each_s for each_s in sent_s if end_s - 19 < each_s < end_s - 0.5]


@pytest.mark.parametrize("sync_s", [0.02, 2.0])
@pytest.mark.parametrize("asked", [0, 1])
def test_abort_while_the_accounts_are_gathered_commits(asked: int, sync_s: float) -> None:
    """All work was done when the abort came, and the next run must not repeat it."""
    settings = {"arity": 2, "epoch_period_s": 0.05, "final_deadline_s": 40.0}
    job = case(6, settings=settings, sync_s=sync_s)
    ended_s = play(job).record.concluded_s
    assert ended_s is not None
    stall = Conditions(stalls=(Stall(4, ended_s - 2e-5, ended_s + 3.0),))
    job = msgspec.structs.replace(job, conditions=stall)
    assert play(job).record.disks.latest, "there is nothing to be lost"
    abort = AbortAt(asked, 130, at_s=ended_s + 1.0)
    run = play(msgspec.structs.replace(job, aborts=(abort,)))
    assert run.record.abort_codes == [130]
    assert sum(run.record.processed) == 200
    assert not run.record.disks.latest


@pytest.mark.parametrize("stuck", [1, 5, 12])
def test_stuck_rank_is_named_after_an_abort(stuck: int) -> None:
    job = case(
        13,
        size=4000,
        settings={"arity": 3},
        conditions={"stalls": (Stall(stuck, 0.5),)},
        aborts=(AbortAt(2, 143, at_s=1.0),),
    )
    run = play(job)
    assert run.record.account is not None
    assert run.record.account.silent == (stuck,)
    assert run.record.account.code == 143
    assert run.network.aborted == (0, 143)


def test_abort_below_a_stuck_rank_ends_the_job() -> None:
    """Rank 0 never receives it; the aborting rank eventually gives up on the other ranks."""
    job = case(
        13,
        size=4000,
        settings={"arity": 3},
        conditions={"stalls": (Stall(1, 0.5),)},
        aborts=(AbortAt(5, 130, at_s=1.0),),
    )
    run = play(job)
    assert run.network.aborted is not None
    assert run.network.now_s <= 1.0 + 2 * job.settings.final_deadline_s + 0.1


def test_abort_waits_for_running_items() -> None:
    """Copies in progress are not dropped, and the accounts count them."""
    run = play(case(8, item_s=1.0, size=400, aborts=(AbortAt(3, 130, at_s=2.0),)))
    assert run.record.cut_short == []
    assert 0 < sum(run.record.processed) < 400


def test_items_that_never_end_do_not_delay_an_abort() -> None:
    job = case(4, item_s=1000.0, size=50, aborts=(AbortAt(3, 130, at_s=1.0),))
    run = Run(job).play()
    assert {outcome.code for outcome in run.outcomes if outcome} == {130}
    assert len(run.record.cut_short) > 0
    assert run.network.now_s <= 1.0 + job.settings.final_deadline_s


@pytest.mark.parametrize("victim", [0, 1, 4, 12])
def test_all_ranks_stop_when_a_rank_dies(victim: int) -> None:
    """Ranks without a path to rank 0 stop as well, without waiting for the deadline."""
    job = case(13, size=4000, settings={"arity": 3}, conditions={"kills": (Kill(victim, 1.0),)})
    run = play(job)
    outcomes = [outcome for outcome in run.outcomes if outcome is not None]
    assert len(outcomes) == 12
    assert {outcome.code for outcome in outcomes} == {4}
    assert max(outcome.at_s for outcome in outcomes) < 2.0
    if victim:
        assert run.record.account is not None
        assert victim in run.record.account.silent
        assert run.record.account.reasons == (f"rank {victim} was lost: {KILLED}",)


KILLED = Kill(0, 0.0).reason


def test_death_while_the_accounts_are_gathered() -> None:
    ended_s = play(case(13, settings={"arity": 2})).record.concluded_s
    assert ended_s is not None
    for victim in (0, 1, 3, 9):
        for before_s in (1e-6, 1e-5, 1e-4):
            kills = (Kill(victim, ended_s - before_s),)
            run = play(case(13, settings={"arity": 2}, conditions={"kills": kills}))
            assert run.network.now_s < ended_s + 1.0


def _step_times(job: Case, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times of all steps of any rank, from the start until all have stopped."""
    times: set[float] = set()
    carry_out = Player._carry_out

    def noted(player: Player, transport: Any, instruction: Any) -> None:
        times.add(player._now_s)
        carry_out(player, transport, instruction)

    with monkeypatch.context() as patched:
        patched.setattr(Player, "_carry_out", noted)
        play(job)
    return sorted(times)


@pytest.mark.parametrize("structured", [True, False])
def test_a_rank_may_die_at_every_step(structured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second rank may die soon after: during work, epochs, waves, accounts and the stop."""
    settings = {"arity": 2, "epoch_period_s": 0.01, "structured": structured}
    job = case(6, size=60, item_s=0.005, settings=settings)
    times = _step_times(job, monkeypatch)
    assert len(times) > 100
    last = len(times) - 1
    for step in part_of(range(len(times))):
        for victim in range(6):
            one = Kill(victim, times[step] + 1e-9)
            two = Kill((victim + 1 + step // 2 % 5) % 6, times[min(step + 3, last)] + 2e-9)
            for kills in ((one,), (one, two)):
                conditions = msgspec.structs.replace(job.conditions, kills=kills)
                play(msgspec.structs.replace(job, conditions=conditions))


# ---- stealing --------------------------------------------------------------------------------


def test_last_items_do_not_move_back_and_forth() -> None:
    """Busy ranks do not steal from each other, however long their items take."""
    run = play(case(2, size=40, item_s=0.05, settings={"workers": 3, "ahead": 2}))
    assert run.network.messages < 40 * 20


def test_two_ranks_share_the_work_for_any_split() -> None:
    for split in ("random", "equal"):
        run = play(case(2, size=1000, settings={"split": split}))
        assert min(player.items for player in run.players) > 400
