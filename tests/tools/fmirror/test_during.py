"""`--delete=during` removes extraneous entries after their directory was compared, not sooner."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle import mirror
from tests.strace import Call, read_calls
from tests.tools.fcp.running import ONE, TWO, Launcher, clean_environment, command
from tests.tools.fcp.trees import make_directory, write_file

from .edits import Tree, cleared, copy_of
from .running import (
    FMIRROR,
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
    searched,
)
from .test_judge import pair, shared, state

__all__ = ["shared"]
DURING = "--delete=during"
pytestmark = [as_root, needs_rsync]


@searched(40, soak=2000)
@given(seed=st.integers(0, 2**40))
def test_no_differences_remain(shared: bytes, seed: int) -> None:
    source, target = pair(shared, seed)
    wanted: dict[str, Any] = {
        "delete": "during",
        "allow_empty": True,
        "allow_foreign": True,
        "jobs": 1,
    }
    report = mirror(source, target, **wanted)
    assert (report.exit_code, report.failed) == (0, 0)
    assert differences(source, target) == ""
    before = state(target)
    again = mirror(source, target, **wanted)
    assert state(target) == before
    assert (again.exit_code, again.files, again.touched, again.removed) == (0, 0, 0, 0)


@searched(20, soak=500)
@given(seed=st.integers(0, 2**40))
def test_counts_are_those_of_a_dry_run_and_of_other_deletions(shared: bytes, seed: int) -> None:
    source, target = pair(shared, seed)
    other = target + b" as well"
    if os.path.lexists(target):
        copy_of(target, other)
    wanted: dict[str, Any] = {"allow_empty": True, "allow_foreign": True, "jobs": 1}
    expected = mirror(source, target, delete="during", dry_run=True, **wanted)
    done = mirror(source, target, delete="during", **wanted)
    after = mirror(source, other, delete=True, **wanted)
    assert (done.surplus, done.removed) == (expected.surplus, expected.removed)
    assert (done.surplus, done.removed) == (after.surplus, after.removed)


@every_launcher
@pytest.mark.parametrize("seed", [11, 22])
def test_every_launcher_does_the_same(place: bytes, launcher: Launcher, seed: int) -> None:
    """This includes directories whose names are divided: they are listed again at the end."""
    source, target = pair(place, seed)
    for number in range(1500):
        write_file(source + b"/file %d" % number, b"%d" % number)
    os.makedirs(target, exist_ok=True)
    for number in range(3000):
        write_file(target + b"/surplus %d" % number, b"")
        if number % 3 == 0:
            os.makedirs(target + b"/more %d/inner" % number)
    words: list[str | bytes] = [DURING, "--allow-empty", source, target]
    lines = mirrored(launcher, "-i", *words).out.splitlines()
    assert sum(line.startswith(b"*deleting   ") for line in lines) >= 5000
    assert differences(source, target) == ""
    before = state(target)
    mirrored(launcher, *words)
    assert state(target) == before


def surplus_of(place: bytes) -> tuple[bytes, bytes]:
    """Create three directories, each with a new file and one that only the target has."""
    for name in (b"one", b"two", b"two/inner"):
        for side in (b"a", b"b"):
            make_directory(place, side, name)
        write_file(place + b"/a/%b/new" % name, b"new")
        write_file(place + b"/b/%b/surplus" % name, b"old")
        os.makedirs(place + b"/b/%b/gone/deep" % name)
    return place + b"/a", place + b"/b"


@needs_strace
@every_launcher
@pytest.mark.parametrize("call", ["getdents64", "openat"])
def test_an_unreadable_directory_keeps_its_entries(
    place: bytes, launcher: Launcher, call: str
) -> None:
    source, target = surplus_of(place)
    path = os.fsdecode(source + b"/two" if call == "getdents64" else b"two")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", path, "-e", f"inject={call}:error=EIO"]
    finished = run_fmirror(launcher, "-q", DURING, source, target, prefix=prefix)
    assert finished.code == 1
    assert (
        "1 directory of the source could not be read: corresponding contents were not removed"
        in finished.said
    )
    assert sorted(os.listdir(target + b"/one")) == [b"new"]
    assert {b"surplus", b"gone"} <= set(os.listdir(target + b"/two"))
    assert {b"surplus", b"gone"} <= set(os.listdir(target + b"/two/inner"))


@needs_strace
def test_copies_in_a_directory_precede_its_removals(place: bytes, tmp_path: Path) -> None:
    source, target = surplus_of(place)
    for number in range(20):
        path = write_file(source + b"/one/other %d" % number, b"newer")
        write_file(target + b"/one/" + os.path.basename(path), b"old")
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-y", "-o", str(log), "-e", "trace=openat,renameat,unlinkat"]
    finished = run_fmirror(None, "-q", "-j1", DURING, source, target, prefix=prefix)
    assert finished.code == 0, finished.said
    changes, top = re.compile(r"(openat|renameat|unlinkat)\(\d+<([^>]*)>"), os.fsdecode(target)
    done: dict[str, list[Call]] = {}
    for call in read_calls(log):
        found = changes.match(call.text)
        if found is not None and (call.name != "openat" or "O_CREAT" in call.text):
            done.setdefault(found[2], []).append(call)
    for name in ("/one", "/two", "/two/inner"):
        removals = [call for call in done[top + name] if call.name == "unlinkat"]
        earlier_calls = [call for call in done[top + name] if call.name != "unlinkat"]
        assert len(removals) == 2
        assert max(call.end for call in earlier_calls) < min(call.begin for call in removals), name


def test_deletion_makes_room_for_later_copies(place: bytes) -> None:
    """The target has no space for old and new files; rsync's order works, the default fails."""
    source = make_directory(place, b"a")
    write_file(make_directory(place, b"a", b"new") + b"/data", bytes(5 << 20))
    disk = make_directory(place, b"disk")
    for option, code in (("--delete", 4), (DURING, 0)):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], check=True)
        try:
            write_file(make_directory(place, b"disk", b"b", b"old") + b"/data", bytes(5 << 20))
            mirrored(None, "-j1", option, source, disk + b"/b", code=code)
            assert code or differences(source, disk + b"/b") == ""
        finally:
            subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(
    ("most", "code"), [("9", 0), ("8", 4), ("56%", 4), ("57%", 0), ("0", 4)], ids=str
)
@every_launcher
def test_too_much_to_remove(place: bytes, launcher: Launcher, most: str, code: int) -> None:
    """The source has 7 entries, and 9 would be removed; everything else is done in any case."""
    source, target = surplus_of(place)
    words: list[str | bytes] = [DURING, "--max-delete", most, source, target]
    finished = mirrored(launcher, *words, code=code)
    assert os.path.exists(target + b"/two/inner/gone/deep") == bool(code)
    assert os.path.exists(target + b"/one/surplus") == bool(code)
    assert os.path.exists(target + b"/two/inner/new")
    assert ("9 entries would be removed; nothing was removed" in finished.said) == bool(code), (
        finished.said
    )
    if not code:
        assert differences(source, target) == ""


