"""`--remove-source-files` and `--move`: nothing is removed from A that is not in B."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.conftest import SOAK
from tests.strace import max_calls, read_calls
from tests.tools.fcp.running import ONE, TWO, Launcher, Run
from tests.tools.fcp.trees import write_file

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
)
from .test_judge import CHANGING, pair
from .test_moments import Content, contents_of

pytestmark = [as_root, needs_rsync]


def entries(top: bytes) -> dict[bytes, Content]:
    """Return the entries that are not directories."""
    return {name: of for name, of in contents_of(top).items() if of[0] != stat.S_IFDIR}


@every_launcher
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("option", ["--remove-source-files", "--move"])
def test_copied_entries_are_removed(
    place: bytes, launcher: Launcher, seed: int, option: str
) -> None:
    source, target = pair(place, seed)
    for number in range(700):
        os.makedirs(source + b"/w/%d" % (number % 9), exist_ok=True)
        write_file(source + b"/w/%d/%d" % (number % 9, number), b"%d" % number)
    with open(source + b"/large", "wb") as stream:
        stream.truncate(40 << 20)
        stream.write(b"begin")
    mirrored(ONE, "--delete", "--allow-empty", source, target)  # types that are in the way
    was = place + b"/was"
    copy_of(source, was)
    count = len(entries(source))
    put = target + b"/w/1/1"
    os.unlink(put)
    report = place + b"/report"
    mirrored(launcher, option, "--json", report, source, target)
    assert json.loads(Path(os.fsdecode(report)).read_bytes())["cleared"] == count
    assert differences(was, target) == ""
    assert entries(source) == {}
    assert bool(os.listdir(source)) == (option != "--move")


@pytest.mark.parametrize(
    ("words", "text", "time_ns"),
    [
        (["--size-only"], b"other", 10**18),
        (["--update"], b"newer", 2 * 10**18),
        (["--ignore-existing"], b"stays", 5 * 10**17),
        ([], b"other", 10**18),
    ],
)
def test_entries_that_are_not_in_the_target_stay(
    place: bytes, words: Sequence[str], text: bytes, time_ns: int
) -> None:
    """They stay whatever the options treat as equal."""
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        os.mkdir(side)
        os.utime(write_file(side + b"/same", b"same"), ns=(10**18, 10**18))
    os.utime(write_file(source + b"/file", b"texts"), ns=(10**18, 10**18))
    os.utime(write_file(target + b"/file", text), ns=(time_ns, time_ns))
    write_file(source + b"/new", b"new")
    said = run_fmirror(TWO, "--move", *words, source, target).said
    assert os.listdir(source) == [b"file"], said
    assert entries(target)[b"file"] == (stat.S_IFREG, text)


def test_unpreserved_times_are_not_compared(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    for name in (b"one", b"two"):
        os.utime(write_file(source + b"/" + name, name), (1, 1))
    mirrored(TWO, "--remove-source-files", "--preserve=mode", source, target)
    assert (os.listdir(source), sorted(os.listdir(target))) == ([], [b"one", b"two"])


def killed(source: bytes, target: bytes, what: str) -> int:
    prefix = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={CHANGING},fsync"]
    prefix += ["-e", f"inject={what}"] if what else []
    words: list[str | bytes] = ["-q", "-j1", "--threads=1", "--move", "--resume", source, target]
    return run_fmirror(None, *words, prefix=prefix).code


def build(place: bytes, seed: int) -> tuple[bytes, bytes]:
    """Build a tree, and a target that has some of it and some different entries."""
    source, target = cleared(place)
    Tree(source, seed)
    for number in range(5):
        write_file(source + b"/file %d" % number, b"content %d" % number * 100)
    copy_of(source, target)
    os.unlink(target + b"/file 1")
    with open(target + b"/file 2", "ab") as stream:
        stream.write(b"more")
    return source, target


@needs_strace
@pytest.mark.parametrize(
    "what", ["signal=KILL", "signal=INT", "error=EIO", "error=ENOSPC", "error=EACCES"]
)
def test_nothing_is_lost_at_any_moment(place: bytes, tmp_path: Path, what: str) -> None:
    """Each content is in A or in B, under its name or its temporary name."""
    seed, log = 12, tmp_path / "calls"
    source, target = build(place, seed)
    prefix = ["strace", "-f", "-o", str(log), "-e", f"trace={CHANGING},fsync"]
    words = ("-q", "-j1", "--threads=1", "--move")
    assert run_fmirror(None, *words, source, target, prefix=prefix).code == 0
    every = range(1, max_calls(log) + 1)
    assert len(every) > 20
    calls = f"{CHANGING},fsync" if "signal" in what else CHANGING.replace(",write,", ",") + ",fsync"
    for moment in every if SOAK else sorted(Random(what).sample(every, 12)):
        source, target = build(place, seed)
        wanted = entries(source)
        killed(source, target, f"{calls}:{what}:when={moment}")
        here, there = entries(source), entries(target)
        aside = [of for name, of in here.items() if b".fcp-" in name]
        for name, of in wanted.items():
            assert of in (here.get(name), there.get(name), *aside), (moment, name)
        assert killed(source, target, "") == 0, moment
        there = entries(target)
        for name, of in wanted.items():
            assert of == there.get(name) or of in aside, (moment, name)
        assert entries(source) == {}, moment


@needs_strace
def test_entries_that_appear_meanwhile_stay(place: bytes, tmp_path: Path) -> None:
    """Another file takes the name while the copy is verified."""
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    write_file(source + b"/file", b"old")
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-y", "-o", str(log), "-e", "trace=fsync"]
    prefix += ["-P", os.fsdecode(target + b"/file"), "-e", "inject=fsync:delay_enter=6000000"]
    words: list[str | bytes] = ["-j1", "--threads=1", "--move", source, target]
    os.mkdir(target)
    with Run(None, *words, prefix=prefix, program=FMIRROR) as run:
        while not log.exists() or "fsync" not in {call.name for call in read_calls(log)}:
            time.sleep(0.02)
        os.rename(write_file(place + b"/new", b"new content"), source + b"/file")
        done = run.finish()
    assert done.code == 1
    assert "it changed during the comparison" in done.said
    assert entries(source) == {b"file": (stat.S_IFREG, b"new content")}
    assert entries(target) == {b"file": (stat.S_IFREG, b"old")}


def test_a_mount_of_one_in_the_other_is_not_emptied(place: bytes) -> None:
    """The copy is the file itself there."""
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        os.makedirs(side + b"/shared")
    write_file(source + b"/other", b"1")
    write_file(target + b"/shared/file", b"only one")
    done = subprocess.run(["mount", "--bind", target + b"/shared", source + b"/shared"])
    if done.returncode:
        pytest.skip("nothing can be mounted")
    try:
        finished = run_fmirror(TWO, "--move", source, target)
        assert finished.code == 1
        assert "the source and its copy are the same file" in finished.said
        assert entries(target)[b"shared/file"] == (stat.S_IFREG, b"only one")
        assert os.listdir(source) == [b"shared"]
    finally:
        subprocess.run(["umount", source + b"/shared"], check=True)


@pytest.mark.parametrize(
    "words",
    [
        "a a", "a a/d", "a/d a", "a link", "--delete a b", "--plan p a b", "--apply p",
        "--dry-run a b", "--snapshot a b", "--existing a b", "--compare-dest d a b",
        "--changed=auto a b", "--files-from=- a b",
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["--remove-source-files", "--move"])
def test_refusals(place: bytes, words: str, option: str) -> None:
    os.makedirs(place + b"/a/d")
    os.mkdir(place + b"/b")
    os.symlink("a", place + b"/link")
    write_file(place + b"/a/d/file", b"1")
    done = run_fmirror(ONE, option, *words.split(), cwd=place)
    assert done.code == 2, done.said
    assert entries(place + b"/a") == {b"d/file": (stat.S_IFREG, b"1")}
    assert os.listdir(place + b"/b") == []


@every_launcher
@pytest.mark.parametrize("option", ["--remove-source-files", "--move"])
def test_moved_files_are_not_removed_later(
    place: bytes, launcher: Launcher, option: str, tmp_path: Path
) -> None:
    """Runs that delete extraneous entries refuse, until an option confirms it."""
    source, target, other = place + b"/a", place + b"/b", place + b"/other"
    for top, name in ((source, b"moved"), (other, b"of another")):
        os.mkdir(top)
        write_file(top + b"/" + name, name)
    mirrored(launcher, option, source, target)
    assert os.listdir(source) == []
    write_file(source + b"/new", b"new")
    mirrored(launcher, source, target)
    mirrored(launcher, "--exclude=x", source, target)
    words: tuple[list[str], ...] = (
        ["--delete"],
        ["--delete=during"],
        ["--delete", "--dry-run"],
        ["--delete", "--allow-empty", "--allow-foreign"],
        ["--delete", "--moved"],
        ["--delete", f"--plan={tmp_path}/plan"],
    )
    for top in (source, other):
        for options in words:
            finished = mirrored(launcher, *options, top, target, code=2)
            assert "files were moved" in finished.said
            assert "add --allow-moved" in finished.said
    assert sorted(os.listdir(target)) == [b"moved", b"new"]
    mirrored(launcher, "--delete", "--allow-moved", "--protect=moved", source, target)
    assert "files were moved" in mirrored(launcher, "--delete", source, target, code=2).said
    mirrored(launcher, "--delete", "--allow-moved", source, target)
    assert os.listdir(target) == [b"new"]
    mirrored(launcher, "--delete", source, target)


@needs_strace
@pytest.mark.parametrize("moment", [1, 3])
def test_a_kill_while_it_moves_is_remembered(place: bytes, moment: int) -> None:
    """Entries removed from the source before the kill are protected as in a complete move."""
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    for number in range(5):
        write_file(source + b"/%d" % number, b"%d" % number)
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", os.fsdecode(source)]
    prefix += ["-e", f"inject=unlinkat:signal=KILL:when={moment + 1}"]  # after a probe
    assert run_fmirror(None, "-q", "-j1", "--move", source, target, prefix=prefix).code != 0
    gone = set(os.listdir(target)) - set(os.listdir(source))
    assert gone
    finished = mirrored(None, "--delete", source, target, code=2)
    assert "files were moved" in finished.said
    assert gone <= set(os.listdir(target))


def test_an_unwritable_state_is_reported(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    write_file(source + b"/file", b"")
    said = mirrored(None, "-j1", "--move", "--state-dir", place + b"/none", source, target).said
    assert "cannot write the state" in said
    assert "--delete will not be refused" in said


@contextmanager
def _union(kind: str, place: bytes) -> Iterator[bytes]:
    """Mount a view in which the directory `branch` is part of another one; yield it."""
    view, other = place + b"/view", place + b"/other"
    for path in (view, other, place + b"/work"):
        os.mkdir(path)
    branch = place + b"/branch"
    lines: dict[str, list[bytes]] = {
        "mergerfs": [b"-o", b"category.create=ff,cache.entry=60,cache.negative_entry=60"],
        "bindfs": [],
        "overlay": [b"-t", b"overlay", b"-o"],
    }
    line = lines[kind]
    if kind == "overlay":
        layers = b"lowerdir=%b,upperdir=%b,workdir=%b" % (branch, other, place + b"/work")
        line = [b"mount", *line, layers, b"overlay", view]
    elif kind == "mergerfs":
        line = [b"mergerfs", *line, other + b":" + branch, view]
    else:
        line = [b"bindfs", branch, view]
    if shutil.which(line[0]) is None:
        pytest.skip(f"{kind} is not installed")
    mounted = subprocess.run(line, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no {kind} here: {mounted.stderr!r}")
    try:
        yield view
    finally:
        subprocess.run(["umount", view], check=True)


@pytest.mark.parametrize("words", [["-j1", "--move"], ["-j2", "--remove-source-files"]], ids=str)
@pytest.mark.parametrize("from_view", [False, True], ids=["branch", "view"])
@pytest.mark.parametrize("kind", ["mergerfs", "bindfs", "overlay"])
def test_entries_visible_through_a_union_stay(
    place: bytes, kind: str, from_view: bool, words: list[str]
) -> None:
    """A is a branch of the file system that contains B, or the other way around."""
    data = place + b"/branch/data"
    os.makedirs(data + b"/deep/empty")
    for number in range(20):
        write_file(data + b"/%d" % number, b"content")
        write_file(data + b"/deep/%d" % number, b"content")
    os.symlink(b"0", data + b"/link")
    os.mkfifo(data + b"/fifo")
    os.utime(data + b"/deep", (10**9, 10**9))
    was = contents_of(data)
    with _union(kind, place) as view:
        sides = [data, view + b"/data"]
        source, target = sides[::-1] if from_view else sides
        finished = run_fmirror(None, *words, source, target)
        assert finished.code == 1, finished.said
        assert (
            "its directories in A and B are the same" in finished.said
            or "same file" in finished.said
        )
        assert f"{os.fsdecode(source)}/deep/1" in finished.said
        assert contents_of(source).keys() == was.keys()
    assert contents_of(data) == was


def test_entries_without_proof_stay(place: bytes) -> None:
    """No file can be created in B's directory, so it may be A's."""
    source, target = place + b"/a", place + b"/b"
    for name in (b"open", b"closed"):
        os.makedirs(source + b"/" + name)
        write_file(source + b"/" + name + b"/file", b"content")
    mirrored(ONE, source, target)
    subprocess.run(["mount", "--bind", target + b"/closed", target + b"/closed"], check=True)
    try:
        subprocess.run([b"mount", b"-o", b"remount,bind,ro", target + b"/closed"], check=True)
        finished = run_fmirror(TWO, "--move", source, target)
    finally:
        subprocess.run(["umount", target + b"/closed"], check=True)
    assert finished.code == 1
    assert "Read-only file system" in finished.said
    assert os.listdir(source) == [b"closed"]
    assert os.listdir(source + b"/closed") == [b"file"]
