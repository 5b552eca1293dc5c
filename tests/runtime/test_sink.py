"""A sink in real jobs: the results of all ranks arrive in order, and no file is left."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import Run
from tests.runtime.conftest import Ranks
from tests.runtime.sinking import EACH, RANGE_BYTES, name

ITEMS = 60
LOCAL = [Ranks(1), Ranks(2), Ranks(4)]
MPI = [pytest.param(Ranks(size, mpi=True), marks=pytest.mark.mpi) for size in (1, 3)]
MPI.append(pytest.param(Ranks(4, mpi=True, jobs_each=2), marks=pytest.mark.mpi))
EVERY = pytest.mark.parametrize("ranks", [*LOCAL, *MPI], ids=str)

Sinking = Callable[..., CompletedProcess[bytes]]


@pytest.fixture
def sinking(run: Run, request: pytest.FixtureRequest, tmp_path: Path) -> Sinking:
    def start(ranks: Ranks, items: int, stops: int = 0) -> CompletedProcess[bytes]:
        jobs = ranks.jobs
        place = str(tmp_path / "place")
        line = [sys.executable, "-m", "tests.runtime.sinking", str(jobs), place]
        line += [str(items), str(stops)]
        if ranks.mpi:
            line = [*request.getfixturevalue("mpirun")(ranks.processes), *line]
        done = run(line)
        assert os.listdir(tmp_path) == []
        return done

    return start


@EVERY
def test_all_records_arrive_in_order_by_ranges(sinking: Sinking, ranks: Ranks) -> None:
    done = sinking(ranks, ITEMS)
    assert done.returncode == 0, done.stderr
    names = [name(number) for number in range(ITEMS * EACH)]
    assert done.stdout.splitlines() == sorted(names, key=lambda path: path.split(b"/"))
    assert b"%d items" % ITEMS in done.stderr, "the work's own result is not that of the merges"
    merges = re.search(rb"([0-9]+) merges", done.stderr)
    assert merges is not None
    ranges = sum(map(len, names), len(names)) // RANGE_BYTES
    assert ranges * 2 // 3 < int(merges[1]) <= ranges


@pytest.mark.parametrize("items", [0, 1])
def test_short_lists_are_not_split(sinking: Sinking, items: int) -> None:
    done = sinking(Ranks(2), items)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == items * EACH
    assert b"merges" not in done.stderr


@EVERY
def test_a_job_that_stops_early_leaves_no_file(sinking: Sinking, ranks: Ranks) -> None:
    done = sinking(ranks, ITEMS, 1)
    assert done.returncode == 3
    assert done.stdout == b""


def test_a_sink_that_cannot_be_written_stops_the_job(run: Run, tmp_path: Path) -> None:
    """An example is a node whose ranks don't see the file that rank 0 has created."""
    place = str(tmp_path / "other")
    done = run([sys.executable, "-m", "tests.runtime.sinking", "2", place, "5", "0"])
    assert done.returncode == 4
    assert b"it can't be written: No such file or directory" in done.stderr
