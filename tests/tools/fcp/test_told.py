"""Output that a new user sees: messages of ordinary runs and failures."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pcircle.core.units import format_size
from tests.conftest import ROOT
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.interrupts import interrupt
from tests.tools.fcp.judge import CONTENT, differences, snapshot
from tests.tools.fcp.running import (
    ONE,
    TWO,
    Launcher,
    Run,
    clean_environment,
    copy,
    document,
    run_fcp,
)
from tests.tools.fcp.trees import build_failing, build_flat_tree, make_directory, write_file

STARTING = "fcp: no checkpoint found: starting a new copy"


@pytest.fixture
def source(place: bytes) -> bytes:
    made = make_directory(place, b"source")
    write_file(made + b"/file", b"content")
    return made


def last_line(out: bytes) -> str:
    return out.decode().rstrip("\n").rpartition("\n")[2]


# ---- checkpoints -------------------------------------------------------------------------------


def test_resume_without_a_checkpoint_reports_it(source: bytes, place: bytes) -> None:
    target = place + b"/copy"
    assert copy(ONE, "--resume", source, target).said.splitlines() == [STARTING]
    # Again: DST exists, and the copy is created inside it.
    (said,) = copy(ONE, "--resume", source, target).said.splitlines()
    shown = os.fsdecode(target)
    assert said == (
        f"{STARTING}; '{shown}' exists, so the copy goes to '{shown}/source': "
        f"add -T to make '{shown}' the copy"
    )
    exactly: list[list[str | bytes]] = [["-T", source, target], ["-t", target, source]]
    for options in exactly:
        assert copy(ONE, "--resume", *options).said.splitlines() == [STARTING]
    assert copy(ONE, "--resume", "--quiet", source, target).said == ""
    assert copy(ONE, "--resume", source + b"/file", target).said.splitlines() == [STARTING]


def test_a_checkpoint_of_other_sources_is_named(place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 4, 250, 1000)
    checkpoint = interrupt(ONE, place, source, place + b"/copy")
    other = make_directory(place, b"other")
    said = copy(ONE, "--resume", "-T", other, place + b"/copy").said
    assert STARTING in said
    paths = [os.fsdecode(path) for path in (checkpoint, source, place + b"/copy")]
    assert (
        "'{}' belongs to an interrupted copy of '{}' to '{}': resume that copy".format(*paths)
        in said
    )
    # Neither for a copy to another destination, nor for this one.
    assert "interrupted" not in copy(ONE, "-T", other, place + b"/elsewhere").said
    assert "interrupted" not in copy(ONE, "--resume", "-T", source, place + b"/copy").said


def test_earlier_work_adds_up(place: bytes) -> None:
    """A refusal and a resumed run print the same amount, and the summary no more than that."""
    source = build_flat_tree(place + b"/source", 4, 250, 1000)
    interrupt(ONE, place, source, place + b"/copy")
    refusal = re.search(
        r"\(([\d,]+) entr\w+, .* copied\)", run_fcp(ONE, source, place + b"/copy").said
    )
    assert refusal
    finished = copy(ONE, "--resume", "--json", place + b"/report", source, place + b"/copy")
    resumed = re.search(r"resuming from .*: ([\d,]+) entr\w+, .* copied", finished.said)
    assert resumed
    assert resumed[1] == refusal[1]
    report = document(place + b"/report")
    assert report["entries"] == 1005
    # Work in progress at the kill is repeated.
    assert 0 < report["resumed"] <= int(resumed[1].replace(",", ""))
    earlier = f"{report['resumed']:,} entries ({format_size(report['resumed_bytes'])})"
    assert last_line(finished.out).endswith(f", including {earlier} from an earlier run")


def test_the_batch_script_for_slurm_can_be_resubmitted(place: bytes) -> None:
    """For a complete copy it copies only files that have changed since."""
    page = (ROOT / "docs" / "howto" / "batch.rst").read_text()
    line, *_ = re.findall(r"^ +srun --mpi=pmi2 (fcp .*)$", page, re.M)
    words = line.split()[1:]
    assert words[-2:] == ["/data/project", "/scratch/project"]
    data = make_directory(place, b"data")
    for name in names(20):
        write_file(data + b"/" + name, name)
    words[:0] = ["--json", os.fsdecode(place + b"/copy.json")]
    words[-2:] = [os.fsdecode(place + b"/data"), os.fsdecode(place + b"/copy")]
    copy(TWO, *words)
    first = files_of(place + b"/copy")
    again = copy(TWO, *words)
    assert files_of(place + b"/copy") == first
    assert last_line(again.out).startswith("nothing to do: 20 entries skipped, 1 directory")
    (changed, *_) = sorted(first)
    os.unlink(data + b"/" + changed)
    write_file(data + b"/" + changed, b"changed")
    assert document(place + b"/copy.json")["files"] == 0
    copy(TWO, *words)
    assert document(place + b"/copy.json")["files"] == 1
    assert differences(place + b"/data", place + b"/copy", CONTENT) == []


def files_of(root: bytes) -> dict[bytes, int]:
    """Return the inode of each file below a directory, by its path."""
    return {
        os.path.relpath(os.path.join(folder, name), root): os.stat(
            os.path.join(folder, name)
        ).st_ino
        for folder, _, names in os.walk(root)
        for name in names
    }


# ---- the summary -------------------------------------------------------------------------------


def test_the_summary_names_where_the_copy_is(source: bytes, place: bytes) -> None:
    shown = os.fsdecode(place)
    for target, where in (("copy", "copy"), ("copy", "copy/source")):
        finished = copy(ONE, source, place + b"/" + target.encode())
        assert f", 7 B to '{shown}/{where}' in " in last_line(finished.out)
    other = make_directory(place, b"other")
    finished = copy(ONE, source, other, place + b"/copy")
    assert f" to '{shown}/copy' in " in last_line(finished.out)


def test_nothing_to_do_is_reported(source: bytes, place: bytes) -> None:
    copy(ONE, "-p", source, place + b"/copy")
    for options in (["-p", "--skip-same"], ["-n"]):
        finished = copy(ONE, *options, "-T", source, place + b"/copy")
        assert re.fullmatch(
            r"nothing to do: 1 entry skipped, 1 directory checked in '.*/copy' in \S+",
            last_line(finished.out),
        )
    write_file(source + b"/new", b"new")
    finished = copy(ONE, "-n", "-T", source, place + b"/copy")
    assert last_line(finished.out).startswith("copied 1 entry (1 file, 0 directories, ")
    assert last_line(finished.out).endswith("; 1 entry skipped, 1 directory checked")


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
@pytest.mark.parametrize("options", [["-p", "-u"], ["-p", "-n"], ["-a", "--skip-same"]], ids=str)
def test_directories_with_new_attributes_are_reported(
    launcher: Launcher, options: list[str], place: bytes
) -> None:
    """A second copy does nothing else, because the files are unchanged."""
    source, target = make_directory(place, b"source"), place + b"/copy"
    for name in (b"mode", b"time", b"same"):
        write_file(make_directory(source, name) + b"/file", b"content")
    copy(launcher, *options, "-T", source, target)

    def run(*words: str | bytes) -> tuple[str, int, int]:
        finished = copy(
            launcher, *words, *options, "--json", place + b"/report", "-T", source, target
        )
        report = document(place + b"/report")
        assert (report["directories"], report["directories_created"]) == (4, 0)
        text = last_line(finished.out).partition(" in '")[0]
        return text, report["directories_touched"], report["skipped"]

    stay = "3 entries skipped, 4 directories checked"
    assert run() == (f"nothing to do: {stay}", 0, 3)
    changes: list[Callable[[], None]] = [
        lambda: os.chmod(source + b"/mode", 0o700),
        lambda: os.utime(source + b"/time", ns=(1, 1)),
        lambda: os.utime(source, ns=(2, 2)),
    ]
    if "-a" in options:
        changes.append(lambda: os.setxattr(source + b"/same", b"user.x", b"value"))
    for change in changes:
        change()
        before = snapshot(target)
        assert run("--dry-run") == (f"would update attributes of 1 entry: {stay}", 1, 3)
        assert snapshot(target) == before
        assert run() == (f"attributes of 1 entry updated: {stay}", 1, 3)
        assert run("--dry-run") == run() == (f"nothing to do: {stay}", 0, 3)
    assert differences(source, target) == []


# ---- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["mkdir", "create", "setattr"])
def test_the_path_that_refused_is_named(operation: str, place: bytes, fuse: Mount) -> None:
    mounted = fuse()
    target = mounted.path + b"/copy"
    os.mkdir(target)
    path = {"mkdir": "copy/below"}.get(operation, "copy/below/file")
    mounted.rules(Rule(ops=(operation,), errno="EACCES", path=path))
    source = make_directory(place, b"source")
    write_file(make_directory(source, b"below") + b"/file", b"content")
    log = place + b"/log"
    finished = run_fcp(ONE, "-p", "--error-log", log, "-T", source, target)
    assert finished.code == 1
    wanted = os.fsdecode(mounted.path) + "/" + path
    first = finished.said.splitlines()[0]
    assert first.startswith("fcp: ")
    assert first.endswith(": Permission denied")
    assert f"'{wanted}'" in first
    # The log has the same line, and a search finds it.
    mounted.rules()
    line = document(log)
    assert line["path"] == wanted
    assert line["doing"] in first
    copy(ONE, "-p", "--retry-from", log, "-T", source, target)
    assert differences(source, target, CONTENT) == []


def test_a_source_that_refuses_is_named(place: bytes, fuse: Mount) -> None:
    mounted = fuse()
    write_file(mounted.path + b"/file", b"content")
    mounted.rules(Rule(ops=("open",), errno="EACCES", path="file"))
    finished = run_fcp(ONE, mounted.path + b"/file", place + b"/copy")
    shown = os.fsdecode(mounted.path)
    first = finished.said.splitlines()[0]
    assert first.startswith("fcp: ")
    assert first.endswith(f"'{shown}/file': Permission denied")


def names(number: int) -> list[bytes]:
    return [b"%04d" % index for index in range(number)]


def test_failures_beyond_the_first_are_in_the_log(place: bytes) -> None:
    source, target = build_failing(place, *names(120))
    log = place + b"/the log"
    finished = run_fcp(TWO, "--error-log", log, "-T", source, target)
    assert finished.code == 1
    lines = finished.said.splitlines()
    assert len([line for line in lines if line.startswith("fcp: cannot ")]) == 20
    shown = os.fsdecode(log)
    assert f"fcp: further failures are counted but not printed: '{shown}' lists them all" in lines
    assert len(log_lines(log)) == 120
    (command,) = [
        line for line in lines if line.startswith("fcp: to retry only the failed entries")
    ]
    for name in names(120):
        os.rmdir(target + b"/" + name)
    # The printed command works.
    words = command.partition("run: fcp ")[2]
    subprocess.run(
        [*["sh", "-c"], f'"$0" -m pcircle.tools.fcp {words}', sys.executable],
        check=True,
        env=clean_environment(),
        capture_output=True,
    )
    assert differences(source, target, CONTENT) == []


def log_lines(path: bytes) -> list[str]:
    return Path(os.fsdecode(path)).read_text().splitlines()


def test_on_a_terminal_the_first_failures_are_shown(place: bytes) -> None:
    source, target = build_failing(place, *names(120))
    controller, terminal = pty.openpty()
    try:
        with Run(ONE, "-T", source, target, stderr=terminal) as run:
            assert run.finish().code == 1
        shown = ""
        while "120 failures" not in shown:  # a terminal accepts a few kilobytes at a time
            shown += os.read(controller, 1 << 16).decode()
    finally:
        os.close(terminal)
        os.close(controller)
    lines = shown.splitlines()
    assert len([line for line in lines if line.startswith("fcp: cannot ")]) == 20
    assert (
        "fcp: further failures are counted but not printed: add --error-log FILE to list them all"
        in lines
    )
    assert "fcp: 120 failures: 120 EISDIR (Is a directory)" in lines


def test_without_a_terminal_each_failure_is_named(place: bytes) -> None:
    """Standard error is the only log then."""
    source, target = build_failing(place, *names(120))
    finished = run_fcp(TWO, "-T", source, target)
    assert finished.said.count("fcp: cannot ") == 120
    assert "use --error-log FILE and then --retry-from FILE" in finished.said


def test_the_document_counts_omitted_failures(place: bytes) -> None:
    source, target = build_failing(place, *names(1200))
    run_fcp(TWO, "--json", place + b"/report", "-T", source, target)
    report = document(place + b"/report")
    assert (report["failed"], len(report["failures"])) == (1200, 1000)
    assert report["failures_omitted"] == 200


def test_a_full_destination_ends_with_the_command_to_run_next(place: bytes, fuse: Mount) -> None:
    mounted = fuse()
    source = build_flat_tree(place + b"/source", 2, 20, 1000)
    target = mounted.path + b"/copy"
    mounted.rules(Rule(ops=("write",), errno="ENOSPC", path="copy/*"))
    words: list[str | bytes] = ["--checkpoint-dir", place, "-T", source, target]
    stopped = run_fcp(ONE, *words)
    assert stopped.code == 4
    *_, last = stopped.said.splitlines()
    shown = [os.fsdecode(word) for word in words]
    assert last == "fcp: to continue, free some space and run: " + shlex.join(
        ["fcp", "--resume", "-j", "1", *shown]
    )
    mounted.rules()
    copy(ONE, "--resume", *words)
    assert differences(source, target, CONTENT) == []
