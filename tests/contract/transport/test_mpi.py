"""MPI jobs, in addition to the contract: exit codes, and no rank is left hanging."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.contract.transport import bodies
from tests.contract.transport.running import command, results

pytestmark = pytest.mark.mpi

MODULE = "tests.contract.transport.mpi_programs"
Ranks = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def ranks(run: Run, mpirun: Callable[[int], list[str]]) -> Ranks:
    return lambda size, *words: run([*mpirun(size), sys.executable, "-m", MODULE, *map(str, words)])


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("code", [0, 1, 4, 130])
def test_an_agreed_code_is_returned(ranks: Ranks, size: int, code: int) -> None:
    assert ranks(size, "ending", code).returncode == code


@pytest.mark.parametrize("size", [1, 3])
def test_an_exception_ends_the_job_with_its_traceback(ranks: Ranks, size: int) -> None:
    done = ranks(size, "raising", "defect")
    assert done.returncode == 70
    assert b"RuntimeError: no such luck" in done.stderr
    assert f"rank {size - 1}: Traceback".encode() in done.stderr


def test_a_known_error_ends_the_job_with_its_code(ranks: Ranks) -> None:
    done = ranks(2, "raising", "known")
    assert done.returncode == 3
    assert b"rank 1: it differs" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("code", [4, 70])
def test_abort_ends_all_with_its_code(ranks: Ranks, code: int) -> None:
    assert ranks(3, "aborting", code).returncode == code


def test_open_sends_are_not_tested_one_by_one(ranks: Ranks, tmp_path: Path) -> None:
    """Each turn tests one send per receiver, and more only while they are complete."""
    done = ranks(2, "crowding", tmp_path)
    assert done.returncode == 0, done.stderr
    asked, most = map(int, done.stdout.split()[-2:])
    assert 0 < asked <= most


def test_short_messages_do_not_overtake_fragmented_messages(
    run: Run, mpirun: Callable[[int], list[str]], tmp_path: Path
) -> None:
    """The library must not copy directly between processes, as across a network."""
    given = {"MPIR_CVAR_CH4_CMA_ENABLE": "0", "OMPI_MCA_btl_sm_single_copy_mechanism": "none"}
    program = command("mpi", 2, bodies.distracted, tmp_path, ())
    done = run([*mpirun(2), *program], env={**os.environ, **given})
    assert done.returncode == 0, done.stderr.decode()
    sent, received = results(2, tmp_path)
    assert received == sent


@pytest.mark.parametrize("rank", [0, 1])
def test_a_launcher_of_another_implementation_is_rejected_with_advice(
    run: Run, mpirun: Callable[[int], list[str]], rank: int
) -> None:
    """Each process starts as under another implementation's launcher; only rank 0 reports."""
    names = ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS")
    if "--oversubscribe" not in mpirun(2):
        names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
    given = dict(zip(names, ("2", str(rank), "2"), strict=True))
    done = run([sys.executable, "-m", MODULE, "ending", "0"], env={**os.environ, **given})
    assert done.returncode == 2
    assert (b"pip install 'pcircle[mpich]'" in done.stderr) == (rank == 0)
    assert (b"refused: " in done.stderr) == (rank == 0)


def test_a_missing_mpi_library_is_rejected_with_advice(run: Run, tmp_path: Path) -> None:
    """The machine has mpi4py, but no library that it can load."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text(
        "class rc: pass\ndef __getattr__(name): raise RuntimeError('cannot load MPI library')\n"
    )
    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    given = {"PMI_SIZE": "2", "PMI_RANK": "0", "PYTHONPATH": paths}
    done = run([sys.executable, "-m", MODULE, "ending", "0"], env={**os.environ, **given})
    assert done.returncode == 2
    assert b"cannot load MPI library" in done.stderr
    assert b"pip install 'pcircle[mpich]'" in done.stderr
    assert not set(b"`") & set(done.stderr)
