"""The saved state of a run, and its effect on the next run."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pcircle import mirror
from tests.conftest import SOAK
from tests.strace import read_calls
from tests.tools.fcp.running import ONE, TWO, Launcher
from tests.tools.fcp.trees import make_directory, write_file

from .edits import Tree
from .running import (
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
)

# Change times are compared by whole seconds, and those of the last two seconds may be missed.
_QUIET_S = 3.2


@pytest.fixture
def pair(place: bytes) -> tuple[bytes, bytes]:
    os.mkdir(place + b"/a")
    for number in range(200):
        write_file(place + b"/a/%d" % number, b"content")
    return place + b"/a", place + b"/b"


def state_of(place: bytes) -> list[str]:
    (name,) = [name for name in os.listdir(place) if name.startswith(b".fmirror-")]
    with open(os.path.join(place, name), encoding="ascii") as stream:
        return stream.read().splitlines()


def test_the_state_is_text(pair: tuple[bytes, bytes], place: bytes) -> None:
    mirrored(ONE, *pair)
    lines = state_of(place)
    assert lines[0] == "fmirror 4"
    words = dict(line.split(" ", 1) for line in lines[1:])
    names = (
        "began entries filesystem full given kept left names root snapshot source subvolume target"
    )
    names += " mark session touched"
    assert sorted(words) == sorted(names.split())
    assert words["subvolume"] == "- 0"
    assert words["given"] == "-"
    assert words["source"] == pair[0].decode()
    assert int(words["root"]) == os.stat(pair[0]).st_ino
    assert words["entries"] == "201"
    assert "xattr" in words["kept"].split(",")


def test_the_state_may_be_elsewhere(pair: tuple[bytes, bytes], place: bytes) -> None:
    os.mkdir(place + b"/state")
    mirrored(ONE, "--state-dir", place + b"/state", *pair)
    assert state_of(place + b"/state")
    assert sorted(os.listdir(place)) == [b"a", b"b", b"state"]


@needs_strace
def test_attributes_older_than_the_last_run_are_not_read(
    pair: tuple[bytes, bytes], tmp_path: Path
) -> None:
    """A file whose attributes alone were changed since then is updated."""
    mirrored(ONE, *pair)
    time.sleep(_QUIET_S)
    mirrored(ONE, *pair)
    time.sleep(_QUIET_S)
    os.setxattr(pair[0] + b"/7", "user.new", b"1")
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-o", str(log), "-e", "trace=listxattr,llistxattr,flistxattr"]
    assert run_fmirror(ONE, "-q", *pair, prefix=prefix).code == 0
    assert os.getxattr(pair[1] + b"/7", "user.new") == b"1"
    asked = len(read_calls(log))
    assert 2 <= asked < 420  # if a block has one of these entries, all are read
    assert run_fmirror(ONE, "-q", *pair, prefix=prefix).code == 0
    write_file(pair[0] + b"/new", b"")
    assert run_fmirror(ONE, "-q", *pair, prefix=prefix).code == 0


@needs_strace
def test_a_quiet_tree_needs_no_attributes(pair: tuple[bytes, bytes], tmp_path: Path) -> None:
    mirrored(ONE, *pair)
    time.sleep(_QUIET_S)
    mirrored(ONE, *pair)
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-o", str(log), "-e", "trace=listxattr,llistxattr,flistxattr"]
    assert run_fmirror(ONE, "-q", *pair, prefix=prefix).code == 0
    assert len(read_calls(log)) < 4
    # A run with more attributes than the last one checks everything.
    assert run_fmirror(ONE, "-q", "--preserve=mode,timestamps", *pair).code == 0
    assert run_fmirror(ONE, "-q", *pair, prefix=prefix).code == 0
    assert len(read_calls(log)) > 300


def test_extraneous_entries_in_a_quiet_directory_are_removed(place: bytes) -> None:
    """Nothing has changed in it since a run that has deleted nothing."""
    source, target = place + b"/a", place + b"/b"
    for number in range(40):
        os.makedirs(source + b"/%d" % number)
        for name in (b"one", b"two"):
            write_file(source + b"/%d/" % number + name, b"")
    mirrored(ONE, source, target)
    extra = [target + b"/%d/ten" % number for number in range(0, 40, 3)]
    for path in extra:
        write_file(path, b"")
        os.utime(os.path.dirname(path), ns=(0, 0))
    mirrored(ONE, source, target)
    time.sleep(_QUIET_S)
    for _ in range(2):
        mirrored(ONE, source, target)
        assert all(map(os.path.exists, extra))
    mirrored(ONE, "--delete", source, target)
    assert not any(map(os.path.exists, extra))
    for number in range(40):
        assert sorted(os.listdir(target + b"/%d" % number)) == [b"one", b"two"]


@needs_strace
def test_a_large_directory_is_not_checked_name_by_name(place: bytes, tmp_path: Path) -> None:
    """70,000 names are too many to remember; one additional file is found nevertheless."""
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    fd = os.open(source, os.O_RDONLY)
    for number in range(70_000):
        os.mknod(b"%d" % number, dir_fd=fd)
    os.close(fd)
    mirrored(TWO, "--delete", source, target)
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-c", "-o", str(log), "-e", "trace=newfstatat,statx"]
    assert run_fmirror(ONE, "-q", "--delete", source, target, prefix=prefix).code == 0
    (total,) = [line for line in log.read_text().splitlines() if line.endswith("total")]
    assert 140_000 <= int(total.split()[3]) < 170_000
    write_file(target + b"/70000", b"")
    mirrored(TWO, "--delete", source, target)
    assert len(os.listdir(target)) == 70_000


@needs_rsync
@as_root
def test_changes_in_quiet_trees(place: bytes) -> None:
    """Most directories are skipped at once, but changes of another user in the target are found."""
    wanted: dict[str, Any] = {"delete": "after", "allow_empty": True, "jobs": 1}
    trees = []
    for seed in range(200 if SOAK else 25):
        source, target = place + b"/%d" % seed, place + b"/%d-copy" % seed
        trees.append((Tree(source, seed), source, target))
        mirror(source, target, **wanted)
    time.sleep(_QUIET_S)
    for _, source, target in trees:
        mirror(source, target, **wanted)
    for tree, source, target in trees:
        for _ in range(tree.random.randrange(1, 6)):
            tree.edit()
        for name in os.listdir(target)[:1]:
            path = target + b"/" + name
            if os.path.isfile(path) and not os.path.islink(path):
                os.chmod(path, 0o777)
                os.setxattr(path, "user.other", b"1")
        report = mirror(source, target, **wanted)
        assert report.exit_code == 0
        assert differences(source, target) == "", tree.seed


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
@pytest.mark.parametrize("where", [b"", b"/p", b"/p/q"], ids=["root", "inner", "deep"])
def test_exchanged_directories(pair: tuple[bytes, bytes], side: int, where: bytes) -> None:
    """Their contents have unchanged times, and belong to another name."""
    source, target = pair
    for number, name in enumerate((b"x", b"y")):
        for inner in (b"/in", b"/in/deep", b"/small"):
            folder = source + where + b"/" + name + inner
            os.makedirs(folder, exist_ok=True)
            path = write_file(folder + b"/file", b"same")
            os.utime(path, (10**9, 10**9))
            os.setxattr(path, "user.which", b"%d" % number)
    mirrored(ONE, "--delete", source, target)
    time.sleep(_QUIET_S)
    mirrored(ONE, "--delete", source, target)
    time.sleep(_QUIET_S)
    top = pair[side] + where
    for one, other in ((b"/x", b"/t"), (b"/y", b"/x"), (b"/t", b"/y")):
        os.rename(top + one, top + other)
    mirrored(TWO, "--delete", source, target)
    assert differences(source, target) == ""


@needs_strace
def test_a_write_with_a_restored_time(pair: tuple[bytes, bytes], tmp_path: Path) -> None:
    """The change time reveals it, and no other file is read."""
    source, target = pair

    def spoil(name: bytes, content: bytes) -> None:
        path = source + b"/" + name
        status = os.stat(path)
        with open(path, "r+b") as stream:
            stream.write(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def read(*words: str) -> int:
        log = tmp_path / "calls"
        prefix = ["strace", "-f", "-y", "-o", str(log), "-e", "trace=read,pread64,preadv,preadv2"]
        finished = run_fmirror(ONE, *words, source, target, prefix=prefix)
        assert finished.code == 0, finished.said
        files = re.compile(r"\w+\(\d+<" + re.escape(os.fsdecode(target)) + r"/(\d+)>")
        return len({found[1] for call in read_calls(log) if (found := files.match(call.text))})

    mirrored(ONE, source, target)
    spoil(b"7", b"CONTENT")
    mirrored(ONE, source, target)
    with open(target + b"/7", "rb") as stream:
        assert stream.read() == b"content"  # like rsync's quick check
    assert "all files are read" in mirrored(ONE, "--ctime", source, target).said
    assert differences(source, target) == ""
    time.sleep(_QUIET_S)
    mirrored(ONE, "--ctime", source, target)
    time.sleep(_QUIET_S)
    spoil(b"8", b"CoNtEnT")
    os.chmod(source + b"/9", 0o600)
    assert read("-q", "--ctime") in (1, 2)
    assert differences(source, target) == ""
    mirrored(ONE, source, target)  # provides no information about content
    assert "all files are read" in mirrored(TWO, "--ctime", source, target).said


@needs_rsync
@every_launcher
@pytest.mark.parametrize("words", [[], ["-i"]], ids=str)
def test_files_in_a_renamed_directory_are_read(
    place: bytes, launcher: Launcher, words: list[str]
) -> None:
    """They have the size, time and old change time of the files formerly at their paths."""
    source, target = place + b"/a", place + b"/b"
    for inner, content in ((b"one", b"first"), (b"two/deep", b"other"), (b"same", b"equal")):
        made = make_directory(source, inner)
        for number in range(100):
            os.utime(write_file(made + b"/%d" % number, content), (10**9, 10**9))
    mirrored(launcher, "--ctime", source, target)
    time.sleep(_QUIET_S)
    mirrored(launcher, "--ctime", source, target)
    time.sleep(_QUIET_S)
    os.rename(source + b"/one", source + b"/aside")
    os.rename(source + b"/two/deep", source + b"/one")
    os.rename(source + b"/aside", source + b"/two/deep")
    mirrored(launcher, "--ctime", "--delete", *words, source, target)
    assert differences(source, target) == ""
