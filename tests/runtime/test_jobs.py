"""Jobs on the engine, driven for real: exact results, stolen work, notices, a queue that spills.

Each is a program of its own, on one process, on local ranks and under MPI's launcher. Items that
must wait for others do so by meeting them, never by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.runtime.conftest import Job, Ranks

LOCAL = [Ranks(1), Ranks(2), Ranks(4)]
MPI = [pytest.param(Ranks(size, mpi=True), marks=pytest.mark.mpi) for size in (1, 2, 4)]
MPI.append(pytest.param(Ranks(6, mpi=True, jobs_each=3), marks=pytest.mark.mpi))
EVERY = pytest.mark.parametrize("ranks", [*LOCAL, *MPI], ids=str)
SEVERAL = pytest.mark.parametrize("ranks", [*LOCAL[1:], *MPI[1:]], ids=str)


def grown(width: int, depth: int) -> int:
    """Return the number of items of `Grow`: two trees."""
    return 2 * sum(int(width**level) for level in range(depth + 1))


@EVERY
@pytest.mark.parametrize("kind", ["grow-loose", "grow-joined"])
def test_results_are_exact(job: Job, ranks: Ranks, kind: str) -> None:
    ended = job(ranks, kind, 4, 4)
    assert (ended.code, ended.said) == (0, "")
    assert ended.known.result == grown(4, 4) == sum(ended.known.items)
    assert len(ended.known.items) == ranks.size


@EVERY
def test_contributions_of_ranks_are_merged_into_the_result(job: Job, ranks: Ranks) -> None:
    ended = job(ranks, "grow-kept", 4, 4)
    assert (ended.code, ended.known.result) == (0, 2 * grown(4, 4))
    assert sum(ended.known.items) == grown(4, 4)


@pytest.mark.parametrize("ranks", LOCAL, ids=str)
@pytest.mark.parametrize("kind", ["nearest", "token-loose"])
def test_results_are_exact_with_the_engines_other_strategies(
    job: Job, ranks: Ranks, kind: str
) -> None:
    ended = job(ranks, kind)
    assert (ended.code, ended.known.result) == (0, grown(3, 6))


def test_results_without_a_custom_join_are_merged(job: Job) -> None:
    assert job(Ranks(2), "grow", 3, 3).known.result == grown(3, 3)


@pytest.mark.parametrize("ranks", [LOCAL[0], LOCAL[2]], ids=str)
@pytest.mark.parametrize("kind", ["empty", "empty-loose"])
def test_a_job_without_items_ends_at_once(job: Job, ranks: Ranks, kind: str) -> None:
    ended = job(ranks, kind)
    assert (ended.code, ended.known.result, sum(ended.known.items)) == (0, None, 0)


@SEVERAL
def test_every_rank_gets_items(job: Job, ranks: Ranks, tmp_path: Path) -> None:
    ended = job(ranks, "together", tmp_path, ranks.size)
    count = 8 * ranks.size
    assert ended.known.result == sum(range(count))
    assert sum(ended.known.items) == count
    assert min(ended.known.items) >= 1


@SEVERAL
@pytest.mark.parametrize("kind", ["gate", "middle"])
def test_a_rank_whose_worker_waits_still_answers_thieves(
    job: Job, ranks: Ranks, pipe: Path, kind: str
) -> None:
    """Its item ends only when all but one of the others were processed elsewhere.

    With `middle`, that one has spawned them, and they are stolen before it has returned.
    """
    elsewhere = 30
    ended = job(ranks, kind, pipe, elsewhere)
    assert ended.known.result == sum(range(elsewhere + 1))
    assert ended.known.items[0] == 2
    assert sum(ended.known.items[1:]) == elsewhere - 1


@EVERY
def test_all_notices_reach_rank_0(job: Job, ranks: Ranks) -> None:
    ended = job(ranks, "noting")
    assert ended.code == 0
    levels = range(6)
    items = [f"item {level}" for level in levels for _ in range(2 * 2 ** (5 - level))]
    joins = [f"join {level}" for level in levels[1:] for _ in range(2 * 2 ** (5 - level))]
    assert sorted(ended.known.notices) == sorted(items + joins)


def in_order(notices: Sequence[str]) -> int:
    """Return the number of ranks with notices; check that each rank's are a prefix, in order."""
    reached: dict[str, int] = {}
    for notice in notices:
        rank, number, *_ = notice.split()
        assert int(number) == reached.get(rank, 0)
        reached[rank] = int(number) + 1
    return len(reached)


@EVERY
def test_many_notices_travel_in_few_messages(job: Job, ranks: Ranks) -> None:
    """Answers, stealing and the rounds of the job are counted as well.

    There are about 70 full packs; packs sent because of their age, and requests of thieves,
    increase with the duration of the job: 630 messages where it had a tenth of the processors.
    """
    ended = job(ranks, "flood", 400, 100)
    assert (ended.code, ended.known.result) == (0, 40_000)
    assert len(ended.known.notices) == 40_000
    assert tuple(ended.known.log.splitlines()) == ended.known.notices
    assert 1 <= in_order(ended.known.notices) <= ranks.size
    assert sum(ended.known.messages) < 40_000 / 20


@EVERY
def test_notices_before_an_abort_are_delivered(job: Job, ranks: Ranks) -> None:
    ended = job(ranks, "flood", 40, 1000, "stops")
    assert ended.code == 3
    assert in_order(ended.known.notices) >= 1
    assert tuple(ended.known.log.splitlines()) == ended.known.notices
    assert len(ended.known.notices) >= 1000, "the item that stopped it had told so many"


@pytest.mark.parametrize("ranks", [LOCAL[0], LOCAL[1], MPI[1]], ids=str)
def test_a_queue_that_spills_loses_nothing(job: Job, ranks: Ranks) -> None:
    ended = job(ranks, "spilling")
    assert (ended.code, ended.known.result) == (0, sum(range(5000)))
    assert sum(ended.known.items) == 5000
    assert sum(ended.known.spilled) > 4900
    assert list(ended.folder.iterdir()) == []


@pytest.mark.parametrize("ranks", [LOCAL[0], LOCAL[1]], ids=str)
def test_a_queue_that_cannot_spill_stops_the_job(job: Job, ranks: Ranks) -> None:
    ended = job(ranks, "limited")
    assert ended.code == 4
    assert "cannot write the queue to the temporary directory" in ended.said


def test_idle_ranks_use_nearly_no_processor(job: Job, tmp_path: Path) -> None:
    """All ranks wait while one sleeps; a spinning rank would use as much processor time."""
    ended = job(Ranks(4), "idle", 2.0)
    assert ended.code == 0
    # Rank 0 has also imported everything.
    assert max(ended.known.cpu_s[1:]) < 0.5
