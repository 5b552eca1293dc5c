"""How the tests of the runtime start jobs: alone, on local ranks and under a launcher."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import pytest

from tests.conftest import Run
from tests.runtime.tasks import Told


class Ranks(NamedTuple):
    """The number of ranks, and whether the MPI launcher starts them, `jobs_each` per process."""

    size: int
    mpi: bool = False
    jobs_each: int = 0

    def __str__(self) -> str:
        if not self.mpi:
            return f"j{self.size}"
        return f"np{self.processes}j{self.jobs_each}" if self.jobs_each else f"np{self.size}"

    @property
    def processes(self) -> int:
        """Return the number of processes of the launcher."""
        return self.size // (self.jobs_each or 1)

    @property
    def jobs(self) -> int:
        """Return the `jobs` argument of the program; 0 for none."""
        return self.jobs_each if self.mpi else self.size


class Ended(NamedTuple):
    """A job that has ended: its code, rank 0's output or None, standard error, its folder."""

    code: int
    output: Told | None
    said: str
    folder: Path

    @property
    def known(self) -> Told:
        """Return the output of rank 0."""
        assert self.output is not None, self.said
        return self.output

    @property
    def reports(self) -> list[str]:
        """Return the texts of the job's reports of defects."""
        paths = sorted(self.folder.glob("pcircle/pcircle-defect-*.txt"))
        assert all(str(path) in self.said for path in paths), "a report is not named"
        return [path.read_text() for path in paths]


class Job(Protocol):
    def __call__(self, ranks: Ranks, *arguments: object) -> Ended: ...


def command(jobs: int, *arguments: object) -> list[str]:
    """Return the command of a job of `tests.runtime.tasks`; `jobs` is 0 for a launcher."""
    name, *words = map(str, arguments)
    return [sys.executable, "-m", "tests.runtime.tasks", name, str(jobs), *words]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the temporary folder of a job's processes."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "XDG_STATE_HOME": str(folder)}


@pytest.fixture
def job(run: Run, request: pytest.FixtureRequest, folder: Path, environment: dict[str, str]) -> Job:
    """Return a function that runs a job to its end."""

    def start(ranks: Ranks, *arguments: object) -> Ended:
        line = command(ranks.jobs, *arguments)
        if ranks.mpi:
            mpirun: Callable[[int], list[str]] = request.getfixturevalue("mpirun")
            line = [*mpirun(ranks.processes), *line]
        done = run(line, env=environment)
        report = msgspec.json.decode(done.stdout, type=Told) if done.stdout else None
        assert report is None or report.code == done.returncode or report.code == 0
        return Ended(done.returncode, report, done.stderr.decode(), folder)

    return start


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """Create a named pipe that keeps its contents, because this process has it open."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    yield path
    os.close(fd)
