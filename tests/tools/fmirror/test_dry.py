"""`--dry-run` and `--itemize`: the output equals rsync's, and a dry run changes nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pcircle import mirror
from tests.programs import required
from tests.strace import read_calls
from tests.tools.fcp.running import TWO, Launcher
from tests.tools.fcp.trees import write_file

from .running import (
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
    searched,
)
from .test_judge import CHANGING, pair, shared, state

__all__ = ["shared"]
pytestmark = [as_root, needs_rsync]
_ESCAPED = re.compile(rb"\\#([0-7]{3})|\\x([0-9a-f]{2})")
_COLUMNS = 12


def _plain(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8) if match[1] else int(match[2], 16)])


def named(lines: bytes) -> set[bytes]:
    """Return the paths after the columns, without the targets of links."""
    found = set()
    for line in lines.splitlines():
        if not line.startswith(b"created directory"):
            path = line[_COLUMNS:].split(b" -> ")[0].split(b" => ")[0]
            found.add(_ESCAPED.sub(_plain, path).rstrip(b"/"))
    return found


def by_rsync(source: bytes, target: bytes) -> set[bytes]:
    """Return the paths that rsync would change; times are compared at their stored precision."""
    line: list[str | bytes] = [required("rsync"), "-naHAXi", "--modify-window=-1", "--delete"]
    done = subprocess.run([*line, source + b"/", target + b"/"], capture_output=True, check=True)
    return named(done.stdout)


def itemized(launcher: Launcher | None, *words: str | bytes, code: int = 0) -> set[bytes]:
    """Return the paths that a run prints."""
    finished = mirrored(launcher, "--delete", "--allow-empty", *words, code=code)
    return named(finished.out)


@searched(25, soak=1000)
@given(seed=st.integers(0, 2**40))
def test_names_equal_those_of_rsync(shared: bytes, seed: int) -> None:
    source, target = pair(shared, seed)
    expected = by_rsync(source, target)
    before = state(shared)
    assert itemized(None, "-j1", "--dry-run", "-i", source, target) == expected
    assert state(shared) == before
    assert itemized(None, "-j1", "-i", source, target) == expected
    assert differences(source, target) == ""
    assert itemized(None, "-j1", "--dry-run", "-v", source, target) == set()


def test_unpreserved_times_are_shown_as_rsync_does(place: bytes) -> None:
    """A replaced entry gets the current time: `T` in place of `t`, if it is replaced at all."""
    source, target = place + b"/source", place + b"/target"
    for number, top in enumerate((source, target)):
        os.makedirs(top + b"/d")
        write_file(top + b"/longer", b"1" * (number + 1))
        write_file(top + b"/later", b"1")
        write_file(top + b"/mode", b"1")
        os.symlink(b"to %d" % number, top + b"/link")
        for name in (b"longer", b"mode"):
            os.utime(top + b"/" + name, (1, 1))
        os.utime(top + b"/later", (number, number))
        os.chmod(top + b"/mode", 0o600 + number)
        os.chmod(top + b"/d", 0o700 + number)
    write_file(source + b"/new", b"1")
    line: list[str | bytes] = ["rsync", "-nrlpgoDi", source + b"/", target + b"/"]
    expected = subprocess.run(line, capture_output=True, check=True).stdout
    wanted = [entry.split(b" -> ")[0].replace(b".L", b"cL") for entry in expected.splitlines()]
    for words in (["--dry-run"], []):
        finished = mirrored(None, "-j1", "-i", "--preserve=mode,ownership", *words, source, target)
        assert sorted(finished.out.splitlines()) == sorted(wanted)


_OF_DIRECTORIES = "directories", "directories_created", "directories_touched"
_COUNTS = "files", "links", "special", *_OF_DIRECTORIES, "touched", "skipped", "removed", "bytes"


def _has_linked_files(*tops: bytes) -> bool:
    words: list[str | bytes] = ["find", *tops, "-links", "+1", "!", "-type", "d", "-print", "-quit"]
    return bool(subprocess.run(words, capture_output=True, check=False).stdout)


@searched(100, soak=3000)
@given(seed=st.integers(0, 2**40))
@example(seed=74)  # a name that B lacks comes first; the existing other must be linked
@example(seed=139)  # another name of it in B changes before it is processed
@example(seed=215)
def test_counts_of_a_run(shared: bytes, seed: int) -> None:
    """For hard-linked files the order determines which name is copied, and which touched."""
    source, target = pair(shared, seed)
    linked = _has_linked_files(source, target)
    wanted: dict[str, Any] = {"delete": "after", "allow_empty": True, "allow_foreign": True}
    expected = mirror(source, target, dry_run=True, jobs=1, **wanted)
    done = mirror(source, target, jobs=1, **wanted)
    for name in ("removed", *_OF_DIRECTORIES):
        assert getattr(expected, name) == getattr(done, name), name
    sums = [entry.files + entry.links + entry.special + entry.skipped for entry in (expected, done)]
    assert sums[0] == sums[1]
    if not linked:
        for name in _COUNTS:
            assert getattr(expected, name) == getattr(done, name), name


@pytest.mark.parametrize("launcher", [None, TWO], ids=str)
def test_directories_are_reported_correctly(place: bytes, launcher: Launcher | None) -> None:
    """A changed directory does not count as checked; the last line equals that of the run."""
    source, target, lines = place + b"/a", place + b"/b", place + b"/lines"
    for side in (source, target):
        os.makedirs(side + b"/same")
        os.makedirs(side + b"/other")
        os.utime(write_file(side + b"/same/file", b"content"), (10**9, 10**9))
        for name in (b"/same", b"/other", b""):
            os.utime(side + name, (10**9, 10**9))

    def new() -> None:
        os.mkdir(source + b"/other/new")
        os.utime(source + b"/other", (10**9, 10**9))

    scenes: list[tuple[Callable[[], None], str, str, list[str]]] = [
        (lambda: None, "nothing to do: 1 entry skipped, 3 directories checked", "", []),
        (
            new,
            "would copy 1 entry (0 files, 1 directory, 0 links)",
            "copied 1 entry (0 files, 1 directory, 0 links)",
            ["copy other/new"],
        ),
        (
            lambda: os.chmod(source + b"/other", 0o700),
            "would update attributes of 1 entry: 1 entry skipped, 4 directories checked",
            "attributes of 1 entry updated: 1 entry skipped, 4 directories checked",
            ["touch other"],
        ),
        (
            lambda: os.utime(source + b"/same", (10**9, 1)),
            "would update attributes of 1 entry: 1 entry skipped, 4 directories checked",
            "attributes of 1 entry updated: 1 entry skipped, 4 directories checked",
            ["touch same"],
        ),
    ]
    for change, dry, done, acts in scenes:
        change()
        for words, text in (["--dry-run"], dry), ([], done or dry):
            finished = run_fmirror(launcher, *words, "--json-lines", lines, source, target)
            assert finished.code == 0, finished.said
            assert finished.out.decode().startswith(text), finished.out
            assert b"1 entry skipped, " in finished.out
            with open(lines, "rb") as stream:
                records = [json.loads(line) for line in stream]
            found = [
                f"{entry['action']} {entry['path']}"
                for entry in records
                if entry["action"] != "skip"
            ]
            assert [entry.replace(f"{os.fsdecode(source)}/", "") for entry in found] == acts
    os.rmdir(source + b"/other/new")
    os.utime(source + b"/other", (10**9, 10**9))
    finished = run_fmirror(launcher, "--dry-run", "--delete", source, target)
    assert finished.out.startswith(b"nothing to copy: 1 entry skipped, 3 directories checked")


@every_launcher
def test_every_launcher_gives_the_same_output(place: bytes, launcher: Launcher) -> None:
    source, target = pair(place, 44)
    for number in range(40):
        os.makedirs(source + b"/many/%d" % number)
        write_file(source + b"/many/%d/file" % number, b"new")
    os.makedirs(target + b"/gone/deep")
    expected = by_rsync(source, target)
    assert len(expected) > 80
    assert itemized(launcher, "--dry-run", "-v", source, target) == expected
    assert itemized(launcher, "-i", source, target) == expected


def test_itemized_columns(place: bytes) -> None:
    """Every letter equals rsync's, except after the path of a link."""
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        os.mkdir(side)
        for name in (b"mode", b"owner", b"time", b"size", b"same", b"attribute"):
            os.utime(write_file(side + b"/" + name, b"content"), (10**9, 10**9))
        os.symlink(side, side + b"/link")
    os.chmod(target + b"/mode", 0o600)
    os.chown(target + b"/owner", 3, 4)
    os.utime(target + b"/time", (1, 1))
    os.setxattr(target + b"/attribute", "user.other", b"1")
    with open(target + b"/size", "ab") as stream:
        stream.write(b"more")
    os.mkfifo(source + b"/pipe")
    os.mkdir(target + b"/surplus")
    write_file(source + b"/new", b"")
    os.link(source + b"/new", source + b"/second")
    for words in ([], ["--checksum"]):
        line = ["rsync", "-naHAXi", "--modify-window=-1", "--delete", *words]
        found = subprocess.run([*line, source + b"/", target + b"/"], capture_output=True)
        expected = [re.sub(rb" [-=]> .*", b"", entry) for entry in found.stdout.splitlines()]
        finished = mirrored(TWO, "--dry-run", "-i", "--delete", *words, source, target)
        assert sorted(finished.out.splitlines()) == sorted(expected)


