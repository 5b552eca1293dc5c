"""Output of fcp: the summary, JSON, quiet and verbose, progress, dry run, version and help."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from .judge import CONTENT, METADATA, differences, snapshot
from .running import (
    FOUR,
    ONE,
    TWO,
    Launcher,
    Run,
    copy,
    document,
    every_launcher,
    launchers,
    run_fcp,
    some_launchers,
)
from .trees import build_failing, build_flat_tree, build_small_tree, count, write_file

NUMBER = r"\d[\d.,'_ ]*"
SIZE = rf"{NUMBER}(B|bytes|[kKMGT]i?B)\b"


@pytest.fixture(scope="session")
def small_tree(shared_place: bytes) -> bytes:
    return build_small_tree(shared_place + b"/small")


@every_launcher
def test_json_counts_every_entry_and_byte(
    launcher: Launcher, small_tree: bytes, place: bytes
) -> None:
    copy(launcher, "--json", place + b"/result", small_tree, place + b"/copy")
    result = document(place + b"/result")
    entries, size_bytes = count(small_tree)
    assert result["schema"]
    assert (result["exit_code"], result["failures"]) == (0, [])
    assert (result["entries"], result["bytes"]) == (entries, size_bytes)
    assert len(result["ranks"]) == launcher.size
    assert [rank["rank"] for rank in result["ranks"]] == list(range(launcher.size))
    assert sum(rank["entries"] for rank in result["ranks"]) == entries
    assert sum(rank["bytes"] for rank in result["ranks"]) == size_bytes
    assert all(rank["peak_rss_bytes"] > 1 << 20 for rank in result["ranks"])


def test_json_counts_one_file(place: bytes) -> None:
    source = write_file(place + b"/source", b"twelve bytes")
    copy(TWO, "--json", place + b"/result", source, place + b"/copy")
    result = document(place + b"/result")
    assert (result["entries"], result["bytes"]) == (1, 12)


@some_launchers
def test_json_on_standard_output(launcher: Launcher, small_tree: bytes, place: bytes) -> None:
    """The summary goes to standard error then, so that the output is one document."""
    finished = copy(launcher, "--json", "-", small_tree, place + b"/copy")
    assert json.loads(finished.out)["exit_code"] == 0
    assert re.search(SIZE, finished.said)


def test_json_of_failures_has_every_name(place: bytes) -> None:
    """Names that are not text survive JSON in some form, and never break it."""
    source, target = build_failing(place, b"plain", b"bad \xff", b"new\nline")
    finished = run_fcp(TWO, "--json", place + b"/result", "-T", source, target)
    result = document(place + b"/result")
    assert finished.code == result["exit_code"] == 1
    assert len(result["failures"]) == 3
    shown = json.dumps(result["failures"])
    for word in ("plain", "bad ", "new"):
        assert word in shown


@some_launchers
def test_quiet_is_silent(launcher: Launcher, small_tree: bytes, place: bytes) -> None:
    finished = copy(launcher, "-q", small_tree, place + b"/copy")
    assert (finished.out, finished.err) == (b"", b"")
    assert differences(small_tree, place + b"/copy", CONTENT) == []


def test_quiet_still_names_failures(place: bytes) -> None:
    source, target = build_failing(place, b"taken")
    os.mkfifo(source + b"/fifo")
    finished = run_fcp(TWO, "--quiet", "-T", source, target)
    assert finished.code == 1
    assert "target/taken': a directory is in the way" in finished.said
    assert "fifo" not in finished.said, "that is skipped, which is no failure"


@some_launchers
def test_last_line_is_the_summary(launcher: Launcher, small_tree: bytes, place: bytes) -> None:
    finished = copy(launcher, small_tree, place + b"/copy")
    last = finished.out.decode().rstrip("\n").rpartition("\n")[2]
    entries, _size_bytes = count(small_tree)
    assert re.search(rf"\b{entries}\b[^,;]*entr", last), last
    assert re.search(SIZE, last), last
    assert re.search(rf"{NUMBER}(s|sec|seconds|ms)\b", last), last
    assert re.search(rf"{SIZE}/s", last), last
    assert "\x1b" not in last


def test_v_lists_copied_entries(small_tree: bytes, place: bytes) -> None:
    """The same entries as cp lists, and nothing about the processes."""
    lines = copy(FOUR, "-v", small_tree, place + b"/copy").out.splitlines()
    listed = subprocess.run(
        ["cp", "-rv", small_tree, place + b"/by cp"], capture_output=True, check=True
    )
    wanted = [b"copied " + line.partition(b" -> ")[0] for line in listed.stdout.splitlines()]
    assert len(wanted) > 4
    assert sorted(lines[:-1]) == sorted(wanted)
    assert copy(ONE, "-v", "-T", "--skip-same", "-p", small_tree, place + b"/copy").code == 0


def test_stats_gives_shares_of_ranks(small_tree: bytes, place: bytes) -> None:
    brief = copy(FOUR, small_tree, place + b"/brief")
    verbose = copy(FOUR, "--stats", small_tree, place + b"/verbose")
    output = (verbose.out + verbose.err).decode()
    assert "rank" in output.lower()
    for rank in range(4):
        assert re.search(rf"^\W*(rank)?\W*{rank}\b", output, re.MULTILINE | re.IGNORECASE), output
    assert len(output.splitlines()) >= len((brief.out + brief.err).splitlines()) + 4


@pytest.mark.parametrize("launcher", launchers([1, 2], [2]))
def test_plain_progress_without_a_terminal(launcher: Launcher, place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 20, 1000, 1000)
    arguments = ("--interval", "0.05", source, place + b"/copy")
    finished = copy(launcher, *arguments)
    assert re.search(r"\d%", finished.said), finished.said
    assert not {"\x1b", "\r"} & set(finished.said)


def test_no_progress_when_not_wanted(place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 20, 1000, 1000)
    arguments = ("--progress", "never", "--interval", "0.05", source, place + b"/copy")
    assert copy(TWO, *arguments).err == b""


def _read_terminal(run: Run, terminal: int) -> bytes:
    """Return the run's output on its terminal while it gets a fifth of the time.

    Stopped and continued repeatedly, a copy of half a second takes several: long enough for a bar,
    on a machine of any speed.
    """
    shown = b""
    while run.process.poll() is None:
        if b"%" not in shown:
            for number, pause_s in ((signal.SIGSTOP, 0.2), (signal.SIGCONT, 0.05)):
                run.signal(number)
                time.sleep(pause_s)
        # A terminal without a reader would block the copy, even after the bar was seen.
        while select.select([terminal], [], [], 0.01)[0]:
            shown += os.read(terminal, 65536)
    return shown


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_live_bar_on_a_terminal(launcher: Launcher, place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 40, 1000, 1000)
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    xterm = {"TERM": "xterm"}
    try:
        with Run(launcher, source, place + b"/copy", stderr=terminal, environment=xterm) as run:
            shown = _read_terminal(run, controller)
            assert run.finish().code == 0
    finally:
        os.close(terminal)
        os.close(controller)
    assert re.search(rb"\d%", shown), shown
    # A live bar overwrites itself.
    assert b"\r" in shown or b"\x1b[" in shown


@some_launchers
def test_dry_run_touches_nothing(launcher: Launcher, place: bytes) -> None:
    source = build_small_tree(place + b"/source")
    os.mkdir(place + b"/parent")
    write_file(place + b"/parent/old", b"old")
    before = snapshot(place, METADATA)
    finished = copy(launcher, "--dry-run", "--json", "-", "-p", source, place + b"/parent/copy")
    assert snapshot(place, METADATA) == before
    result = json.loads(finished.out)
    assert (result["entries"], result["bytes"]) == count(source)


def test_dry_run_over_an_existing_copy(place: bytes) -> None:
    source = build_small_tree(place + b"/source")
    copy(TWO, source, place + b"/copy")
    write_file(source + b"/another", b"another")
    before = snapshot(place, METADATA)
    finished = copy(TWO, "--dry-run", "-T", source, place + b"/copy")
    assert finished.out.strip()
    assert snapshot(place, METADATA) == before


def test_dry_run_has_the_refusals_of_the_run(place: bytes) -> None:
    source = build_small_tree(place + b"/source")
    finished = run_fcp(TWO, "--dry-run", source, source + b"/inside")
    assert finished.code == 2


@pytest.mark.parametrize("launcher", [None, *launchers([], [4])], ids=str)
def test_version_is_printed_once(launcher: Launcher | None) -> None:
    finished = run_fcp(launcher, "--version")
    assert finished.code == 0
    assert re.fullmatch(rb"fcp \d+\.\d+\S*\n", finished.out), finished.out


@pytest.mark.parametrize("launcher", [None, *launchers([], [4])], ids=str)
def test_help_names_the_options_once(launcher: Launcher | None) -> None:
    finished = run_fcp(launcher, "--help")
    assert (finished.code, finished.err) == (0, b"")
    output = finished.out.decode()
    for option in (
        "-p",
        "--preserve",
        "-r",
        "-R",
        "-T",
        "--no-target-directory",
        "-t",
        "-j",
        "-q",
        "-v",
        "--stats",
        "--progress",
        "--interval",
        "--json",
        "--chunksize",
        "--dry-run",
        "--transport",
        "--version",
    ):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", output), option
    assert len(re.findall(r"^usage:", output, re.IGNORECASE | re.MULTILINE)) == 1


@pytest.mark.mpi
def test_jobs_under_a_launcher_are_ranks_of_each_of_its_processes(
    small_tree: bytes, place: bytes
) -> None:
    copy(Launcher(ranks=2, jobs=3), "--json", place + b"/result", small_tree, place + b"/copy")
    assert differences(small_tree, place + b"/copy", CONTENT) == []
    result = document(place + b"/result")
    assert [rank["rank"] for rank in result["ranks"]] == list(range(6))


def test_local_transport_by_name(small_tree: bytes, place: bytes) -> None:
    copy(TWO, "--transport", "local", small_tree, place + b"/copy")
    assert differences(small_tree, place + b"/copy", CONTENT) == []


def test_default_number_of_workers(small_tree: bytes, place: bytes) -> None:
    """Without -j there is one worker for each usable core, up to eight, for a tree."""
    copy(None, "--json", place + b"/result", small_tree, place + b"/copy")
    ranks = document(place + b"/result")["ranks"]
    assert len(ranks) == min(8, len(os.sched_getaffinity(0)))
    assert differences(small_tree, place + b"/copy", CONTENT) == []