def test_a_directory_that_a_file_replaces_counts(place: bytes) -> None:
    source, target = surplus_of(place)
    write_file(source + b"/file", b"1")
    inner = make_directory(place, b"b", b"file")
    for number in range(5):
        write_file(inner + b"/%d" % number, b"")
    words: list[str | bytes] = [DURING, "--max-delete", "14", source, target]
    finished = mirrored(TWO, *words, code=4)
    assert "15 entries would be removed; nothing was removed" in finished.said
    assert len(os.listdir(target + b"/file")) == 5
    words[2] = "15"
    lines = mirrored(TWO, "-i", *words).out.splitlines()
    records = {line.split(b"   ")[1] for line in lines if line.startswith(b"*deleting")}
    assert {b"file/0", b"file/4", b"file/", b"one/surplus", b"one/gone/"} <= records
    assert len(records) == 15
    assert differences(source, target) == ""


def test_an_empty_and_a_foreign_source_are_refused(place: bytes) -> None:
    source, target = surplus_of(place)
    empty = make_directory(place, b"empty")
    assert "is empty" in mirrored(TWO, DURING, empty, target, code=2).said
    assert "is empty" in mirrored(TWO, DURING, "--max-delete=50", empty, target, code=2).said
    mirrored(TWO, source, target)
    write_file(empty + b"/file", b"")
    finished = mirrored(TWO, DURING, empty, target, code=2)
    assert "different directory or file system" in finished.said
    assert os.path.exists(target + b"/one/surplus")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--backup-dir=old", "--backup-dir"),
        ("--plan=plan", "--plan"),
        ("--changed=auto", "--changed=auto"),
        ("--changed=fs", "--changed=fs"),
        ("--changed-from=list", "--changed-from"),
        ("--since-manifest=file", "--since-manifest"),
        ("--remove-source-files", "--delete"),
        ("--snapshot", "--delete"),
    ],
)
def test_refusals(place: bytes, words: str, said: str) -> None:
    source, target = surplus_of(place)
    finished = run_fmirror(TWO, DURING, words, source, target, cwd=place)
    assert finished.code == 2
    assert "cannot be combined with" in finished.said
    assert said in finished.said
    assert os.path.exists(target + b"/one/surplus")


def test_a_dry_run_reports_removals(place: bytes) -> None:
    source, target = surplus_of(place)
    before = state(target)
    dry = mirrored(TWO, DURING, "--dry-run", "-i", source, target).out.splitlines()
    assert state(target) == before
    done = mirrored(TWO, DURING, "-i", source, target).out.splitlines()
    assert sorted(dry) == sorted(done)


