"""`--prune-empty-dirs`: with and without filters, the result equals rsync -m on the same trees."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.library.call import Call, run_words
from pcircle.tools.fmirror.report import MirrorReport
from tests.tools.fcp.running import TWO, Launcher
from tests.tools.fcp.trees import make_directory, write_file

from .edits import NAMES, Tree, cleared, copy_of
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
from .test_judge import shared
from .test_safety import names_below

__all__ = ["shared"]
pytestmark = [as_root, needs_rsync]
FILTERS: tuple[list[str], ...] = (
    [],
    ["--exclude=a"],
    ["--exclude=/b"],
    ["--include=*/", "--include=c", "--exclude=*"],
    ["--exclude=a/b", "--exclude=long*"],
    ["--include=a/***", "--include=*/", "--exclude=*"],
)


def build(place: bytes, seed: int) -> tuple[bytes, bytes, bytes, Random]:
    """Build a source with many directories, and two targets that have some of it and more."""
    source, target = cleared(place)
    tree = Tree(source, seed)
    random = Random(seed)
    for side in (source, source, target):
        if side == target:
            if random.random() < 0.7:
                copy_of(source, target)
                for _ in range(random.randrange(6)):
                    tree.edit()
            else:
                Tree(target, ~seed)
        for _ in range(random.randrange(8)):
            path = side + b"/" + b"/".join(random.choices(NAMES, k=random.randrange(1, 5)))
            try:
                os.makedirs(path, exist_ok=True)
            except OSError:  # no directory is in the way
                continue
    judge = place + b"/judge"
    copy_of(target, judge)
    return source, target, judge, random


def reported(*words: str | bytes) -> MirrorReport:
    """Return the report of a mirror with these options, without another process."""
    report: MirrorReport = run_words("mirror", list(map(os.fsdecode, words)), Call())
    return report


def is_no_directory(top: bytes, path: bytes) -> bool:
    """Return whether a path is, or has as a parent, another entry than a directory."""
    parts = path.split(b"/")
    above = [os.path.join(top, *parts[:count]) for count in range(1, len(parts) + 1)]
    return any(os.path.lexists(entry) and not is_directory(entry) for entry in above)


def is_directory(path: bytes) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def portrait(top: bytes) -> dict[bytes, tuple[int, ...]]:
    """Return visible attributes except change times, which are set where entries stay."""
    found: dict[bytes, tuple[int, ...]] = {}
    for name in names_below(top):
        status = os.lstat(os.path.join(top, name))
        found[name] = status.st_ino, status.st_mode, status.st_uid, status.st_mtime_ns
    return found


@searched(80, soak=3000)
@given(seed=st.integers(0, 2**40))
def test_results_equal_those_of_rsync(shared: bytes, seed: int) -> None:
    source, target, judge, random = build(shared, seed)
    words = list(random.choice(FILTERS))
    delete = random.choice((None, "after", "during"))
    said = ["--delete-after"] if delete else []
    line = ["rsync", "-aHAXm", "--force", *said, *words, f"{os.fsdecode(source)}/"]
    done = subprocess.run([*line, os.fsdecode(judge)], capture_output=True, check=False)
    words += ["-m", "-j1", "--allow-empty", "--allow-foreign"]
    words += [f"--delete={delete}"] if delete else []
    dry, report = (reported(*words, *more, source, target) for more in (["--dry-run"], []))
    if done.returncode or report.exit_code:  # a directory replaces a file
        return
    more = names_below(target) - names_below(judge)
    # An entry of the source is not removed, even if a filter excludes its type there.
    assert all(is_no_directory(source, path) for path in more), (words, more)
    assert names_below(judge) <= names_below(target), (words, done.stdout)
    assert dry.removed == report.removed
    before = portrait(target)
    reported(*words, source, target)
    assert portrait(target) == before


@every_launcher
def test_every_launcher_does_the_same(place: bytes, launcher: Launcher) -> None:
    source, target, judge, _ = build(place, 7)
    for number in range(600):
        os.makedirs(source + b"/many/%d/inner" % number)
        if number % 3 == 0:
            write_file(source + b"/many/%d/inner/file" % number, b"%d" % number)
    line = ["rsync", "-aHAXm", "--delete", f"{os.fsdecode(source)}/", os.fsdecode(judge)]
    subprocess.run(line, capture_output=True, check=True)
    mirrored(launcher, "-m", "--delete", source, target)
    assert names_below(target) == names_below(judge)
    assert differences(source, target, "-m") == ""


@needs_strace
def test_unreadable_directories_are_not_omitted(place: bytes) -> None:
    """They may contain entries, so nothing is removed."""
    source, target = cleared(place)
    for name in (b"one", b"two/inner"):
        for side in (source, target):
            os.makedirs(side + b"/" + name)
    write_file(target + b"/one/surplus", b"")
    write_file(target + b"/two/inner/file", b"precious")
    write_file(source + b"/file", b"")
    path = os.fsdecode(source + b"/two")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", path, "-e", "inject=getdents64:error=EIO"]
    for option in ("--delete", "--delete=during"):
        finished = run_fmirror(None, "-q", "-j1", "-m", option, source, target, prefix=prefix)
        assert finished.code == 1
        assert os.path.exists(target + b"/two/inner/file")
    assert not os.path.exists(target + b"/one")


def test_deep_empty_directories_are_pruned(place: bytes, tmp_path: Path) -> None:
    source = make_directory(place, b"a")
    fd = os.open(source, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir(b"deeper", dir_fd=fd)
        inner = os.open(b"deeper", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    mirrored(TWO, "-m", source, place + b"/b")
    assert os.listdir(place + b"/b") == []
    os.close(os.open(b"file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
    mirrored(TWO, "-m", source, place + b"/c")
    found = subprocess.run(["find", place + b"/c"], capture_output=True, check=True).stdout
    assert len(found.splitlines()) == 1202


@pytest.mark.parametrize(
    "word", ["--changed=fs", "--changed-from=x", "--files-from=x", "--since-manifest=x"]
)
def test_refusals(place: bytes, word: str) -> None:
    source = make_directory(place, b"a")
    finished = run_fmirror(TWO, "-m", word, source, place + b"/b")
    assert finished.code == 2
    assert "--prune-empty-dirs cannot be combined with" in finished.said
