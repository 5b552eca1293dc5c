"""Jobs that end early: by a signal, or by the death of a rank.

The items of these jobs last until they must stop, and begin an action that only `abandon` undoes; a
test waits until every rank has one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import DEADLINE_S
from tests.runtime.conftest import Job, Ranks, command

SIZE = 3


@contextmanager
def started(line: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Return a function that starts a job, which does not outlive the test."""
    with subprocess.Popen(
        line,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def await_ranks(process: subprocess.Popen[bytes], folder: Path, size: int) -> list[int]:
    """Wait until every rank has an item; return their process numbers."""
    hangs_s = time.monotonic() + DEADLINE_S
    while len(ranks := list(folder.glob("rank-*"))) < size:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < hangs_s, "not all ranks got an item"
        time.sleep(0.01)
    return sorted(int(path.name.partition("-")[2]) for path in ranks)


def assert_all_undone(folder: Path, size: int) -> None:
    assert len(list(folder.glob("abandoned-*"))) >= size
    assert list(folder.glob("begun-*")) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
@pytest.mark.parametrize(
    ("size", "whom"), [(1, "first"), (SIZE, "first"), (SIZE, "last"), (SIZE, "all")]
)
def test_a_signal_stops_all_ranks(
    tmp_path: Path,
    environment: dict[str, str],
    number: signal.Signals,
    code: int,
    size: int,
    whom: str,
) -> None:
    with started(command(size, "lasting", tmp_path, size), environment) as process:
        ranks = await_ranks(process, tmp_path, size)
        assert process.pid == ranks[0]
        if whom == "all":
            os.killpg(process.pid, number)  # like a terminal
        else:
            os.kill(ranks[0] if whom == "first" else ranks[-1], number)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code
    assert said.decode() == f"tasks: stopped by {number.name}\n"
    assert_all_undone(tmp_path, size)
    assert not any(os.path.exists(f"/proc/{rank}") for rank in ranks)


def test_a_signal_during_the_accounts_commits_completed_work(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """All work is done by then, and without an epoch none of it would count."""
    with started(command(2, "accounting", tmp_path), environment) as process:
        await_ranks(process, tmp_path, 1)  # rank 1 is about to give its account
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143
    assert len(list(tmp_path.glob("committed-*"))) == 2


@pytest.mark.mpi
@pytest.mark.parametrize(("processes", "ranks_each"), [(3, 0), (2, 2)])
def test_a_signal_to_one_rank_stops_all_of_them_under_a_launcher(
    processes: int,
    ranks_each: int,
    tmp_path: Path,
    environment: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    size = processes * (ranks_each or 1)
    line = [
        *request.getfixturevalue("mpirun")(processes),
        *command(ranks_each, "lasting", tmp_path, size),
    ]
    with started(line, environment) as process:
        os.kill(await_ranks(process, tmp_path, size)[-1], signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143
    assert "stopped by SIGTERM" in said.decode()
    assert_all_undone(tmp_path, size)


def test_a_killed_rank_stops_the_others(job: Job, tmp_path: Path) -> None:
    ended = job(Ranks(2), "lasting", tmp_path, 2, "doom")
    assert ended.code == 4
    assert "rank 1 was lost: killed by SIGKILL (pid " in ended.said
    assert ended.known.silent == ()  # it is named as lost
    # The surviving rank has undone its action; nothing is known about that of the dead rank.
    assert len(list(tmp_path.glob("abandoned-*"))) == 1
    assert len(list(tmp_path.glob("begun-*"))) == 1


def test_a_signal_before_the_plan_does_not_leave_ranks_waiting(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Rank 0 still checks the arguments, on a slow file system; only rank 1 gets the signal."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with started(command(2, "prepared", pipe), environment) as process:
        child = await_handler(process.pid)
        os.kill(child, signal.SIGTERM)
        with open(pipe, "wb") as writer:
            writer.write(b"!")
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143
    assert "stopped by SIGTERM before the job began" in said.decode()


def await_handler(parent: int) -> int:
    """Wait until the only child of a process handles SIGTERM; return its number."""
    hangs_s = time.monotonic() + DEADLINE_S
    bit = 1 << (signal.SIGTERM - 1)
    while time.monotonic() < hangs_s:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            status = Path(f"/proc/{child}/status").read_text()
            caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
            if int(caught.split()[1], 16) & bit:
                return int(child)
        time.sleep(0.01)
    raise AssertionError("the child does not handle SIGTERM")
