"""`--moved`: entries with a new path are renamed, and nothing else; rsync confirms the result."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle import mirror
from tests.conftest import SOAK
from tests.strace import max_calls
from tests.tools.fcp.running import ONE, TWO, Launcher
from tests.tools.fcp.trees import remove_tree, write_file

from .edits import Tree, cleared, copy_of
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
from .test_judge import CHANGING, shared, state
from .test_moments import contents_of

__all__ = ["shared"]
pytestmark = [as_root, needs_rsync]
_TIME = (10**9, 10**9)
_BYTES = 10_000


def files_below(top: bytes, seed: int, count: int = 20) -> None:
    """Create files of equal size and time in two levels, which differ only in content."""
    random = Random(seed)
    for number in range(count):
        above = top + b"/%d" % (number % 3)
        os.makedirs(above, exist_ok=True)
        os.utime(write_file(above + b"/%d" % number, random.randbytes(_BYTES)), _TIME)


def inodes(top: bytes) -> set[int]:
    return {
        os.lstat(os.path.join(here, name)).st_ino
        for here, _, names in os.walk(top)
        for name in names
    }


@every_launcher
def test_a_renamed_directory_is_not_copied(place: bytes, launcher: Launcher) -> None:
    source, target = place + b"/a", place + b"/b"
    files_below(source + b"/old", 1)
    copy_of(source, target)
    before = inodes(target)
    os.makedirs(source + b"/new/home")
    os.rename(source + b"/old", source + b"/new/home/dir")
    os.rename(source + b"/new/home/dir/1/1", source + b"/renamed")
    path = os.fsdecode(place) + "/report"
    words: list[str | bytes] = ["--delete", "--moved", "-i", "--json", path, source, target]
    finished = mirrored(launcher, *words)
    assert finished.out.count(b"*moving ") == 20
    report = json.loads(Path(path).read_bytes())
    names = ("files", "bytes", "moved", "moved_bytes", "removed")
    assert [report[name] for name in names] == [0, 0, 20, 20 * _BYTES, 4]
    assert differences(source, target) == ""
    assert inodes(target) == before
    again = state(target)
    mirrored(launcher, "--delete", "--moved", source, target)
    assert state(target) == again


def test_without_the_option_everything_is_copied(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    files_below(source + b"/old", 1)
    copy_of(source, target)
    os.rename(source + b"/old", source + b"/new")
    report = mirror(source, target, delete="after", jobs=1)
    assert (report.files, report.bytes, report.moved) == (20, 20 * _BYTES, 0)


def _unnamed_files() -> set[str]:
    """Return the open nameless files of this process: its temporary ones."""
    with os.scandir("/proc/self/fd") as entries:
        names = [entry.name for entry in entries]
    found = set()
    for name in names:
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add(os.readlink("/proc/self/fd/" + name))
    return {path for path in found if path.endswith(" (deleted)")}


@pytest.mark.parametrize(
    "more", [{"moved": True}, {"max_delete": 1000, "delete": "during"}, {}], ids=str
)
def test_temporary_files_are_closed(
    place: bytes, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    """This includes temporary files of extraneous entries that may have moved."""
    monkeypatch.setattr("pcircle.tools.fmirror.program.clock_ns", lambda: 0)
    source, target = place + b"/a", place + b"/b"
    files_below(source + b"/old", 1)
    files_below(target, 2)
    gc.collect()
    gc.disable()
    try:
        before = _unnamed_files()
        options: dict[str, Any] = {"delete": "after", "jobs": 1} | more
        mirror(source, target, **options)
        assert _unnamed_files() == before
    finally:
        gc.enable()


def _renamed(tree: Tree, target: bytes) -> None:
    """Edit a tree, and add twins: other content, but equal size and time."""
    random = tree.random
    for _ in range(random.randrange(1, 12)):
        random.choice((tree.edit, lambda: tree._rename(tree._any_path())))()
    for number in range(random.randrange(3)):
        size = random.choice((1, 100))
        for top, name in ((tree.top, b"/twin %d"), (target, b"/surplus %d")):
            os.utime(write_file(top + name % number, random.randbytes(size)), _TIME)


@searched(60, soak=2000)
@given(seed=st.integers(0, 2**40))
def test_no_differences_remain(shared: bytes, seed: int) -> None:
    source, target = cleared(shared)
    tree = Tree(source, seed)
    copy_of(source, target)
    wanted: dict[str, Any] = {"delete": "after", "moved": True, "jobs": 1, "allow_empty": True}
    if seed % 2:  # lets the saved state of the last run avoid look-ups
        mirror(source, target, **wanted)
    _renamed(tree, target)
    report = mirror(source, target, **wanted)
    assert (report.exit_code, report.failed) == (0, 0)
    assert differences(source, target) == ""
    before = state(target)
    again = mirror(source, target, **wanted)
    assert state(target) == before
    assert (again.files, again.touched, again.removed, again.moved) == (0, 0, 0, 0)


_MOVING = re.compile(rb"\*moving     (.*) => (.*)")


@searched(25, soak=1000)
@given(seed=st.integers(0, 2**40))
def test_a_dry_run_prints_what_a_run_does(shared: bytes, seed: int) -> None:
    """Only attributes set on renamed files are missing; nothing is touched."""
    source, target = cleared(shared)
    tree = Tree(source, seed)
    files_below(source + b"/moving", seed, count=4)
    copy_of(source, target)
    _renamed(tree, target)
    if os.path.isdir(source + b"/moving"):
        os.rename(source + b"/moving", source + b"/moved")
    path = shared + b"/report"
    words: list[str | bytes] = ["-j1", "-i", "--delete", "--moved", "--allow-empty"]
    words += ["--json", path, source, target]
    records, reports = [], []
    for more in (["--dry-run"], []):
        before = state(source), state(target)
        records.append(set(mirrored(None, *more, *words).out.splitlines()))
        reports.append(json.loads(Path(os.fsdecode(path)).read_bytes()))
        assert not more or before == (state(source), state(target))
    moved = {found[2] for found in map(_MOVING.fullmatch, records[0]) if found is not None}
    # The rename creates directories, which the copy then finds with other times.
    dry, real = ({line for line in lines if line[:2] not in (b"cd", b".d")} for lines in records)
    assert dry == {line for line in real if not (line[:2] == b".f" and line[12:] in moved)}
    for name in ("moved", "moved_bytes", "removed", "surplus"):
        assert reports[0][name] == reports[1][name], name
    assert differences(source, target) == ""


@every_launcher
def test_every_launcher_reports_renames(place: bytes, launcher: Launcher) -> None:
    """They are in lines, lists and counts; protected files stay, and --max-delete holds."""
    source, target = place + b"/a", place + b"/b"
    files_below(source + b"/old", 1)
    copy_of(source, target)
    os.rename(source + b"/old", source + b"/new")
    os.rename(target + b"/old/2/2", target + b"/old top")
    mirrored(ONE, "--exclude=*", source, target)  # creates a saved state
    before = state(source), state(target), beside(place)
    lines = place + b"/lines"
    words: list[str | bytes] = ["--delete", "--moved", "--dry-run", source, target]
    finished = mirrored(launcher, "-v", "--json-lines", lines, *words)
    records = [json.loads(line) for line in Path(os.fsdecode(lines)).read_bytes().splitlines()]
    os.unlink(lines)
    moves = [entry for entry in records if entry["action"] == "move"]
    assert len(moves) == finished.out.count(b"*moving ") == 20
    assert {entry["state"] for entry in records} == {"planned"}
    goes = sorted(entry["path"] for entry in records if entry["action"] == "delete")
    assert goes == ["old", "old/0", "old/1", "old/2"]
    assert not [entry for entry in records if entry["action"] == "copy" and entry["kind"] == "f"]
    said = run_fmirror(launcher, *words).said
    assert "20 files would be renamed" in said
    assert "4 entries would be removed" in said
    mirrored(launcher, "--max-delete", "3", *words, code=4)
    mirrored(launcher, "--max-delete", "4", *words)
    assert (state(source), state(target), beside(place)) == before


def beside(place: bytes) -> dict[str, bytes]:
    """Return the files outside of both trees."""
    return {path.name: path.read_bytes() for path in Path(os.fsdecode(place)).glob(".*")}


def test_similar_but_different_files_are_copied(place: bytes) -> None:
    """Content decides; hard-linked, empty and excluded files are not renamed."""
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        os.mkdir(side)
        write_file(side + b"/stays", b"stays")
    for name, ours, theirs in ((b"content", b"one", b"two"), (b"empty", b"", b"")):
        os.utime(write_file(source + b"/new " + name, ours), _TIME)
        os.utime(write_file(target + b"/old " + name, theirs), _TIME)
    for name in (b"linked", b"excluded", b"protected"):
        os.utime(write_file(source + b"/new " + name, name), _TIME)
        os.utime(write_file(target + b"/old " + name, name), _TIME)
    os.link(target + b"/old linked", place + b"/other")
    words = ["--exclude=old excluded", "--protect=old protected", "--moved", "--delete"]
    finished = mirrored(TWO, *words, "-i", source, target)
    assert b"*moving" not in finished.out
    assert os.path.exists(target + b"/old excluded")
    assert os.path.exists(target + b"/old protected")
    assert os.stat(place + b"/other").st_nlink == 1
    for name in os.listdir(source):
        assert (
            Path(os.fsdecode(target + b"/" + name)).read_bytes()
            == Path(os.fsdecode(source + b"/" + name)).read_bytes()
        )


@needs_strace
def test_only_removable_entries_are_renamed(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    files_below(source + b"/old", 2)
    copy_of(source, target)
    os.rename(source + b"/old", source + b"/new")
    os.mkdir(source + b"/closed")
    before = set(contents_of(target))
    closed = os.fsdecode(source + b"/closed")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", closed, "-e", "inject=getdents64:error=EIO"]
    words: list[str | bytes] = ["-q", "-j1", "--delete", "--moved", "-i", source, target]
    finished = run_fmirror(None, *words, prefix=prefix)
    assert finished.code == 1
    assert b"*moving" not in finished.out
    assert before <= set(contents_of(target))


def test_refusals_change_nothing(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    files_below(target + b"/old", 3)
    before = state(target)
    finished = mirrored(TWO, "--delete", "--moved", source, target, code=2)
    assert finished.said.count("is empty and") == 1
    for words in ([], ["--delete", "--plan", "p"], ["--delete", "-I"]):
        mirrored(TWO, "--moved", *words, source, target, code=2)
    assert state(target) == before


def test_logs_contain_renames(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    files_below(source + b"/old", 4, count=3)
    copy_of(source, target)
    os.rename(source + b"/old", source + b"/new")
    lines, listed = place + b"/lines", place + b"/list"
    words: list[str | bytes] = [
        "--delete",
        "--moved",
        b"--json-lines=" + lines,
        b"--list-out=" + listed,
    ]
    mirrored(TWO, *words, source, target)
    with open(lines, "rb") as stream:
        records = [json.loads(line) for line in stream]
    moves = {entry["path"]: entry["why"][1] for entry in records if entry["action"] == "move"}
    assert moves == {f"new/{n % 3}/{n}": f"from old/{n % 3}/{n}" for n in range(3)}
    with open(listed, "rb") as stream:
        assert set(map(os.fsencode, moves)) <= set(stream.read().split(b"\n"))


# ---- any moment --------------------------------------------------------------------------------


def _night(place: bytes) -> tuple[bytes, bytes]:
    source, target = cleared(place)
    files_below(source + b"/old", 5, count=8)
    write_file(source + b"/kept", b"old" * 1000)
    copy_of(source, target)
    os.makedirs(source + b"/new")
    os.rename(source + b"/old", source + b"/new/dir")
    remove_tree(source + b"/new/dir/2")
    write_file(source + b"/old", b"a file now")
    with open(source + b"/kept", "wb") as stream:
        stream.write(b"new" * 900)
    return source, target


def _run(what: str, source: bytes, target: bytes, log: str = "/dev/null") -> int:
    calls = CHANGING if what.startswith("signal") else CHANGING.replace(",write,", ",")
    prefix = ["strace", "-f", "-o", log, "-e", f"trace={CHANGING}"]
    prefix += ["-e", f"inject={calls}:{what}"] if what else []
    words: list[str | bytes] = [
        "-q",
        "-j1",
        "--threads=1",
        "--delete",
        "--moved",
        "--resume",
        source,
        target,
    ]
    return run_fmirror(None, *words, prefix=prefix).code


@needs_strace
@pytest.mark.parametrize("what", ["signal=KILL", "signal=INT", "error=EIO", "error=EACCES"])
def test_any_moment(place: bytes, tmp_path: Path, what: str) -> None:
    """The next run reaches the expected state; a kill loses no content that both sides had.

    After a failed copy its twin is removed nevertheless, with and without `--moved`.
    """
    log = tmp_path / "calls"
    assert _run("", *_night(place), str(log)) == 0
    count = max_calls(log)
    assert count > 10
    every = range(1, count + 1)
    for moment in every if SOAK else sorted(Random(what).sample(every, 8)):
        source, target = _night(place)
        old, new = contents_of(target), contents_of(source)
        _run(f"{what}:when={moment}", source, target)
        now = contents_of(target)
        assert now.get(b"kept") in (old[b"kept"], new[b"kept"]), moment
        have = {content for kind, content in now.values()}
        for name, (_, content) in new.items():
            if what.startswith("signal") and name.startswith(b"new/dir/") and content:
                assert content in have, (moment, name)
        assert _run("", source, target) == 0, moment
        assert differences(source, target) == "", moment


def test_excluded_entries_are_not_renamed(place: bytes) -> None:
    """Neither single ones nor those in directories that only the target has are renamed."""
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source)
    os.makedirs(target + b"/gone")
    for path in (source + b"/new", target + b"/gone/kept.log", target + b"/kept.log"):
        os.utime(write_file(path, b"the same content"), _TIME)
    mirrored(TWO, "--delete", "--moved", "--exclude=*.log", source, target)
    assert sorted(os.listdir(target)) == [b"gone", b"kept.log", b"new"]
    assert os.listdir(target + b"/gone") == [b"kept.log"]


def test_it_looks_like_one_job(place: bytes) -> None:
    """A run reports renames once, and nothing about the search for them."""
    source, target = place + b"/a", place + b"/b"
    files_below(source + b"/old", 6)
    copy_of(source, target)
    os.rename(source + b"/old", source + b"/new")
    line: list[str | bytes] = ["--delete", "--moved", source, target]
    finished = run_fmirror(TWO, *line)
    assert finished.code == 0
    assert "20 files renamed" in finished.said
    assert finished.said.count("copied") == 1
    assert subprocess.run(["diff", "-r", source, target], check=False).returncode == 0