def test_removals_are_listed_and_counted(place: bytes, tmp_path: Path) -> None:
    source, target = surplus_of(place)
    lines, report = tmp_path / "lines", tmp_path / "report"
    mirrored(TWO, DURING, "--json-lines", str(lines), "--json", str(report), source, target)
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    gone = {(entry["path"], entry["kind"]) for entry in records if entry["action"] == "delete"}
    assert len(gone) == 9
    assert {("one/surplus", "f"), ("two/inner/gone/deep", "d")} <= gone
    assert json.loads(report.read_text())["removed"] == 9


def test_deep_and_wide_directories_are_removed(place: bytes) -> None:
    source, target = surplus_of(place)
    fd = os.open(make_directory(place, b"b", b"deep"), os.O_RDONLY)
    for number in range(1500):
        os.mkdir(b"level %d" % (number % 7), dir_fd=fd)
        inner = os.open(b"level %d" % (number % 7), os.O_RDONLY, dir_fd=fd)
        os.close(os.open(b"file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        os.close(fd)
        fd = inner
    os.close(fd)
    wide = make_directory(place, b"b", b"wide")
    for number in range(70_000):
        os.mknod(wide + b"/%d" % number, stat.S_IFREG | 0o600)
    report = mirror(source, target, delete="during", jobs=1)
    assert (report.exit_code, report.removed) == (0, 9 + 3001 + 70_001)
    assert differences(source, target) == ""


def test_mount_points_in_extraneous_directories_stay_and_are_named(place: bytes) -> None:
    source, target = surplus_of(place)
    point = make_directory(place, b"b", b"old", b"disk")
    write_file(target + b"/old/file", b"")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", point], check=True)
    try:
        write_file(point + b"/precious", b"")
        finished = mirrored(TWO, DURING, source, target, code=1)
        assert f"cannot remove directory '{os.fsdecode(point)}'" in finished.said
        assert "mount" in finished.said
        assert os.path.exists(point + b"/precious")
        assert os.listdir(target + b"/old") == [b"disk"]
    finally:
        subprocess.run(["umount", point], check=True)


@needs_strace
def test_failed_removals_are_named_and_others_done(place: bytes) -> None:
    source, target = surplus_of(place)
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", os.fsdecode(target + b"/two"), "-e"]
    prefix.append("inject=unlinkat:error=EPERM")
    finished = run_fmirror(None, "-q", "-j1", DURING, source, target, prefix=prefix)
    assert finished.code == 1
    assert f"cannot remove '{os.fsdecode(target)}/two/surplus'" in finished.said
    assert f"cannot remove directory '{os.fsdecode(target)}/two/gone'" in finished.said
    assert os.listdir(target + b"/one") == [b"new"]
    assert os.listdir(target + b"/two/inner") == [b"new"]
    assert sorted(os.listdir(target + b"/two")) == [b"gone", b"inner", b"new", b"surplus"]


@pytest.mark.parametrize("seed", [3, 4])
def test_renamed_files_are_not_removed_and_copied(place: bytes, seed: int) -> None:
    source, target = cleared(place)
    Tree(source, seed)
    write_file(make_directory(place, b"a", b"kept") + b"/file", b"content" * 1000)
    copy_of(source, target)
    os.rename(source + b"/kept/file", source + b"/elsewhere")
    line = command(TWO, [DURING, "--moved", "-i", "--max-delete=1", source, target], FMIRROR)
    done = subprocess.run(line, capture_output=True, env=clean_environment(), check=True)
    assert b"*moving     kept/file => elsewhere" in done.stdout
    assert b"*deleting" not in done.stdout
    assert differences(source, target) == ""


def names(top: bytes) -> Iterator[bytes]:
    for here, directories, files in os.walk(top):
        yield from (os.path.join(here, name) for name in directories + files)


@every_launcher
def test_an_interrupted_run_continues(place: bytes, launcher: Launcher) -> None:
    source, target = surplus_of(place)
    for number in range(300):
        for side, name in ((source, b""), (target, b"s")):
            above = side + b"/d%d" % (number % 30)
            os.makedirs(above, exist_ok=True)
            write_file(above + b"/%b%d" % (name, number), b"x")
    words: list[str | bytes] = [DURING, "--ops-limit=400", "--stop-after=0.5s", source, target]
    mirrored(launcher, *words, code=4)
    left = [name for name in names(target) if b"/s" in name]
    assert left
    mirrored(launcher, DURING, "--resume", source, target)
    assert differences(source, target) == ""


def test_a_limited_run_removes_an_extraneous_directory_steadily(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    os.makedirs(target + b"/old")
    for number in range(600):
        write_file(target + b"/old/%d" % number, b"x")
    began_s = time.monotonic()
    for stop_s in (0.5, 5):  # a busy machine may remove nothing in a short time
        words = [DURING, "--allow-empty", "--resume", "--ops-limit=40", f"--stop-after={stop_s}"]
        mirrored(ONE, *words, source, target, code=4)
        removed = 600 - len(os.listdir(target + b"/old"))
        if removed:
            break
    assert 0 < removed <= 40 * (time.monotonic() - began_s) + 16
