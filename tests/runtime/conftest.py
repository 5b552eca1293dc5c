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
    """How many, and whether MPI's launcher starts them: one by one, or so many `each`."""

    size: int
    mpi: bool = False
    each: int = 0

    def __str__(self) -> str:
        if not self.mpi:
            return f"j{self.size}"
        return f"np{self.processes}j{self.each}" if self.each else f"np{self.size}"

    @property
    def processes(self) -> int:
        """How many the launcher starts."""
        return self.size // (self.each or 1)

    @property
    def jobs(self) -> int:
        """What the program is given as `jobs`; 0 for nothing."""
        return self.each if self.mpi else self.size


class Ended(NamedTuple):
    """A job that ended: its code, what rank 0 told (None: nothing), standard error, its folder."""

    code: int
    told: Told | None
    said: str
    folder: Path

    @property
    def known(self) -> Told:
        """What rank 0 told."""
        assert self.told is not None, self.said
        return self.told

    @property
    def reports(self) -> list[str]:
        """The texts of the reports of defects that the job has left."""
        paths = sorted(self.folder.glob("pcircle/pcircle-defect-*.txt"))
        assert all(str(path) in self.said for path in paths), "a report is not named"
        return [path.read_text() for path in paths]


class Job(Protocol):
    def __call__(self, ranks: Ranks, *arguments: object) -> Ended: ...


def command(jobs: int, *arguments: object) -> list[str]:
    """A job of `tests.runtime.tasks`, to be started as it is or by a launcher (`jobs` 0)."""
    name, *rest = map(str, arguments)
    return [sys.executable, "-m", "tests.runtime.tasks", name, str(jobs), *rest]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The temporary folder of a job's processes."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "XDG_STATE_HOME": str(folder)}


@pytest.fixture
def job(run: Run, request: pytest.FixtureRequest, folder: Path, environment: dict[str, str]) -> Job:
    """Runs a job to its end."""

    def start(ranks: Ranks, *arguments: object) -> Ended:
        line = command(ranks.jobs, *arguments)
        if ranks.mpi:
            mpirun: Callable[[int], list[str]] = request.getfixturevalue("mpirun")
            line = [*mpirun(ranks.processes), *line]
        done = run(line, env=environment)
        told = msgspec.json.decode(done.stdout, type=Told) if done.stdout else None
        assert told is None or told.code == done.returncode or told.code == 0
        return Ended(done.returncode, told, done.stderr.decode(), folder)

    return start


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A named pipe that keeps what is in it, because this process has it open."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    yield path
    os.close(fd)
