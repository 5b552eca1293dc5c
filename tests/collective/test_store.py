"""The striped store, in both shapes, with real ranks: the consistency of Carns et al. 2009."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.striped_store.checker import check
from pcircle.core.errors import require
from tests.conftest import ROOT, Run

SHAPES = pytest.mark.parametrize("shape", ["collective", "client"])
Start = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture(params=["j1", "j4", pytest.param("np4", marks=pytest.mark.mpi)])
def store(run: Run, tmp_path: Path, request: pytest.FixtureRequest) -> Start:
    """Return a function that runs the example on a number of ranks: exit code and lines."""
    mpi = request.param == "np4"
    prefix = request.getfixturevalue("mpirun")(4) if mpi else []
    jobs = [] if mpi else [f"-{request.param}"]

    def start(*arguments: str) -> tuple[int, list[str], list[str]]:
        line = [*prefix, sys.executable, "-m", "examples.striped_store", str(tmp_path / "store")]
        done = run([*line, *arguments, *jobs])
        assert b"Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode().splitlines()

    return start


@SHAPES
def test_names_are_created_and_removed(store: Start, tmp_path: Path, shape: str) -> None:
    (tmp_path / "data").write_bytes(b"0123456789" * 20_000)
    names = [f"name {number}" for number in range(20)]
    assert store("create", *names, "--shape", shape) == (0, [], [])
    code, _, errors = store("create", "name 3", "new", "--shape", shape)
    assert (code, errors) == (1, ["create: name 3: File exists"])
    assert store("write", str(tmp_path / "data"), "new", "--shape", shape) == (0, [], [])
    code, lines, errors = store("stat", "new", "none", "--shape", shape)
    assert code == 1
    assert lines[0].endswith(" 200000 new")
    assert errors == ["stat: none: No such file or directory"]
    assert store("rename", "new", "newer", "--shape", shape) == (0, [], [])
    assert store("read", "newer", "--shape", shape)[1] == ["0123456789" * 20_000]
    code, _, errors = store("remove", *names, names[0], "--shape", shape)
    assert (code, errors) == (1, [f"remove: {names[0]}: No such file or directory"])
    assert store("check")[:2] == (0, ["1 names, 0 intents"])


def test_a_store_of_another_number_of_ranks_is_refused(run: Run, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "examples.striped_store", str(tmp_path), "create"]
    assert run([*line, "a", "-j2"]).returncode == 0
    assert run([*line, "b", "-j3"]).returncode != 0
    assert check(tmp_path, 2) == (1, [], [], [], 0)


@SHAPES
def test_a_full_member_makes_all_undo(store: Start, shape: str) -> None:
    assert store("create", "a", "--shape", shape, "--capacity", "1")[0] == 0
    code, _, errors = store("create", "b", "--shape", shape, "--capacity", "1")
    assert (code, errors) == (1, ["create: b: No space left on device"])
    assert store("check")[:2] == (0, ["1 names, 0 intents"])


class Plays:
    """Consecutive jobs of `dying`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def play(self, place: Path, *arguments: object) -> dict[int, str]:
        """Play one job; return the answers of the requesters that survived."""
        for path in place.glob("answer-*"):
            path.unlink()
        line = json.dumps([str(place), *map(str, arguments)])
        print(line, file=require(self._process.stdin), flush=True)
        assert require(self._process.stdout).readline() == "ended\n", arguments
        return {
            int(path.name.partition("-")[2]): path.read_text().partition(" ")[2].strip()
            for path in place.glob("answer-*")
        }


@pytest.fixture
def plays() -> Iterator[Plays]:
    command = [sys.executable, "-m", "tests.collective.dying"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield Plays(process)


@SHAPES
def test_at_most_one_simultaneous_creation_succeeds(
    plays: Plays, tmp_path: Path, shape: str
) -> None:
    answers = plays.play(tmp_path, 4, shape, "create", "name", 0, 0, 3)
    assert len(answers) == 3
    decided = sorted(answer.partition(" ")[0] for answer in answers.values())
    if shape == "collective":
        assert decided == ["False", "False", "True"]
        assert {a for a in answers.values() if "False" in a} == {"False File exists"}
    else:  # without a lock that orders them, each may find the other's before its own
        assert decided.count("True") <= 1
    assert check(tmp_path, 4)[1:] == ([], [], [], 0)
    assert check(tmp_path, 4).names == decided.count("True")


@SHAPES
@pytest.mark.parametrize("verb", ["create", "remove"])
@pytest.mark.parametrize("who", ["requester", "owner", "member"])
def test_a_rank_may_die_at_any_step(
    plays: Plays, tmp_path: Path, who: str, verb: str, shape: str
) -> None:
    """The other ranks apply the whole operation or nothing; the next job cleans up.

    A rank may die before and after it prepares, records and commits: six steps at most; at the
    seventh no rank dies.
    """
    ranks, seen = 4, set()
    name, victim = "name", {"requester": 3, "owner": 0, "member": 1}[who]
    for step in range(1, 8):
        place = tmp_path / f"{step}"
        place.mkdir()
        if verb == "remove":
            assert plays.play(place, ranks, "collective", "create", name, 0, 0, 1)[3] == "True"
        answers = plays.play(place, ranks, shape, verb, name, victim, step, 1)
        assert victim == 3 or 3 in answers  # the requester is alive and gets an answer
        plays.play(place, ranks, "collective", "stat", name, 0, 0, 0)  # another job
        found = check(place, ranks)
        assert found[1:] == ([], [], [], 0), f"step {step}: {found}"
        done = bool(found.names) == (verb == "create")
        seen.add(done)
        if 3 in answers:
            assert answers[3].startswith(str(done)), (step, answers, found)
    assert seen == {True, False}