@needs_strace
def test_nothing_is_changed_by_any_call(place: bytes, tmp_path: Path) -> None:
    source, target = pair(place, 7)
    write_file(source + b"/file", b"new")
    os.makedirs(target + b"/gone/deep")
    before = sorted(os.listdir(place))
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-y", "-o", str(log), "-e", f"trace={CHANGING},openat"]
    words = ("--dry-run", "-q", "-j1", "--delete", "--resume", "--backup-dir", place + b"/old")
    finished = run_fmirror(None, *words, source, target, prefix=prefix)
    assert finished.code == 0, finished.said
    calls = [call for call in read_calls(log) if os.fsdecode(place) in call.text]
    writing = re.compile("O_CREAT|O_WRONLY|O_RDWR")
    writes = [call for call in calls if call.name != "openat" or writing.search(call.text)]
    assert len(calls) > 5
    assert writes == []
    assert sorted(os.listdir(place)) == before


def test_limits_and_refusals_hold(place: bytes, tmp_path: Path) -> None:
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        os.mkdir(side)
        os.utime(write_file(side + b"/same", b"content"), (10**9, 10**9))
    write_file(source + b"/new", b"12345")
    os.chmod(target + b"/same", 0o600)
    os.makedirs(target + b"/gone/deep")
    for number in range(5):
        write_file(target + b"/gone/%d" % number, b"")
    before = state(source), state(target)
    words: list[str | bytes] = ["--dry-run", "--delete", source, target]
    path = tmp_path / "report"
    finished = run_fmirror(TWO, "--json", str(path), *words)
    assert finished.code == 0
    assert "7 entries would be removed" in finished.said
    report = json.loads(path.read_bytes())
    names = ("dry_run", "files", "bytes", "touched", "surplus", "removed")
    assert [report[name] for name in names] == [True, 1, 5, 1, 1, 7]
    finished = mirrored(TWO, "--max-delete", "6", *words, code=4)
    assert "7 entries would be removed; nothing was removed" in finished.said
    mirrored(TWO, "--max-delete", "7", *words)
    empty = place + b"/empty"
    os.mkdir(empty)
    mirrored(TWO, "--dry-run", "--delete", empty, target, code=2)
    os.rmdir(empty)
    assert (state(source), state(target)) == before


