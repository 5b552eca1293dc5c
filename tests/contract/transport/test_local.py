"""Local jobs, in addition to the contract: how processes start, die and are cleaned up.

``run`` waits until no process holds the pipes of standard output, so a program has finished only
when all of its ranks have ended.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.contract.transport import bodies
from tests.contract.transport.running import command, results

Program = Callable[..., subprocess.CompletedProcess[bytes]]

pytestmark = pytest.mark.faults


@pytest.fixture
def program(run: Run) -> Program:
    module = "tests.contract.transport.programs"
    return lambda *words: run([sys.executable, "-m", module, *map(str, words)])


@pytest.mark.parametrize(("size", "victim"), [(2, 1), (5, 3), (8, 7), (32, 16)])
def test_a_killed_rank_is_reported_once_to_all_other_ranks(
    run: Run, tmp_path: Path, size: int, victim: int
) -> None:
    done = run(command("local", size, bodies.witness, tmp_path, (victim,)))
    assert done.returncode == 4
    reports = results(size, tmp_path)
    assert reports[victim] is None
    (pid, reason) = reports[0]
    assert reason == f"killed by SIGKILL (pid {pid})"
    survivors = [reports[rank] for rank in range(1, size) if rank != victim]
    assert survivors == [[pid, "closed its connection"]] * (size - 2)


def test_the_parents_death_ends_the_children(program: Program, tmp_path: Path) -> None:
    done = program("orphaned", tmp_path)
    assert done.returncode == -9
    notes = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert notes == dict.fromkeys("123", "0 closed its connection")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((0, 0, 0), 0),
        ((1, 1, 1), 1),
        ((3, 3), 3),
        ((0, 0, 1), 4),
        ((1, 0), 4),
        ((70, 0), 70),
        ((130, 4), 130),
        ((143, 0), 143),
        ((4, 70), 70),
        ((0, 70), 70),
        ((0, -9), 4),
        ((3, -6), 4),
        ((143, -9), 143),
    ],
)
def test_one_code_of_many(program: Program, codes: tuple[int, ...], expected: int) -> None:
    assert program("codes", *codes).returncode == expected


def test_an_early_or_late_signal_kills_no_rank(program: Program) -> None:
    """A terminal signals all ranks at once, whatever their state."""
    done = program("signalled")
    assert (done.returncode, done.stderr) == (143, b"")


def test_an_unnoticed_death_is_reported_at_the_end(program: Program) -> None:
    done = program("codes", 0, 0, -11)
    assert done.returncode == 4
    assert b"rank 2: killed by SIGSEGV (pid " in done.stderr


@pytest.mark.parametrize("code", [4, 70, 130, 143])
def test_an_agreed_loss(program: Program, code: int) -> None:
    assert program("lost_code", code).returncode == code


def test_a_loss_that_rank_0_has_explained_is_not_repeated(program: Program) -> None:
    assert program("lost_code", 4).stderr == b""


def test_an_exception_in_a_child_is_a_defect_with_its_traceback(program: Program) -> None:
    done = program("raising", "defect", 1)
    assert done.returncode == 70
    assert re.match(rb"[\w.]+: rank 1: Traceback", done.stderr)
    assert done.stderr.count(b"RuntimeError: no such luck") == 1


def test_a_known_error_in_a_child_is_one_line(program: Program) -> None:
    done = program("raising", "known", 2)
    assert done.returncode == 4  # as agreed; the child's own code is in no final round
    assert re.fullmatch(rb"[\w.]+: rank 2: it differs", done.stderr.splitlines()[0])
    assert b"Traceback" not in done.stderr


def test_an_interrupted_child_is_silent(program: Program) -> None:
    done = program("raising", "interrupt", 1)
    assert done.returncode == 130
    assert done.stderr == b""


@pytest.mark.parametrize("kind", ["defect", "known"])
def test_an_exception_in_the_parent_passes_through(program: Program, kind: str) -> None:
    done = program("raising", kind, 0)
    assert done.returncode == 99
    assert done.stdout.startswith(b"passed through: ")


@pytest.mark.parametrize(("rank", "code"), [(0, 4), (0, 70), (2, 70), (3, 130)])
def test_abort_ends_all_with_its_code(program: Program, rank: int, code: int) -> None:
    assert program("aborting", rank, code).returncode == code


def test_a_rank_that_does_not_end_is_killed(program: Program) -> None:
    done = program("stubborn")
    assert done.returncode == 4
    assert b"rank 2: did not end within" in done.stderr


def test_output_is_neither_doubled_nor_lost(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    done = program("printing")
    assert done.returncode == 0
    assert done.stdout.count(b"before;") == 1
    assert sorted(done.stdout.split(b";")) == [b"", b"before", b"rank 0", b"rank 1", b"rank 2"]


def test_a_soft_limit_of_descriptors_is_raised(program: Program) -> None:
    assert program("limited", 64, 2000, 16).returncode == 0


def test_a_hard_limit_of_descriptors_is_named(program: Program) -> None:
    done = program("limited", 64, 128, 16)
    assert done.returncode == 2
    assert b"hard limit is 128" in done.stdout


def test_nothing_is_left_behind(program: Program) -> None:
    done = program("tidy")
    assert done.returncode == 0, done.stderr.decode()
