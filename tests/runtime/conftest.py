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
    """How many, and whether MPI's launcher starts them."""

    size: int
    mpi: bool = False

    def __str__(self) -> str:
        return f"np{self.size}" if self.mpi else f"j{self.size}"


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
        paths = sorted(self.folder.glob("pcircle-defect-*.txt"))
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
    return {**os.environ, "TMPDIR": str(folder)}


@pytest.fixture
def job(run: Run, request: pytest.FixtureRequest, folder: Path, environment: dict[str, str]) -> Job:
    """Runs a job to its end."""

    def start(ranks: Ranks, *arguments: object) -> Ended:
        line = command(0 if ranks.mpi else ranks.size, *arguments)
        if ranks.mpi:
            mpirun: Callable[[int], list[str]] = request.getfixturevalue("mpirun")
            line = [*mpirun(ranks.size), *line]
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
