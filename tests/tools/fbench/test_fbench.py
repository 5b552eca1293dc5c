"""fbench measures as described, leaves nothing behind, and refuses invalid options.

Speeds are not tested here: `tests.benchmarks.overlap` prints them.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
import types
from typing import Any

import pytest

from pcircle.tools.fbench import cases
from pcircle.tools.fbench.plan import BACKENDS, CASES, PAPER_CASES
from tests.conftest import ROOT
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import TWO, Finished, Launcher, Run, clean_environment, launchers

FBENCH = ("pcircle.tools.fbench",)
SMALL = ("--files", "2", "--blocks", "8", "--block-size", "64k")


def run_fbench(launcher: Launcher | None, *arguments: str | bytes) -> Finished:
    """Run fbench to its end."""
    with Run(launcher, *arguments, program=FBENCH) as run:
        return run.finish()


@pytest.mark.parametrize("launcher", [pytest.param(None, id="alone"), *launchers([2], [3])])
def test_every_case(launcher: Launcher | None, place: bytes) -> None:
    finished = run_fbench(launcher, *SMALL, "--json", place + b"/result", place)
    assert finished.code == 0, finished.said
    with open(place + b"/result", "rb") as stream:
        document = json.load(stream)
    figures: list[dict[str, Any]] = document["figures"]
    assert {figure["case"] for figure in figures} == set(CASES)
    for case in CASES:  # in parallel, except where blocking calls can't overlap anything
        there = {figure["backend"] for figure in figures if figure["case"] == case}
        assert there == ({"threads"} if case in ("overlap", "continuation") else set(BACKENDS))
    assert document["clients"] == (launcher.size if launcher else 1)
    assert all(figure["value"] > 0 for figure in figures if figure["unit"] != "%")
    names = [(f["case"], f["what"], f["backend"], f["unit"]) for f in figures]
    assert len(names) == len(set(names)), "of several clients there is one figure"
    said = finished.out.decode()
    for title in ("random blocks", "operations on names", "reading while computing"):
        assert title in said
    assert sorted(os.listdir(place)) == [b"result"]


@pytest.mark.parametrize("launcher", [pytest.param(None, id="alone"), *launchers([2], [])])
def test_every_case_of_the_papers(launcher: Launcher | None, place: bytes) -> None:
    options = ["papers", "--files", "2", "--blocks", "2", "--threads", "3"]
    finished = run_fbench(launcher, *options, "--json", place + b"/result", place)
    assert finished.code == 0, finished.said
    with open(place + b"/result", "rb") as stream:
        document = json.load(stream)
    figures: list[dict[str, Any]] = document["figures"]
    assert {figure["case"] for figure in figures} == set(PAPER_CASES)
    for case in PAPER_CASES:
        there = {figure["backend"] for figure in figures if figure["case"] == case}
        assert there == ({"threads"} if case == "continuation" else set(BACKENDS))
    assert all(figure["value"] > 0 for figure in figures if figure["unit"] != "%")
    names = [(f["case"], f["what"], f["backend"], f["unit"]) for f in figures]
    assert len(names) == len(set(names))
    assert os.listdir(place) == [b"result"]


@pytest.mark.parametrize(("delay_s", "warned"), [(0.0, True), (0.006, False)])
def test_a_fast_file_system_is_warned_about(fuse: Mount, delay_s: float, warned: bool) -> None:
    mounted = fuse(direct=True)
    mounted.rules(Rule(ops=("read", "write"), delay_s=delay_s))
    options = ["papers", "--case", "case3", "--backend", "blocking", "--blocks", "1"]
    finished = run_fbench(None, *options, "--json", "-", mounted.path)
    assert finished.code == 0, finished.said
    warnings = json.loads(finished.out)["warnings"]
    assert [warning.startswith("case3: too fast") for warning in warnings] == [True] * warned
    assert ("fbench: warning: case3: too fast" in finished.said) == warned
    assert "warning" not in run_fbench(None, *options, "-q", mounted.path).said


def test_a_directory_called_papers_is_one(place: bytes) -> None:
    os.mkdir(place + b"/papers")
    command = [sys.executable, "-m", *FBENCH, "--case", "metadata", "papers"]
    environment = clean_environment()
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"operations on names" in done.stdout
    finished = run_fbench(None, "papers", "a", "b")
    assert (finished.code, "extra operand 'b'" in finished.said) == (2, True)


def test_a_workload_has_the_documented_size(place: bytes, fuse: Mount) -> None:
    """Each of three numbers of threads writes and reads all blocks once."""
    mounted = fuse(direct=True)
    options = ["papers", "--case", "small", "--backend", "threads", "--files", "3", "--blocks", "4"]
    finished = run_fbench(None, *options, "--threads", "2", mounted.path)
    assert finished.code == 0, finished.said
    counts = mounted.state().counts
    # New files are created for each number of threads.
    assert (counts["create"], counts["write"], counts["read"]) == (3 * 3, 3 * 12, 3 * 12)
    assert os.listdir(mounted.backing) == []


def test_only_requested_cases_run(place: bytes) -> None:
    options = ["--case", "stream", "--case", "stream", "--backend", "threads", "--threads", "3"]
    finished = run_fbench(None, *SMALL, *options, "--json", "-", place)
    assert finished.code == 0, finished.said
    figures = json.loads(finished.out)["figures"]
    assert {(f["case"], f["backend"]) for f in figures} == {("stream", "threads")}
    assert {f["value"] for f in figures if f["unit"] == "threads"} == {3}
    assert "consecutive blocks" in finished.said, "the table goes beside the document"
    assert run_fbench(None, *SMALL, "-q", "--case", "metadata", place).out == b""


def test_parameters_take_effect(place: bytes, fuse: Mount) -> None:
    """The file system sees the given numbers of files and of writes."""
    mounted = fuse(direct=True)
    before = mounted.state().counts
    options = ["--case", "random", "--backend", "blocking", "--files", "3", "--blocks", "5"]
    finished = run_fbench(None, *options, "--block-size", "4k", mounted.path)
    assert finished.code == 0, finished.said
    after = mounted.state().counts
    assert after["create"] - before.get("create", 0) == 3
    assert after["write"] - before.get("write", 0) == 15
    assert after["read"] - before.get("read", 0) == 15
    assert os.listdir(mounted.backing) == []


def test_a_failing_case_is_named(fuse: Mount) -> None:
    """The other cases are still measured."""
    mounted = fuse()
    mounted.rules(Rule(ops=("fsync",), errno="EIO"))
    finished = run_fbench(None, *SMALL, "--case", "metadata", "--case", "stream", mounted.path)
    assert finished.code == 1
    assert f"stream: [Errno {errno.EIO}]" in finished.said
    assert b"operations on names" in finished.out
    assert os.listdir(mounted.backing) == []


@pytest.mark.parametrize("option", ["--json", "table"])
def test_a_result_that_cannot_be_written_is_a_failure(option: str, place: bytes) -> None:
    options = ["-q", "--json", "/dev/full"] if option == "--json" else []
    with open("/dev/full", "wb") as full:
        words: list[str | bytes] = [*SMALL, "--case", "metadata", *options, place]
        finished = subprocess.run(
            [sys.executable, "-m", "pcircle.tools.fbench", *words],
            stdout=None if options else full,
            stderr=subprocess.PIPE,
            check=False,
            env=clean_environment(),
        )
    assert finished.returncode == 1
    assert b": No space left on device" in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing operand DIR"),
        (["a", "b"], "extra operand 'b'"),
        (["--block-size", "0", "x"], "from 1 byte to 1 GiB"),
        (["--block-size", "2G", "x"], "from 1 byte to 1 GiB"),
        (["--files", "0", "x"], "--files"),
        (["--threads", "-1", "x"], "--threads"),
        (["--jobs", "none", "x"], "--jobs"),
        (["--case", "nothing", "x"], "--case"),
        (["--backend", "uring", "x"], "--backend"),
        (["--cases", "random", "x"], "did you mean --case"),
        (["--plot", "x.gif", "x"], ".png, .svg, .pdf"),
        (["/nowhere/at/all"], "cannot work in"),
        (["--json", "/nowhere/at/all", "."], "its directory does not exist"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], said: str) -> None:
    finished = run_fbench(None, *arguments)
    assert finished.code == 2
    assert said in finished.said
    assert "Traceback" not in finished.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_an_interrupt_leaves_nothing(number: signal.Signals, fuse: Mount) -> None:
    mounted = fuse()
    mounted.rules(Rule(ops=("write",), delay_s=0.5))  # there are dozens of them
    with Run(TWO, *SMALL, "--case", "random", mounted.path, program=FBENCH) as run:
        deadline_s = time.monotonic() + 60
        while not _inside(mounted.backing):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        run.signal(number)
        finished = run.finish()
        assert run.wait_until_gone() == []
    assert finished.code == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], finished.said
    assert os.listdir(mounted.backing) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--case", "random", "--backend", "blocking"),
        ("--case", "stream", "--backend", "threads"),
        ("--case", "continuation"),
        ("--case", "small", "--backend", "blocking"),
        ("--case", "small", "--backend", "threads"),
        ("--case", "case1"),
    ],
    ids=" ".join,
)
def test_an_interrupt_in_a_long_case_leaves_nothing(options: tuple[str, ...], fuse: Mount) -> None:
    mounted = fuse()
    mounted.rules(Rule(ops=("write",), delay_s=0.02))
    size = "--files", "2", "--blocks", "20000", "--block-size", "4k"
    with Run(TWO, *size, *options, mounted.path, program=FBENCH) as run:
        deadline_s = time.monotonic() + 60
        while not _inside(mounted.backing):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        time.sleep(0.5)
        run.signal(signal.SIGINT)
        finished = run.finish()
        assert run.wait_until_gone() == []
    assert finished.code == 130, finished.said
    assert os.listdir(mounted.backing) == []


@pytest.mark.parametrize(
    "options", [("--case", "stream", "--files", "200"), ("--case", "metadata")]
)
def test_too_few_descriptors_leave_nothing(options: tuple[str, ...], place: bytes) -> None:
    command = [sys.executable, "-m", *FBENCH, "--files", "200", "--blocks=1", *options]
    limit = (100, 100)
    done = subprocess.run(
        [*map(os.fsencode, command), place],
        capture_output=True,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert b"Too many open files" in done.stderr
    assert os.listdir(place) == []


def _inside(place: bytes) -> list[bytes]:
    return [
        file
        for name in os.listdir(place)
        for client in os.listdir(os.path.join(place, name))
        for file in os.listdir(os.path.join(place, name, client))
    ]


def test_a_picture(place: bytes) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        finished = run_fbench(None, "--plot", place + b"/p.svg", place)
        assert finished.code == 2
        assert "requires matplotlib" in finished.said
        return
    finished = run_fbench(None, *SMALL, "--plot", place + b"/picture.svg", place)
    assert finished.code == 0, finished.said
    with open(place + b"/picture.svg", "rb") as stream:
        assert b"<svg" in stream.read(1000)


def test_computations_have_the_right_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length is measured by the hashed amount, on a machine that hashes a block in 0.1 ms."""
    hashed_bytes: list[int] = []

    def sha256(data: bytes) -> object:
        hashed_bytes.append(len(data))
        return hashlib.sha256(data)

    monkeypatch.setattr(cases, "_hashing_s", lambda data: 0.0001)
    monkeypatch.setattr(cases, "hashlib", types.SimpleNamespace(sha256=sha256))

    def hashed(duration_s: float) -> int:
        hashed_bytes.clear()
        cases.computation(duration_s)()
        return sum(hashed_bytes)

    block_bytes = hashed(0.0001)
    assert block_bytes > 0
    assert hashed(0) == 0
    assert hashed(0.00025) == pytest.approx(2.5 * block_bytes, abs=2)
    assert hashed(0.05) == pytest.approx(500 * block_bytes, abs=2)


def test_figures_of_ranks_are_combined_by_unit() -> None:
    from pcircle.tools.fbench.plan import TOGETHER, BenchFigure, together

    rates = {"B/s": 12.0, TOGETHER: 6.0, "us": 4.0}
    values = [BenchFigure("c", "w", "b", unit, value) for value in (2, 4, 6) for unit in rates]
    assert {one.unit: one.value for one in together(values)} == rates
