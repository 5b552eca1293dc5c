"""Signals: an interrupted copy ends soon, with the right code, and leaves nothing behind.

Nothing means no process, wherever the launcher put it, and no temporary files except those of large
files, which the checkpoint knows; files under their final names are complete. A killed rank ends
the job with a message that names it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from .judge import rsync_differences
from .running import FOUR, ONE, TWO, Finished, Launcher, Run, document, launchers
from .trees import MIB, build_flat_tree, content, make_directory, walk, write_file

ATTEMPTS = 5
# For copies that must survive a kill: each attempt is slower than the previous one.
RATES = (6000, 1500, 300)
signals = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)


@pytest.fixture(scope="session")
def many_files(shared_place: bytes) -> bytes:
    return build_flat_tree(shared_place + b"/many", 60, 500, 2000)


@pytest.fixture(scope="session")
def large_files(shared_place: bytes) -> bytes:
    root = make_directory(shared_place, b"large")
    data = content("large", 16 * MIB)
    for number in range(4):
        write_file(root + b"/%d" % number, data * 8)
    return root


def _interrupt(
    launcher: Launcher, source: bytes, place: bytes, strike: Callable[[Run], None], *options: str
) -> tuple[Finished, bytes]:
    """Start a copy, `strike` when it has begun; return its end and its destination.

    A copy that ended before the strike is repeated; the last attempt would take minutes.
    """
    for attempt in range(ATTEMPTS):
        target = place + b"/copy %d" % attempt
        slowly = list(options)
        if attempt == ATTEMPTS - 1:
            slowly += ["--ops-limit", "300", "--bwlimit", "2M"]
        with Run(launcher, *slowly, "--chunksize", "4M", source, target) as run:
            if run.wait_for(target):
                strike(run)
            finished = run.finish()
            assert run.wait_until_gone() == []
        if finished.code != 0:
            return finished, target
    pytest.fail(f"the copy was always faster than the signal, {ATTEMPTS} times")


def _strike_workers(
    launcher: Launcher,
    source: bytes,
    place: bytes,
    strike: Callable[[Run], None],
    *options: str,
    times: int = 1,
) -> tuple[Finished, bytes]:
    """Start a copy, kill workers by `strike`; return its end and destination.

    The copy continues without them. A copy that ended before all strikes is repeated.
    """
    for rate in RATES:
        target = place + b"/copy %d" % rate
        with Run(launcher, *options, "-a", "--ops-limit", str(rate), source, target) as run:
            if run.wait_for(target):
                strike(run)
            finished = run.finish()
            assert run.wait_until_gone() == []
        if finished.said.count("continuing without it") == times or finished.code != 0:
            break
        shutil.rmtree(os.fsdecode(target))
    assert (finished.code, finished.said.count("continuing without it")) == (0, times), (
        finished.said
    )
    return finished, target


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, signal.SIGKILL)


def _assert_only_whole_files(source: bytes, target: bytes) -> None:
    """Check that every entry of the copy has the name and the size of one of the source."""
    names = {
        (visit.depth, visit.name): visit.status.st_size
        for visit in walk(source)
        if stat.S_ISREG(visit.status.st_mode)
    }
    for visit in walk(target):
        large = visit.name.startswith(b".fcp-") and visit.status.st_size > MIB
        mark = visit.name.startswith(b".fcp-mark-")
        if stat.S_ISREG(visit.status.st_mode) and not (large or mark):
            assert names.get((visit.depth, visit.name)) == visit.status.st_size, visit.name


@signals
@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
@pytest.mark.parametrize("tree", ["many_files", "large_files"])
def test_interrupted(
    launcher: Launcher,
    number: signal.Signals,
    tree: str,
    place: bytes,
    request: pytest.FixtureRequest,
) -> None:
    source: bytes = request.getfixturevalue(tree)
    finished, target = _interrupt(launcher, source, place, lambda run: run.signal(number))
    assert finished.code == 128 + number, finished.said
    assert "Traceback" not in finished.said
    _assert_only_whole_files(source, target)


@signals
def test_a_signal_to_the_main_process_alone(
    number: signal.Signals, many_files: bytes, place: bytes
) -> None:
    """``kill PID`` and batch systems do this: the workers end with it."""
    finished, target = _interrupt(
        FOUR, many_files, place, lambda run: os.kill(run.process.pid, number)
    )
    assert finished.code == 128 + number, finished.said
    _assert_only_whole_files(many_files, target)


def test_second_signal_while_ending(many_files: bytes, place: bytes) -> None:
    def strike(run: Run) -> None:
        run.signal(signal.SIGINT)
        if run.process.poll() is None:
            run.signal(signal.SIGINT)

    finished, _target = _interrupt(FOUR, many_files, place, strike)
    assert finished.code == 130, finished.said
    assert "Traceback" not in finished.said


@signals
@pytest.mark.parametrize("launcher", launchers([], [1, 4], hybrid=True))
def test_interrupted_under_mpirun(
    launcher: Launcher, number: signal.Signals, many_files: bytes, place: bytes
) -> None:
    """The launcher determines the exit code; all ranks must end."""
    finished, _target = _interrupt(launcher, many_files, place, lambda run: run.signal(number))
    assert finished.code != 0


def _children(pid: int) -> list[int]:
    """Return the children of `pid` in order of creation."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # It ended after the listing.
        if int(text.rpartition(")")[2].split()[1]) == pid:
            found.append(int(entry.name))
    return sorted(found)