def test_links_with_several_names_have_no_bytes(place: bytes) -> None:
    """A run does not count the text of a link as content."""
    source, target, path = place + b"/a", place + b"/b", place + b"/report"
    os.mkdir(source)
    os.symlink("text", source + b"/link")
    os.link(source + b"/link", source + b"/other", follow_symlinks=False)
    counted = []
    for more in (["--dry-run"], []):
        mirrored(TWO, *more, "--json", path, source, target)
        with open(path, "rb") as stream:
            report = json.load(stream)
        counted.append([report[name] for name in ("links", "bytes", "skipped")])
    assert counted == [[2, 0, 0], [2, 0, 0]]


@needs_strace
def test_new_names_are_linked_to_existing_files(place: bytes) -> None:
    """In any order of names, no content is copied that the target has under another name."""
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        os.mkdir(side)
        for number in range(20):
            path = write_file(side + b"/old %d" % number, b"content")
            os.utime(path, (10**9, 10**9))
    for number in range(20):
        os.link(source + b"/old %d" % number, source + b"/new %d" % number)
    inodes = {name: os.stat(target + b"/" + name).st_ino for name in os.listdir(target)}
    reports = [mirror(source, target, dry_run=dry, jobs=1) for dry in (True, False)]
    lines = [(report.files, report.skipped, report.bytes) for report in reports]
    assert lines == [(20, 20, 0)] * 2
    assert {name: os.stat(target + b"/" + name).st_ino for name in inodes} == inodes


