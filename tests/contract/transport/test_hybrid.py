"""Local ranks under MPI processes, in addition to the contract: traffic between nodes.

The shape of a job is the number of ranks of each MPI process; the first of these is the gateway,
the others are its leaves. `(2, 3)` has six routes between two ranks: gateway or leaf, near or far.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.conftest import Run
from tests.contract.transport import bodies
from tests.contract.transport.bodies import Steps
from tests.contract.transport.jobs import hybrid_command
from tests.contract.transport.running import results

pytestmark = pytest.mark.mpi

MODULE = "tests.contract.transport.hybrid_programs"
SHAPES = [(1, 2), (3, 1), (2, 2), (3, 3), (1, 2, 3), (3, 3, 3)]
MANY_BYTES = 300_000_000
# Python with a speaker's imports and its permitted buffers: 16 MiB per direction, plus traffic.
SPEAKER_BYTES = 130_000_000


class Job(Protocol):
    """Run a body on ranks of a shape; return the exit code and the ranks' results."""

    def __call__(
        self, shape: Sequence[int], body: Callable[..., Steps], *arguments: Any
    ) -> tuple[int, list[Any]]: ...


@pytest.fixture
def job(run: Run, mpirun: Callable[[int], list[str]], tmp_path: Path) -> Job:
    def start(
        shape: Sequence[int], body: Callable[..., Steps], *arguments: Any
    ) -> tuple[int, list[Any]]:
        done = run(hybrid_command(mpirun, shape, body, tmp_path, arguments))
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done.returncode, results(sum(shape), tmp_path)

    return start


@pytest.fixture
def program(
    run: Run, mpirun: Callable[[int], list[str]]
) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run a program of `hybrid_programs` on two MPI processes with three ranks each."""
    return lambda *words: run([*mpirun(2), sys.executable, "-m", MODULE, *map(str, words)])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_size_between_each_two_ranks(job: Job, shape: tuple[int, ...]) -> None:
    sizes_bytes = [0, 1, 65_535, 2**20 - 9, 2**20 - 8, 7, 2**20, 3_000_001, 0, 12]
    expected = [bodies.checksums(sum(shape), rank, sizes_bytes) for rank in range(sum(shape))]
    assert job(shape, bodies.exchange, sizes_bytes) == (0, expected)


@pytest.mark.slow
def test_messages_larger_than_a_gateways_buffer_cross_both_ways_at_once(job: Job) -> None:
    sizes_bytes = [5, 40_000_000, 5]
    expected = [bodies.checksums(4, rank, sizes_bytes) for rank in range(4)]
    assert job((2, 2), bodies.exchange, sizes_bytes) == (0, expected)


@pytest.mark.parametrize("shape", [(2, 2), (1, 3, 2)], ids=str)
def test_order_holds_per_pair_while_all_send_and_poll(job: Job, shape: tuple[int, ...]) -> None:
    per_source = [list(range(60))] * sum(shape)
    assert job(shape, bodies.interleave, 60) == (0, [per_source] * sum(shape))


def test_ranks_of_a_node_are_consecutive(job: Job) -> None:
    code, described = job((2, 1, 3), bodies.describe)
    assert code == 0
    assert described == [[rank, 6, [0] * 6] for rank in range(6)]  # all on this machine


@pytest.mark.slow
def test_idle_ranks_cost_nearly_nothing(job: Job) -> None:
    code, found = job((2, 2), bodies.idle, 4.0)
    assert code == 0
    for number, (wakes_per_s, share) in enumerate(found):
        is_speaker = number % 2 == 0  # it polls MPI; a leaf never does
        assert wakes_per_s < (100 if is_speaker else 10)
        assert share < 0.5, "it never sleeps"


@pytest.mark.faults
@pytest.mark.parametrize(
    ("shape", "victim", "mates"),
    [((2, 3), 3, [4]), ((3, 2), 1, [2]), ((1, 4, 2), 3, [2, 4])],
    ids=str,
)
def test_a_killed_leaf_is_reported_once_to_all_ranks_of_all_nodes(
    job: Job, shape: tuple[int, ...], victim: int, mates: list[int]
) -> None:
    code, results = job(shape, bodies.witness, victim)
    assert code == 4
    assert results[victim] is None
    (pid, reason) = results[0]
    assert reason == f"killed by SIGKILL (pid {pid})"
    assert {results[rank][0] for rank in range(sum(shape)) if rank != victim} == {pid}
    # The parent process knows the reason, and reports it to all ranks except the leaves that saw
    # the end themselves.
    survivors = [rank for rank in range(sum(shape)) if rank != victim]
    assert {results[rank][1] for rank in survivors if rank not in mates} == {reason}
    assert {results[rank][1] for rank in mates} == {"closed its connection"}


@pytest.mark.faults
@pytest.mark.parametrize(("source", "dest"), [(1, 2), (1, 3), (3, 0), (4, 1)])
def test_complete_messages_of_a_killed_leaf_precede_its_loss(
    job: Job, source: int, dest: int
) -> None:
    code, results = job((2, 3), bodies.cut_short, source, dest)
    assert code == 4
    numbers = results[dest]
    assert numbers[-1] == "lost"
    assert numbers[:-1] == list(range(len(numbers) - 1))
    assert len(numbers) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("source", "dest"), [(1, 3), (0, 3), (1, 2)])
def test_gateways_buffer_little_of_unread_messages(
    job: Job, tmp_path: Path, source: int, dest: int
) -> None:
    """300 MB are sent to a rank that does not poll yet; then they arrive."""
    code, results = job((2, 2), bodies.crowded, source, dest, MANY_BYTES, str(tmp_path / "gate"))
    assert code == 0
    assert results[dest][0] == MANY_BYTES
    speakers = {0, 2} - {source, dest}  # a rank has its own messages in memory
    assert all(results[rank][1] < SPEAKER_BYTES for rank in speakers), results


@pytest.mark.parametrize("code", [0, 1, 3, 130])
def test_an_agreed_code_is_returned(program: Any, code: int) -> None:
    assert program("ending", *[code] * 6).returncode == code


@pytest.mark.parametrize(
    ("codes", "expected"),
    [((0, 0, 0, 0, 0, 70), 70), ((0, 143, 0, 0, 0, 0), 143), ((0, 0, -9, 0, 0, 0), 4)],
)
def test_one_code_of_many(program: Any, codes: tuple[int, ...], expected: int) -> None:
    """A leaf's code counts too: all speakers end with it."""
    assert program("ending", *codes).returncode == expected


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
@pytest.mark.parametrize("code", [4, 70])
def test_abort_ends_all_with_its_code(program: Any, rank: int, code: int) -> None:
    assert program("aborting", rank, code).returncode == code