@pytest.fixture(scope="session")
def some_files(shared_place: bytes) -> bytes:
    return build_flat_tree(shared_place + b"/some", 20, 150, 2000)


@pytest.mark.parametrize(("launcher", "which"), [(TWO, 0), (FOUR, 0), (FOUR, -1)])
@pytest.mark.parametrize(
    "options",
    [(), ("--checkpoint-interval", "0.1"), ("--no-checkpoint",), ("--verify",)],
    ids=lambda options: "".join(options) or "plain",
)
def test_the_copy_continues_without_a_killed_worker(
    launcher: Launcher, which: int, options: tuple[str, ...], some_files: bytes, place: bytes
) -> None:
    killed: list[int] = []

    def strike(run: Run) -> None:
        if workers := _children(run.process.pid):
            killed.append(workers[which])
            _kill(workers[which])

    finished, target = _strike_workers(launcher, some_files, place, strike, *options)
    lost = re.search(
        r"rank (\d+) was lost: killed by SIGKILL \(pid (\d+)\); continuing", finished.said
    )
    assert lost is not None, finished.said
    assert 0 < int(lost[1]) < launcher.size
    assert int(lost[2]) == killed[-1]
    assert "Traceback" not in finished.said
    assert "checkpoint kept" not in finished.said
    assert rsync_differences(some_files, target, preserved=True) == []
    assert os.listdir(place) == [os.path.basename(target)]


def test_workers_may_be_killed_until_one_is_left(some_files: bytes, place: bytes) -> None:
    report = place + b"/report"

    def strike(run: Run) -> None:
        former: set[int] = set()  # those that may still be ending
        for left in (3, 2, 1):
            workers: list[int] = []
            while len(workers) != left or former & set(workers):
                if run.process.poll() is not None:
                    return
                workers = _children(run.process.pid)
            time.sleep(0.3)
            _kill(workers[-1])
            former |= set(workers)

    options = "--json", os.fsdecode(report)
    _, target = _strike_workers(FOUR, some_files, place, strike, *options, times=3)
    assert rsync_differences(some_files, target, preserved=True) == []
    assert len(document(report)["ranks"]) == 1


def test_lists_have_each_entry_once(some_files: bytes, place: bytes, tmp_path: Path) -> None:
    """A killed rank has copied and committed unreported entries, or has reported them."""
    report, listed = tmp_path / "actions", tmp_path / "list"
    lists = "--json-lines", str(report), "--list-out", str(listed), "--null"

    def strike(run: Run) -> None:
        time.sleep(0.2)
        if len(workers := _children(run.process.pid)) > 1:
            _kill(workers[1])

    _strike_workers(FOUR, some_files, place, strike, *lists, "--checkpoint-interval", "0.05")
    wanted = ["."]
    for folder, directories, files in os.walk(some_files):
        above = os.path.relpath(folder, some_files)
        names = (*directories, *files)
        wanted += [os.path.normpath(os.path.join(above, name)).decode() for name in names]
    lines = map(json.loads, report.read_text().splitlines())
    listed_paths = sorted(line["path"] for line in lines if line["state"] == "done")
    assert listed_paths == sorted(wanted)
    assert sorted(listed.read_text().split("\0")[:-1]) == sorted(wanted)


