"""Failures of a profile are named, counted, and reflected in the exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pcircle.tools.fprof import plan
from pcircle.tools.fprof.cli import main
from tests.fusefs.fixture import Mount
from tests.fusefs.mounting import Mounted
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import (
    ONE,
    TWO,
    Launcher,
    Run,
    clean_environment,
    command,
    without_rights,
)
from tests.tools.fprof.judge import document_totals, judged
from tests.tools.fprof.running import FPROF, profiled, run_fprof, some_launchers

NO_RIGHTS = ("dac_override", "dac_read_search")


def build(root: bytes) -> bytes:
    for name in (b"open", b"closed", b"listed"):
        os.makedirs(root + b"/" + name)
        for number in range(3):
            with open(root + b"/" + name + b"/%d" % number, "wb") as file:
                file.write(b"x" * 10)
    return root


@some_launchers
def test_unreadable_directories_are_named_and_counted(launcher: Launcher, place: bytes) -> None:
    tree = build(place + b"/tree")
    os.chmod(tree + b"/closed", 0)
    prefix = without_rights(*NO_RIGHTS)
    log, document = place + b"/log", place + b"/document"
    finished = run_fprof(
        launcher, "-q", "--error-log", log, "--json", document, tree, prefix=prefix
    )
    assert finished.code == 1
    closed = os.fsdecode(tree + b"/closed")
    assert f"fprof: cannot read directory '{closed}': Permission denied" in finished.said
    with open(document, "rb") as file:
        counts = json.load(file)["counts"]
    assert (counts["unreadable"], counts["failed"]) == (1, 0)
    assert counts["directories"]["number"] == 4
    assert counts["files"]["number"] == 6
    with open(log, "rb") as file:
        (line,) = map(json.loads, file)
    assert (line["entry"], line["error"]) == ("closed", "EACCES")


def test_failed_look_ups_are_counted_one_by_one(place: bytes) -> None:
    """A directory may be read and not searched: its names are known, and nothing else."""
    tree = build(place + b"/tree")
    os.mkdir(tree + b"/listed/below")
    os.chmod(tree + b"/listed", stat.S_IRUSR)
    prefix = without_rights(*NO_RIGHTS)
    finished = run_fprof(ONE, "-q", "--json", "-", tree, prefix=prefix)
    assert finished.code == 1
    counts = json.loads(finished.out)["counts"]
    assert counts["failed"] == 4
    assert counts["files"]["number"] == 6
    assert counts["entries"] == 4 + 6 + 4
    assert finished.said.count("Permission denied") == 5  # and once by type
    assert "4 failures: 4 EACCES" in finished.said


def test_missing_paths_are_refused(place: bytes) -> None:
    finished = run_fprof(ONE, place + b"/gone")
    assert finished.code == 2
    assert "cannot profile" in finished.said
    assert "No such file or directory" in finished.said
    assert run_fprof(ONE, place + b"/gone/", place).code == 2
    assert run_fprof(ONE, "").code == 2


def test_mount_points_count_as_empty_directories(place: bytes, mount_tmpfs: object) -> None:
    assert callable(mount_tmpfs)
    inside = mount_tmpfs("size=1m")
    with open(inside + b"/file", "wb") as file:
        file.write(b"x" * 5000)
    assert profiled(ONE, place)["counts"]["files"]["number"] == 1
    document = profiled(TWO, "-x", place)
    assert document["counts"]["files"]["number"] == 0
    assert document["counts"]["directories"]["number"] == 2


def test_filters(place: bytes) -> None:
    tree = build(place + b"/tree")
    document = profiled(TWO, "--exclude", "/closed", "--include", "1", "--exclude", "open/*", tree)
    assert document["counts"]["files"]["number"] == 1 + 3
    assert document["counts"]["directories"]["number"] == 3


def slow(fuse: Mount, names: int, delay_s: float) -> Mounted:
    """Mount a file system with files whose look-ups are slow."""
    mounted = fuse()
    for number in range(names):
        with open(mounted.path + b"/%d" % number, "wb") as file:
            file.write(b"x" * number)
    mounted.rules(Rule(("getattr",), "[0-9]*", delay_s=delay_s))
    return mounted


def test_slow_look_ups_overlap(fuse: Mount) -> None:
    """The server counts the number of parallel look-ups; no clock is used."""
    mounted = slow(fuse, 3000, 0.02)
    command = ("--json", "-", "-q", "--threads", "12", mounted.path)
    with Run(ONE, *command, program=FPROF) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert json.loads(finished.out)["counts"]["files"]["bytes"] == sum(range(3000))
    assert mounted.state().max_delayed == 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it(fuse: Mount, number: signal.Signals) -> None:
    mounted = slow(fuse, 50, 0.2)
    document = os.path.dirname(mounted.path) + b"/document"
    with open(document, "wb") as file:
        file.write(b"of an earlier run")
    with Run(TWO, "--json", document, mounted.path, program=FPROF) as run:
        while not mounted.state().delayed:
            time.sleep(0.01)
        run.signal(number)
        finished = run.finish()
        assert finished.code == 128 + number
        assert f"stopped by {number.name}" in finished.said
        assert finished.out == b""
        assert run.wait_until_gone() == []
    with open(document, "rb") as file:
        said = json.load(file)
    assert said["exit_code"] == 128 + number
    assert said["reasons"] == [f"stopped by {number.name}"]
    assert "counts" not in said


def test_a_full_output_is_a_reported_failure(place: bytes) -> None:
    build(place + b"/tree")
    command = [
        sys.executable,
        "-m",
        "pcircle.tools.fprof",
        "-j",
        "1",
        os.fsdecode(place + b"/tree"),
    ]
    with open("/dev/full", "wb") as full:
        finished = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=clean_environment(), check=False
        )
    assert finished.returncode == 1
    assert b"cannot write standard output: No space left" in finished.stderr


def test_progress_is_shown_on_a_terminal_and_leaves_no_trace(fuse: Mount) -> None:
    mounted = slow(fuse, 300, 0.01)
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pcircle.tools.fprof", "-j", "1", "--threads", "2", mounted.path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**clean_environment(), "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            received = os.read(master, 65536)
        except OSError:  # the other side was closed
            break
        if not received:
            break
        shown += received
    out, _ = process.communicate()
    os.close(master)
    assert process.returncode == 0
    assert b"entries" in shown
    assert b"size up to" in out


def test_load_is_printed_with_stats(place: bytes) -> None:
    tree = build(place + b"/tree")
    finished = run_fprof(TWO, "-v", "--stats", tree)
    for word in ("rank", "steals", "messages", "readdir", "stat", "idle", "protocol"):
        assert word in finished.said
    assert "profiled 13 entries" in finished.said
    document = profiled(TWO, tree)
    assert sum(rank["entries"] for rank in document["ranks"]) == 13
    assert sum(rank["messages"] for rank in document["ranks"]) == sum(
        sent["messages"] for rank in document["ranks"] for sent in rank["sent"]
    )
    assert document_totals(document) == judged(tree)


@some_launchers
@pytest.mark.parametrize("null", [False, True])
def test_lists(launcher: Launcher, place: bytes, null: bool) -> None:
    """Only listed entries of any type count; missing ones fail."""
    tree = build(place + b"/tree")
    os.symlink(b"nowhere", tree + b"/link")
    os.mkfifo(tree + b"/open/fifo")
    paths = [b"open/0", b"./open//1", b"closed", b"link", b"open/fifo", b"listed/2", b"", b"gone"]
    paths += [b"open/0", b"open/./0"]  # again: it counts once
    with open(place + b"/list", "wb") as file:
        file.write((b"\0" if null else b"\n").join(paths))
    options = ["--files-from", os.fsdecode(place + b"/list"), *(["-0"] if null else [])]
    finished = run_fprof(launcher, "-q", "--json", "-", *options, tree)
    assert finished.code == 1
    assert "cannot look up" in finished.said
    counts = json.loads(finished.out)["counts"]
    assert counts["files"]["number"] == 3
    assert counts["files"]["bytes"] == 30
    numbers = [counts[kind]["number"] for kind in ("directories", "links", "special")]
    assert (numbers, counts["failed"]) == ([1, 1, 1], 1)


def test_invalid_lists_are_refused(place: bytes) -> None:
    place_text = os.fsdecode(place)
    with open(place + b"/list", "wb") as file:
        file.write(b"a/../../b\n")
    with open(place + b"/absolute", "wb") as file:
        file.write(b"/a\n")
    for options, said in (
        (["--files-from", f"{place_text}/list"], "contains '..'"),
        (["--files-from", f"{place_text}/absolute"], "it is absolute"),
        (["--files-from", ""], "cannot read ''"),
        (["-0"], "--null requires --files-from, --exclude-from or --include-from"),
        (["--files-from", f"{place_text}/gone"], "cannot read"),
        (
            ["--files-from", f"{place_text}/list", "--exclude", "x"],
            "cannot be combined with filters",
        ),
    ):
        finished = run_fprof(ONE, *options, place)
        assert finished.code == 2
        assert said in finished.said
    finished = run_fprof(ONE, "--files-from", f"{place_text}/list", place + b"/list")
    assert finished.code == 2


@some_launchers
def test_a_complete_list_equals_a_walk(launcher: Launcher, odd_tree: bytes, tmp_path: Path) -> None:
    """The list is in any order and includes the root; a slash after a name means its contents."""
    listed = subprocess.run(
        ["find", b".", "-print0"], cwd=odd_tree, check=True, stdout=subprocess.PIPE
    ).stdout
    paths = listed.split(b"\0")
    for text in (listed, b"\0".join(reversed(paths)), b"./\0"):
        finished = run_with_list(launcher, text, tmp_path, odd_tree)
        assert document_totals(finished) == judged(odd_tree)
    names = sorted(os.listdir(odd_tree))
    below = b"\0".join(name + b"/" for name in names)
    document = run_with_list(launcher, below, tmp_path, odd_tree)
    assert document_totals(document) == judged(*(odd_tree + b"/" + name for name in names))


def run_with_list(
    launcher: Launcher, text: bytes, folder: Path, *arguments: str | bytes
) -> dict[str, Any]:
    """Run on a list: by standard input, which launchers lose, or by a file."""
    listed = "-"
    if launcher.ranks:
        listed = str(folder / "list")
        (folder / "list").write_bytes(text)
    finished = subprocess.run(
        command(launcher, ["-q", "--json", "-", "-0", "--files-from", listed, *arguments], FPROF),
        input=text,
        capture_output=True,
        env=clean_environment(),
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    assert isinstance(document, dict)
    return document


def test_a_long_list_is_not_kept_in_memory(place: bytes) -> None:
    """Only the sorted file is mapped, and the system decides how much of it stays in memory."""
    tree = build(place + b"/tree")
    fd = os.open(tree + b"/open", os.O_RDONLY)
    names = [b"%06d" % number * 40 for number in range(60_000)]
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    peaks = []
    for number in (1000, len(names)):
        with open(place + b"/list", "wb") as file:
            file.writelines(b"open/" + name + b"\n" for name in names[:number])
        document = profiled(ONE, "--files-from", place + b"/list", tree)
        assert document["counts"]["files"]["number"] == number
        peaks.append(document["ranks"][0]["peak_rss_bytes"])
    assert peaks[1] - peaks[0] < os.path.getsize(place + b"/list") + (8 << 20)


FILES = ("--json", "--save", "--html", "--csv", "--error-log")


@pytest.mark.parametrize("option", FILES[:3])
def test_a_device_is_written_and_not_replaced(place: bytes, option: str) -> None:
    """Even root must not put a file in place of /dev/null."""
    tree = build(place + b"/tree")
    for name, minor in ((b"/null", 3), (b"/full", 7)):
        if os.geteuid() == 0:
            os.mknod(place + name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        else:
            os.symlink(b"/dev" + name, place + name)
    assert run_fprof(ONE, "-q", option, place + b"/null", tree).code == 0
    finished = run_fprof(ONE, "-q", option, place + b"/full", tree)
    assert finished.code == 1
    assert "No space left on device" in finished.said
    assert stat.S_ISCHR(os.stat(place + b"/null").st_mode)
    assert stat.S_ISCHR(os.stat(place + b"/full").st_mode)
    assert sorted(os.listdir(place)) == [b"full", b"null", b"tree"]


@pytest.mark.parametrize("option", FILES[:3])
def test_the_target_of_a_link_is_replaced_and_keeps_its_mode(place: bytes, option: str) -> None:
    with open(place + b"/file", "wb"):
        os.chmod(place + b"/file", 0o600)
    os.symlink(b"file", place + b"/link")
    assert run_fprof(ONE, "-q", option, place + b"/link", place).code == 0
    assert os.path.islink(place + b"/link")
    status = os.stat(place + b"/file")
    assert status.st_size > 100
    assert stat.S_IMODE(status.st_mode) == 0o600


def test_invalid_file_names_are_refused(place: bytes) -> None:
    tree = build(place + b"/tree")
    for option in FILES:
        assert run_fprof(ONE, "-q", option, "", tree).code == 2
        assert run_fprof(ONE, "-q", option, "n" * 300, tree, cwd=place).code == 2
    for option in FILES[1:3]:
        assert run_fprof(ONE, "-q", option, "-", tree, cwd=place).code == 2
    for one, other in (("--save", "--html"), ("--json", "--error-log"), ("--html", "--json")):
        finished = run_fprof(ONE, one, "same", other, "./same", tree, cwd=place)
        assert finished.code == 2
        assert "cannot both write to" in finished.said
    assert os.listdir(place) == [b"tree"]
    longest = "n" * 255
    for option in FILES[:3]:
        finished = run_fprof(ONE, "-q", option, longest, tree, cwd=place)
        assert (finished.code, finished.said) == (0, "")


@pytest.mark.parametrize("options", [[], ["--json", "-"], ["-q", "--json", "-"]], ids=" ".join)
def test_without_standard_output_the_result_is_a_failure(place: bytes, options: list[str]) -> None:
    tree = build(place + b"/tree")
    shell = ["sh", "-c", 'exec "$@" >&-', "sh"]
    finished = run_fprof(ONE, *options, tree, prefix=shell)
    assert finished.code == 1
    assert "Bad file descriptor" in finished.said


def test_without_standard_error_the_result_is_printed(place: bytes) -> None:
    tree = build(place + b"/tree")
    for options, code in (([], 0), (["-q", "--json", "-"], 0), (["--json", "-"], 1)):
        finished = run_fprof(ONE, *options, tree, prefix=["sh", "-c", 'exec "$@" 2>&-', "sh"])
        assert finished.code == code
        assert b"files" in finished.out


@pytest.mark.parametrize("kind", ["file", "directory", "replaced"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_paths_that_vanish_before_the_walk(
    place: bytes, kind: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They vanish after the check of all PATHs: each is named, the others are reported."""
    stays, goes, document = build(place + b"/stays"), place + b"/goes", place + b"/document"
    if kind == "directory":
        os.mkdir(goes)
    else:
        with open(goes, "wb"):
            pass

    def resolve_and_remove(paths: Sequence[bytes]) -> Any:
        found = plan.resolve(paths)
        (os.rmdir if kind == "directory" else os.unlink)(goes)
        if kind == "replaced":
            os.mkdir(goes)
        return found

    monkeypatch.setattr("pcircle.tools.fprof.command.resolve", resolve_and_remove)
    arguments: list[str | bytes] = ["-q", "-j", str(jobs), "--json", document, stays, goes]
    code = main(list(map(os.fsdecode, arguments)))
    with open(document, "rb") as file:
        counts = json.load(file)["counts"]
    assert code == counts["failed"] == (kind != "replaced")
    assert counts["files"]["number"] == 9
    assert counts["directories"]["number"] == 4 + (kind == "replaced")
    assert counts["entries"] == 14


@pytest.mark.parametrize("option", FILES[:3])
def test_a_pipe_is_written_through_its_descriptor(place: bytes, option: str) -> None:
    """A shell's `>(command)` and `/dev/stdout` are such names."""
    tree = build(place + b"/tree")
    finished = run_fprof(ONE, "-q", option, "/dev/stdout", tree)
    assert (finished.code, finished.said) == (0, "")
    assert len(finished.out) > 200
    shell = ["bash", "-c", 'exec "$@" 3> >(cat >&2)', "bash"]
    finished = run_fprof(ONE, "-q", option, "/dev/fd/3", tree, prefix=shell)
    assert finished.code == 0
    assert finished.out == b""
    assert len(finished.err) > 200
