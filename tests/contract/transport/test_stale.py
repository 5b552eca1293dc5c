"""Commands in an environment that a launcher left, next to jobs that a launcher starts."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.mpi import LAUNCHER_VARIABLES

MPICH = {"PMI_FD": "1023", "PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "1",
    "PMIX_NAMESPACE": "prterun-node1-28303@1",
    "PMIX_RANK": "1",
    "PMIX_SERVER_URI41": "prterun-node1-28303@0.0;tcp4://127.0.0.1:PORT",
}
STALE = {
    "mpich": MPICH,
    "mpich-garbage": {"PMI_FD": "abc", "PMI_RANK": "x", "PMI_SIZE": "-2"},
    "mpich-port": {"PMI_PORT": "localhost:PORT", "PMI_ID": "0", "PMI_RANK": "0", "PMI_SIZE": "2"},
    "open-mpi": OPEN_MPI,
    "pmix": {"PMIX_NAMESPACE": "x", "PMIX_RANK": "0"},
    "pmix-garbage": {"PMIX_NAMESPACE": "", "PMIX_RANK": "x", "PMIX_SERVER_URI3": "x"},
    "both": {**MPICH, **OPEN_MPI},
}
TOOLS = ["fcp", "fsum", "fprof", "ffind", "fls", "fdiff", "fmirror", "frm", "fchmod", "fbcast"]
REMARK = b": using local processes: the environment refers to "

Stale = Callable[[str], dict[str, str]]


@pytest.fixture
def stale() -> Iterator[Stale]:
    """Return the environment with the variables of a launcher whose address has no listener."""
    original = {
        name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)
    }
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        port = str(bound.getsockname()[1])
        yield lambda name: {
            **original,
            **{key: value.replace("PORT", port) for key, value in STALE[name].items()},
        }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"content")
    return tmp_path / "tree"


def listing(*options: str) -> list[str]:
    return [sys.executable, "-m", "pcircle.tools.fls", *options]


@pytest.mark.parametrize("name", STALE)
def test_local_processes_do_the_job_and_one_line_reports_it(
    run: Run, tree: Path, stale: Stale, name: str
) -> None:
    for options in ([], ["-j2"], ["-j1"]):
        done = run(listing(*options, str(tree)), env=stale(name))
        assert (done.returncode, done.stdout) == (0, b"file\n"), done.stderr
        assert done.stderr.startswith(b"fls" + REMARK)
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_reports_it(run: Run, tree: Path, stale: Stale, tool: str) -> None:
    operands: dict[str, list[str | Path]] = {
        "fcp": [tree, f"{tree}.copy"],
        "fdiff": [tree, tree],
        "fmirror": [tree, f"{tree}.mirror"],
        "frm": ["-r", tree],
        "fchmod": ["u+r", tree],
        "fbcast": [tree / "file", tree],
    }
    words = list(map(str, operands.get(tool, [tree])))
    command = [sys.executable, "-m", f"pcircle.tools.{tool}", "-j2", *words]
    done = run(command, env=stale("both"))
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if REMARK in line] == [
        line for line in done.stderr.splitlines() if line.startswith(tool.encode() + REMARK)
    ]
    assert done.stderr.count(REMARK) == 1


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_commands_without_ranks_report_nothing(run: Run, stale: Stale, option: str) -> None:
    done = run(listing(option), env=stale("mpich"))
    assert (done.returncode, done.stderr) == (0, b"")


def test_doctor_reports(run: Run, tree: Path, stale: Stale) -> None:
    command = [sys.executable, "-m", "pcircle", "doctor", "--no-trials", str(tree)]
    done = run(command, env=stale("pmix"))
    assert done.returncode == 0
    assert done.stderr.startswith(b"pcircle doctor" + REMARK)
    assert b"  launcher " in done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("jobs", [[], ["-j2"]], ids=["alone", "with-local-processes"])
@pytest.mark.parametrize("name", STALE)
def test_mpi_is_not_misled(
    run: Run,
    mpirun: Callable[[int], list[str]],
    tree: Path,
    stale: Stale,
    name: str,
    jobs: list[str],
) -> None:
    """`--transport mpi` starts a world of one, without the stale variables."""
    mpirun(1)
    done = run(listing("--transport=mpi", *jobs, str(tree)), env=stale(name))
    assert (done.returncode, done.stdout) == (0, b"file\n"), done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("way", ["directly", "shell"])
@pytest.mark.parametrize("name", STALE)
def test_another_launcher_starts_one_job(
    run: Run,
    mpirun: Callable[[int], list[str]],
    tree: Path,
    stale: Stale,
    name: str,
    way: str,
) -> None:
    """The launcher runs in the same environment, and through a shell that starts the command."""
    words = listing(str(tree))
    if way == "shell":
        words = ["sh", "-c", '"$@"; exit $?', "sh", *words]
    done = run([*mpirun(2), *words], env=stale(name))
    assert (done.returncode, done.stdout) == (0, b"file\n"), done.stderr
    assert REMARK not in done.stderr


@pytest.mark.mpi
def test_variables_of_an_ended_launcher_are_recognised(
    run: Run, mpirun: Callable[[int], list[str]], tree: Path, tmp_path: Path
) -> None:
    """The environment is that of a rank whose launcher has ended."""
    program = "import os, sys; open(sys.argv[1], 'wb').write(repr(dict(os.environ)).encode())"
    assert (
        run([*mpirun(1), sys.executable, "-c", program, str(tmp_path / "environ")]).returncode == 0
    )
    environ = eval((tmp_path / "environ").read_text())
    done = run(listing(str(tree)), env=environ)
    assert (done.returncode, done.stdout) == (0, b"file\n"), done.stderr
    assert done.stderr.startswith(b"fls" + REMARK)


@pytest.mark.mpi
def test_an_isolated_child_of_a_rank_is_a_separate_job(
    run: Run, mpirun: Callable[[int], list[str]], tree: Path
) -> None:
    """A program that has initialized MPI starts a command without the launcher's connection."""
    program = (
        "import os, subprocess, sys\n"
        "from mpi4py import MPI\n"
        "for name in [name for name in os.environ if name.startswith('PMIX_SERVER_URI')]:\n"
        "    os.environ[name] = 'x.0;/nowhere'\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True)\n"
        "codes = MPI.COMM_WORLD.gather((done.returncode, done.stdout, done.stderr.count(b'\\n')))\n"
        "if codes: print(codes)\n"
    )
    done = run([*mpirun(2), sys.executable, "-c", program, *listing("-j1", str(tree))])
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == [(0, b"file\n", 1)] * 2