@pytest.mark.parametrize(("launcher", "which", "options"), [(TWO, 0, ("-n", "--no-checkpoint"))])
def test_a_killed_worker(
    launcher: Launcher,
    which: int,
    options: tuple[str, ...],
    many_files: bytes,
    place: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job ends if a restart could count entries or output twice."""
    monkeypatch.chdir(tmp_path)
    killed: list[int] = []

    def strike(run: Run) -> None:
        workers = _children(run.process.pid)
        if len(workers) == launcher.size - 1:  # Otherwise they have done their work: try again.
            with suppress(ProcessLookupError):  # it has just done so
                os.kill(workers[which], signal.SIGKILL)
                killed.append(workers[which])

    finished, _target = _interrupt(launcher, many_files, place, strike, *options)
    assert killed
    assert finished.code == 4, finished.said
    lost = re.search(r"rank (\d+)", finished.said)
    assert lost is not None, finished.said
    assert 0 < int(lost[1]) < launcher.size
    assert "Traceback" not in finished.said


def test_a_killed_main_process(many_files: bytes, place: bytes) -> None:
    """Workers without a parent end by themselves."""
    finished, _target = _interrupt(
        FOUR, many_files, place, lambda run: os.kill(run.process.pid, signal.SIGKILL)
    )
    assert finished.code == -signal.SIGKILL


def _rank(pid: int) -> bytes | None:
    try:
        environment = Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return None  # It ended meanwhile.
    for line in environment.split(b"\0"):
        name, _, value = line.partition(b"=")
        if name in (b"PMI_RANK", b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK"):
            return value
    return None


@pytest.mark.mpi
@pytest.mark.parametrize("victim", [b"0", b"2"])
def test_killed_rank_under_mpirun(victim: bytes, many_files: bytes, place: bytes) -> None:
    killed: list[int] = []

    def strike(run: Run) -> None:
        ranks = [pid for pid in run.processes() if _rank(pid) == victim]
        if len(ranks) == 1:  # Otherwise it has done its work: try again.
            with suppress(ProcessLookupError):  # it has just done so
                os.kill(ranks[0], signal.SIGKILL)
                killed.append(ranks[0])

    finished, _target = _interrupt(Launcher(ranks=4), many_files, place, strike)
    assert killed
    assert finished.code != 0


@pytest.mark.parametrize("launcher", launchers([1, 2], [2]))
@pytest.mark.parametrize("option", ["--files-from", "--retry-from", "--exclude-from"])
@signals
def test_a_signal_during_the_read_of_a_list(
    option: str, number: signal.Signals, launcher: Launcher, place: bytes
) -> None:
    """The list is an empty pipe; nothing is created before it is read."""
    source = build_flat_tree(place + b"/source", 1, 3, 10)
    pipe = place + b"/pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    try:
        with Run(launcher, option, pipe, source, place + b"/copy") as run:
            deadline_s = time.monotonic() + 60
            while not any(_has_open(pid, pipe) for pid in run.processes()):
                assert time.monotonic() < deadline_s
                time.sleep(0.01)
            run.signal(number)
            finished = run.finish()
            assert run.wait_until_gone() == []
    finally:
        os.close(end)
    if launcher.jobs:
        assert finished.code == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], finished.said
    else:
        assert finished.code != 0
    assert "Traceback" not in finished.said
    assert sorted(os.listdir(place)) == [b"pipe", b"source"]


def _has_open(pid: int, path: bytes) -> bool:
    """Return whether a process has a file open."""
    folder = b"/proc/%d/fd/" % pid
    try:
        return any(os.readlink(folder + fd) == path for fd in os.listdir(folder))
    except OSError:
        return False  # it has just ended, or has just closed one
