"""`--changed-from`: an external list of changes; and `--full-every`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from tests.conftest import SOAK
from tests.fusefs.mounting import Mounted
from tests.tools.fcp.running import ONE, TWO, Launcher
from tests.tools.fcp.trees import write_file

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
from .test_dry import by_rsync, itemized
from .test_judge import state

pytestmark = [as_root, needs_rsync]
_SEEDS = range(100 if SOAK else 3)
_ALL = "examining the entire source: "


def listed(place: bytes, *paths: bytes, end: bytes = b"\n") -> bytes:
    path = place + b"/list"
    with open(path, "wb") as stream:
        stream.write(b"".join(entry + end for entry in paths))
    return path


def changed(source: bytes, target: bytes) -> list[bytes]:
    """Return the list of a policy engine: the paths that rsync would change."""
    return sorted(by_rsync(source, target))


@every_launcher
def test_over_many_nights(place: bytes, launcher: Launcher) -> None:
    """All changed names are in the list, and nothing else is looked up."""
    for seed in _SEEDS:
        source, target = place + b"/a%d" % seed, place + b"/b%d" % seed
        tree = Tree(source, seed)
        mirrored(launcher, source, target)
        for _ in range(3):
            for _ in range(tree.random.randrange(1, 12)):
                tree.edit()
            names = listed(place, *changed(source, target), end=b"\0")
            words = ("--delete", "--allow-empty", "-0", "--changed-from", names, source, target)
            mirrored(launcher, *words)
            assert differences(source, target) == "", seed
            before = state(target)
            mirrored(launcher, *words)
            assert state(target) == before, seed


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_dry_run_predicts_the_run(place: bytes, seed: int) -> None:
    source, target = place + b"/a", place + b"/b"
    tree = Tree(source, 200 + seed)
    mirrored(TWO, source, target)
    for _ in range(9):
        tree.edit()
    expected, before = by_rsync(source, target), state(target)
    names = listed(place, *changed(source, target), end=b"\0")
    words = ("-i", "-0", "--changed-from", names, source, target)
    assert itemized(TWO, "--dry-run", *words) == expected
    assert state(target) == before
    assert itemized(TWO, *words) == expected
    assert differences(source, target) == ""


def test_only_listed_directories_are_compared(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        for name in (b"in/deep", b"out"):
            os.makedirs(side + b"/" + name)
            write_file(side + b"/" + name + b"/same", b"x")
    for name in (b"in/deep", b"out"):
        write_file(source + b"/" + name + b"/new", b"x")
        write_file(target + b"/" + name + b"/old", b"x")
    write_file(target + b"/in/old", b"x")
    names = listed(place, b"# a comment", b"./in/", b"no/such/name", b"")
    mirrored(TWO, "--changed-from", names, source, target)
    assert sorted(os.listdir(target + b"/in/deep")) == [b"new", b"old", b"same"]
    finished = run_fmirror(TWO, "--delete", "--changed-from", names, source, target)
    assert finished.code == 0
    assert "--changed-from: skipped 1 line of comments" in finished.said
    assert sorted(os.listdir(target + b"/in")) == [b"deep"]
    assert sorted(os.listdir(target + b"/in/deep")) == [b"new", b"same"]
    assert sorted(os.listdir(target + b"/out")) == [b"old", b"same"]


def test_only_listed_entries_are_removed(place: bytes) -> None:
    """Missing entries are removed only if they are listed, and protected ones never."""
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    for name in (b"x/y/one", b"x/y/two", b"x/z", b"kept", b"other", b"file/inner"):
        os.makedirs(os.path.dirname(target + b"/" + name), exist_ok=True)
        write_file(target + b"/" + name, b"x")
    write_file(source + b"/file", b"now a file")
    names = listed(place, b"x/y/one", b"x/y/none", b"kept", b"file/inner")
    words = ("--delete", "--protect=kept", "--changed-from", names, source, target)
    mirrored(TWO, "--max-delete=0", *words, code=4)
    assert os.path.exists(target + b"/x/y/one")
    mirrored(TWO, "--max-delete=1", *words)
    assert os.listdir(target + b"/x/y") == [b"two"]
    assert sorted(os.listdir(target)) == [b"file", b"kept", b"other", b"x"]
    mirrored(TWO, "--delete", "--changed-from", listed(place, b"x", b"file"), source, target)
    assert sorted(os.listdir(target)) == [b"file", b"kept", b"other"]
    assert os.path.isfile(target + b"/file")


def test_a_link_on_the_way_leads_nowhere(place: bytes) -> None:
    source, target, outside = place + b"/a", place + b"/b", place + b"/outside"
    for path in (source, target, outside):
        os.mkdir(path)
        write_file(path + b"/file", b"x")
    os.symlink(outside, target + b"/d")
    names = listed(place, b"d/file")
    mirrored(TWO, "--delete", "--changed-from", names, source, target)
    assert os.listdir(outside) == [b"file"]
    os.symlink(outside, source + b"/d")
    mirrored(TWO, "--delete", "--changed-from", names, source, target)
    assert os.listdir(outside) == [b"file"]


def test_a_name_in_another_case_is_not_removed(place: bytes, fuse: Callable[..., Mounted]) -> None:
    source, target = place + b"/a", fuse(folding="case").path + b"/b"
    os.makedirs(source + b"/Dir")
    write_file(source + b"/Name", b"x")
    write_file(source + b"/Dir/Name", b"x")
    keep = ("--preserve=timestamps", "--state-dir", place)
    mirrored(TWO, *keep, source, target)
    for path in (b"/Dir/Name", b"/Name", b"/Dir"):
        os.rename(source + path, source + path[:-4] + path[-4:].lower())
    names = listed(place, b"Name", b"name", b"Dir/Name", b"dir/name", b"Dir", b"dir")
    mirrored(TWO, *keep, "--delete", "--changed-from", names, source, target)
    assert sorted(name.lower() for name in os.listdir(target)) == [b"dir", b"name"]
    (directory,) = (name for name in os.listdir(target) if name.lower() == b"dir")
    assert [name.lower() for name in os.listdir(target + b"/" + directory)] == [b"name"]


@needs_strace
def test_an_unreadable_directory_prevents_all_removals(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    for name in (b"x", b"y"):
        os.makedirs(source + b"/" + name)
        os.makedirs(target + b"/" + name)
        write_file(target + b"/" + name + b"/file", b"x")
    path = os.fsdecode(source + b"/y")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", path, "-e", "inject=getdents64:error=EIO"]
    for name in (b"y/file", b"y"):
        names = listed(place, b"x/file", name)
        words = ("-q", "--delete", "--changed-from", names, source, target)
        finished = run_fmirror(TWO, *words, prefix=prefix)
        assert finished.code == 1
        assert "could not be read" in finished.said
        assert os.path.exists(target + b"/x/file")


def test_unreadable_lists_are_refused(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    upwards = write_file(place + b"/upwards", b"../up\n")
    cases: list[tuple[list[str | bytes], str]] = [
        ([place + b"/missing"], "--changed-from: cannot read"),
        ([upwards], "--changed-from: '../up' (number 1 in"),
        ([listed(place, b"a"), "--exclude=b"], "cannot be combined with filters"),
        ([listed(place, b"a"), "--min-size=1"], "cannot be combined with filters"),
        ([listed(place, b"a"), "--files-from=x"], "cannot be combined with --files-from"),
        ([listed(place, b"a"), "--changed=auto"], "cannot be combined with --changed=auto"),
        ([listed(place, b"a"), "--ctime"], "cannot be combined with --ctime"),
    ]
    for words, text in cases:
        finished = run_fmirror(ONE, "--changed-from", *words, source, target)
        assert finished.code == 2, words
        assert text in finished.said, finished.said
    assert not os.path.exists(target)
    finished = run_fmirror(ONE, "--full-every=1d", source, target)
    assert finished.code == 2
    assert "--full-every requires" in finished.said


def test_full_scans_happen_periodically(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    names = listed(place, b"named")
    words = ("--changed-from", names, source, target)

    def said(every: str) -> str:
        finished = run_fmirror(TWO, "--full-every", every, *words)
        assert finished.code == 0, finished.said
        return finished.said

    assert f"{_ALL}there was no earlier complete run" in said("1h")
    write_file(source + b"/unnamed", b"x")
    write_file(source + b"/named", b"x")
    assert _ALL not in said("1h")  # the previous run was a full one
    assert os.listdir(target) == [b"named"]
    time.sleep(1)
    assert f"{_ALL}the last full run is older than --full-every" in said("0.5")
    assert differences(source, target) == ""
    time.sleep(1)
    assert _ALL not in said("1h")
    assert _ALL in said("0.5")  # a list may have been incomplete