def test_attributes_of_a_name_of_several_are_touched(place: bytes) -> None:
    """They are set in place if all names of the target's file should have them."""
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        os.makedirs(side + b"/later")
        for name in (b"/one", b"/two"):
            path = write_file(side + name, name)
            os.utime(path, (10**9, 10**9))
    for name in (b"/one", b"/two"):
        os.link(source + name, source + b"/later" + name)
        os.chmod(source + name, 0o600)
    os.link(target + b"/two", target + b"/another name")
    names = ("touched", "files", "bytes", "skipped", "failed")
    lines = []
    for dry in (True, False):
        report = mirror(source, target, dry_run=dry, jobs=1)
        lines.append([getattr(report, name) for name in names])
    assert lines[0] == lines[1] == [1, 3, 4, 1, 0]


@pytest.mark.parametrize("backup", [[], ["--backup-dir"]], ids=str)
def test_a_directory_in_a_file_s_place_counts_as_in_a_run(place: bytes, backup: list[str]) -> None:
    """With a backup it is moved there; otherwise it is removed with its contents."""
    source, target, path = place + b"/a", place + b"/b", place + b"/report"
    os.makedirs(target + b"/name/deep")
    os.mkdir(target + b"/gone")
    os.mkdir(source)
    write_file(source + b"/name", b"a file now")
    more = [os.fsdecode(b"--backup-dir=%b/old" % place)] if backup else []
    counted = []
    for words in (["--dry-run"], []):
        mirrored(TWO, *words, *more, "--delete", "--json", path, source, target)
        with open(path, "rb") as stream:
            report = json.load(stream)
        counted.append([report[name] for name in ("files", "surplus", "removed")])
    assert counted[0] == counted[1]
    assert counted[0][2] == (1 if backup else 3)


@needs_strace
def test_an_unreadable_directory_prevents_all_removals(place: bytes) -> None:
    source, target = pair(place, 7)
    os.makedirs(source + b"/closed")
    os.makedirs(target + b"/gone")
    path = os.fsdecode(source + b"/closed")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", path, "-e", "inject=getdents64:error=EIO"]
    finished = run_fmirror(
        None, "-j1", "--dry-run", "-i", "--delete", source, target, prefix=prefix
    )
    assert finished.code == 1
    assert (
        "not removed from the target: 1 directory of the source could not be read" in finished.said
    )
    assert b"*deleting" not in finished.out


def test_a_directory_in_place_of_a_large_file_is_reported(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    with open(source + b"/large", "wb") as stream:
        stream.truncate(40 << 20)
    os.makedirs(target + b"/large/deep")
    lines = mirrored(TWO, "-i", "--delete", source, target).out.splitlines()
    assert sorted(line[_COLUMNS:] for line in lines) == [b"./", b"large", b"large/", b"large/deep/"]
    assert differences(source, target) == ""
