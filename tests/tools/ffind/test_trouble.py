"""File systems that fail, other file systems, and programs with threads."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pcircle.fs import stats
from pcircle.tools.ffind.eval import evaluator as ahead
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import ONE, TWO, Launcher, Run
from tests.tools.ffind.calling import find

from .running import FFIND, by_find, found, run_ffind


def grow(top: bytes) -> bytes:
    for path in (b"a/x", b"a/y", b"b/c/x", b"z"):
        os.makedirs(os.path.dirname(top + b"/" + path), exist_ok=True)
        with open(top + b"/" + path, "wb") as file:
            file.write(b"x" * 2000)
    return top


def test_failed_look_ups_are_named_and_others_continue(fuse: Mount) -> None:
    mounted = fuse()
    top = grow(mounted.path)
    mounted.rules(Rule(ops=("lookup", "getattr"), path="a/x", errno="EIO"))
    for launcher in (ONE, TWO):
        for words in (("-size", "+1"), ("!", "-size", "+1"), ("-printf", "%s %p\\n")):
            finished = run_ffind(launcher, ".", *words, cwd=top)
            assert finished.code == 1
            assert finished.said.count("cannot look up './a/x'") == 1
            # An unknown value is false, as in find.
            assert (b"a/x" in finished.out) == (words[0] == "!")
        # A test of its name alone succeeds.
        assert found(".", "-name", "x", launcher=launcher, cwd=top) == [b"./a/x", b"./b/c/x"]


def test_vanished_entries_cause_no_message(fuse: Mount) -> None:
    mounted = fuse()
    top = grow(mounted.path)
    mounted.rules(Rule(ops=("lookup", "getattr"), path="a/x", errno="ENOENT"))
    finished = run_ffind(TWO, ".", "-type", "f", "-size", "+1", cwd=top)
    assert (finished.code, finished.said) == (0, "")
    assert sorted(finished.out.split()) == [b"./a/y", b"./b/c/x", b"./z"]
    strict = run_ffind(TWO, ".", "-noignore_readdir_race", "-size", "+1", cwd=top)
    assert strict.code == 1


def test_a_directory_that_cannot_be_read(fuse: Mount) -> None:
    mounted = fuse()
    top = grow(mounted.path)
    mounted.rules(Rule(ops=("opendir", "readdir", "readdirplus"), path="a", errno="EIO"))
    for words in ((".",), (".", "-depth"), (".", "-name", "a", "-prune", "-o", "-print")):
        expected = by_find(*words, cwd=top, code="-prune" not in words)
        assert found(*words, launcher=TWO, cwd=top, code="-prune" not in words) == expected


def test_other_file_systems(place: bytes, mount_tmpfs: Callable[[str], bytes]) -> None:
    mount = grow(mount_tmpfs("size=1m"))
    os.symlink(mount + b"/a", place + b"/link")
    for words in (
        (".", "-xdev"),
        (".", "-mount", "-depth"),
        ("-L", ".", "-xdev", "-type", "f"),
        (".", "-fstype", "tmpfs", "-printf", "%F %p\\n"),
        (".", "-xdev", "-size", "+1"),
        (mount, "-xdev"),
    ):
        expected = by_find(*words, cwd=place)
        for launcher in (ONE, TWO):
            assert found(*words, launcher=launcher, cwd=place) == expected, words


def test_a_time_limit_stops_cleanly(fuse: Mount) -> None:
    """Results found by then are written, in whole lines."""
    mounted = fuse()
    for number in range(60):
        os.makedirs(mounted.backing + b"/%d" % number)
        os.mknod(mounted.backing + b"/%d/file" % number)
    mounted.rules(Rule(ops=("lookup", "getattr"), path="*/file", delay_s=0.05))
    words = (".", "-type", "f", "-size", "-9", "--threads", "1", "--stop-after", "0.5")
    stopped = run_ffind(ONE, *words, cwd=mounted.path)
    assert stopped.code == 4, stopped.said
    assert "ffind: time limit reached (--stop-after 0.5" in stopped.said
    assert set(stopped.out.splitlines()) < {b"./%d/file" % number for number in range(60)}


def test_removals_per_second_are_limited(place: bytes) -> None:
    """Four hundred removals at a thousand a second take a measurable time."""
    for number in range(400):
        os.makedirs(place + b"/tree/%d" % number)
    began_s = time.monotonic()
    words = ("tree", "-mindepth", "1", "-delete", "--ops-limit", "1000")
    assert run_ffind(ONE, *words, cwd=place).code == 0
    assert time.monotonic() - began_s >= (400 - 100) / 1000
    assert os.listdir(place + b"/tree") == []


def test_in_a_process_with_threads(place: bytes) -> None:
    """The other processes are new interpreters then, without functions of this one."""
    top = grow(place + b"/tree")
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        result = find(top, "-name", "x", "-print0", jobs=2)
    finally:
        done.set()
        other.join()
    assert result.report.exit_code == 0
    assert sorted(result.paths) == [top + b"/a/x", top + b"/b/c/x"]


def test_helper_threads_end(place: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads for parallel look-ups of slow names end; tests.conftest checks it."""
    top = place + b"/wide"
    for directory in range(8):
        os.makedirs(top + b"/%d" % directory)
        for number in range(100):
            os.mknod(top + b"/%d/%d" % (directory, number))
    monkeypatch.setattr(stats, "_SLOW_S", 0.0)
    monkeypatch.setattr(ahead, "_SLOW_S", 0.0)
    for words in (("-size", "-1"), ("-printf", "%s %p\\n")):
        result = find(top, "-type", "f", *words, jobs=1)
        assert result.text.count(b"\n") == 800


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_a_closed_pipe_ends_the_search(tmp_path: Path, launcher: Launcher) -> None:
    """A closed pipe is not reported; a full disk is reported once, whatever is lost."""
    top = tmp_path / "tree"
    for number in range(600):
        (top / str(number % 60)).mkdir(parents=True, exist_ok=True)
        (top / str(number % 60) / str(number)).touch()
    leaves = '"$@" | head -n 1 >&2; exit "${PIPESTATUS[0]}"'
    for where, line, said in (("pipe", leaves, 0), ("full", '"$@" >/dev/full', 1)):
        report = tmp_path / "report"
        arguments = ["--json", str(report), str(top), "-printf", "%9999p\\n"]
        prefix = ("bash", "-c", line, "bash")
        environment = {"LC_ALL": "C"}
        with Run(
            launcher, *arguments, prefix=prefix, environment=environment, program=FFIND
        ) as run:
            finished = run.finish()
        assert (finished.code, finished.said.count("cannot write")) == (1, said), where
        counts = json.loads(report.read_text())["counts"]
        assert counts["files"] < 600, (where, counts)