@pytest.mark.parametrize("rank", [1, 4])
def test_an_exception_in_a_leaf_is_a_defect_with_its_traceback(program: Any, rank: int) -> None:
    done = program("raising", rank)
    assert done.returncode == 70
    assert done.stderr.count(f"rank {rank}: Traceback".encode()) == 1
    assert done.stderr.count(b"RuntimeError: no such luck") == 1


def test_an_exception_in_a_gateway_ends_the_job(program: Any) -> None:
    done = program("raising", 3)
    assert done.returncode == 70
    assert b"rank 3: Traceback" in done.stderr


@pytest.mark.faults
@pytest.mark.parametrize("victim", ["speaker", "launcher"])
def test_no_rank_outlives_a_gateway_or_the_launcher(
    mpirun: Callable[[int], list[str]], tmp_path: Path, victim: str
) -> None:
    line = [*mpirun(2), sys.executable, "-m", MODULE, "waiting", str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until_s = time.monotonic() + 60
            while len(list(tmp_path.glob("[0-9]"))) < 6:
                assert time.monotonic() < until_s
                time.sleep(0.01)
            pids = {int(file.name): int(file.read_text()) for file in tmp_path.glob("[0-9]")}
            os.kill(process.pid if victim == "launcher" else pids[3], signal.SIGKILL)
            assert process.wait(60) != 0
            until_s = time.monotonic() + 60
            while left := [pid for pid in pids.values() if _lives(pid)]:
                assert time.monotonic() < until_s, left
                time.sleep(0.05)
        finally:
            process.kill()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_leaf_has_no_connection_to_the_launcher(program: Any) -> None:
    done = program("inherited")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", ["threads", "begun"])
def test_processes_that_must_not_be_forked_start_interpreters(program: Any, how: str) -> None:
    """Examples are a process with threads, and one in which MPI is initialized."""
    done = program("fresh", how)
    assert done.returncode == 0, done.stderr
    assert sorted(b"".join(done.stdout.split())) == sorted(b"012345")  # lines may arrive together


def test_a_launcher_that_binds_processes_to_one_core_is_reported(
    run: Run, mpirun: Callable[[int], list[str]]
) -> None:
    core = min(os.sched_getaffinity(0))
    line = [sys.executable, "-m", MODULE, "ending", *"000000"]
    bound = run(["taskset", "-c", str(core), *mpirun(2), *line])
    assert bound.returncode == 0
    said = "-j 3, but the launcher binds these processes to 1 core; use "
    assert bound.stderr.decode().count(said) == ((os.cpu_count() or 1) > 1)
    assert run([*mpirun(2), *line]).stderr == b""


def test_processes_that_cannot_be_started_are_refused_on_all_nodes(program: Any) -> None:
    done = program("limited")
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.count("refused: ") == 1
    assert f"{os.uname().nodename}: 20 processes need" in said


def test_processes_may_have_different_numbers_of_ranks(
    run: Run, mpirun: Callable[[int], list[str]], tmp_path: Path
) -> None:
    """Example: `mpirun -np 1 TOOL -j 3 : -np 1 TOOL`."""
    first, second = (
        [sys.executable, "-m", MODULE, "described", jobs, str(tmp_path)] for jobs in ("3", "0")
    )
    done = run([*mpirun(1), *first, ":", "-np", "1", *second])
    assert done.returncode == 0, done.stderr
    sizes = {json.loads(file.read_text())[1] for file in tmp_path.iterdir()}
    assert (len(list(tmp_path.iterdir())), sizes) == (4, {4})
