"""frm removes the same as rm -rf: odd trees, every launcher, and nothing next to them."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from pcircle import remove
from pcircle.fs import native, scan
from tests.tools.fcp import trees
from tests.tools.fcp.running import ONE, TWO, Launcher

from .running import every_launcher, grow, paths, removed, run_frm

BUILDERS: dict[str, Callable[[bytes], object]] = {
    "names": trees.add_odd_names,
    "empty": trees.add_empty,
    "links": trees.add_links,
    "modes": trees.add_modes,
    "bits": trees.add_special_bits,
    "owners": trees.add_owners,
}


def add_every_byte(top: bytes) -> None:
    """Create names of one byte and of three, with each possible byte, and directories."""
    os.mkdir(top + b"/bytes")
    for byte in range(1, 256):
        if byte in b"/.":
            continue
        with open(b"%b/bytes/%c" % (top, byte), "xb"):
            pass
        os.makedirs(b"%b/bytes/d%cd/%c" % (top, byte, byte))


def add_specials(top: bytes) -> None:
    os.mkdir(top + b"/special")
    os.mkfifo(top + b"/special/fifo")
    os.mknod(top + b"/special/socket", stat.S_IFSOCK | 0o600)
    if os.geteuid() == 0:
        os.mknod(top + b"/special/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(top + b"/special/block", stat.S_IFBLK | 0o600, os.makedev(7, 200))


def add_hard_links(top: bytes) -> None:
    os.mkdir(top + b"/hard")
    first = trees.write_file(top + b"/hard/first", b"content")
    for number in range(20):
        os.link(first, top + b"/hard/%d" % number)
        os.makedirs(top + b"/hard/d%d" % number)
        os.link(first, top + b"/hard/d%d/name" % number)


ALL = {**BUILDERS, "bytes": add_every_byte, "special": add_specials, "hard": add_hard_links}


def build(top: bytes) -> bytes:
    os.mkdir(top)
    for name, add in ALL.items():
        if name != "modes" or os.geteuid() == 0:  # nor can rm empty read-only directories
            add(top)
    return top


@every_launcher
def test_odd_trees_are_removed_as_rm_does(place: bytes, launcher: Launcher) -> None:
    """Entries outside the tree, including targets of links, stay."""
    outside = build(place + b"/outside")
    before = paths(outside)
    for name in (b"ours", b"theirs"):
        build(place + b"/" + name)
        os.symlink(outside, place + b"/" + name + b"/to the outside")
        os.symlink(outside + b"/hard/first", place + b"/" + name + b"/to a file")
    found = len(paths(place + b"/ours")) + 1
    report = removed(launcher, "-r", place + b"/ours")
    subprocess.run(["rm", "-rf", place + b"/theirs"], check=True)
    assert report["counts"]["found"] == found
    assert report["counts"]["kept"] == report["counts"]["vanished"] == 0
    assert os.listdir(place) == [b"outside"]
    assert paths(outside) == before


@every_launcher
def test_three_thousand_levels(place: bytes, launcher: Launcher) -> None:
    trees.build_deep_tree(place + b"/deep", 3000)
    report = removed(launcher, "-r", place + b"/deep")
    assert report["counts"]["directories"] >= 3000
    assert os.listdir(place) == []


@every_launcher
def test_many_files_and_many_directories(place: bytes, launcher: Launcher) -> None:
    """The tree is large enough to be divided; one directory is larger than a read."""
    for name in (b"flat", b"wide"):
        os.mkdir(place + b"/" + name)
    for number in range(70_000):
        os.mknod(place + b"/flat/%d" % number)
    for number in range(3000):
        inner = b"%b/wide/%d/%d" % (place, number % 7, number)
        os.makedirs(inner)
        trees.write_file(inner + b"/file", b"")
    report = removed(launcher, "-r", place + b"/flat", place + b"/wide")
    assert report["counts"]["files"] == 73_000
    assert report["counts"]["directories"] == 3009
    assert os.listdir(place) == []


def test_operands_of_each_kind(place: bytes) -> None:
    """A link itself is the entry, and its target stays."""
    add_specials(place)
    grow(place, ["kept/file", "tree/a/b", "file"])
    os.symlink(b"kept", place + b"/link")
    os.symlink(b"nowhere", place + b"/dangling")
    names = (b"special/fifo", b"special/socket", b"tree", b"file", b"link", b"dangling")
    report = removed(TWO, "-r", *(place + b"/" + name for name in names))
    counts = report["counts"]
    assert (counts["special"], counts["links"], counts["files"]) == (2, 2, 2)
    assert paths(place + b"/kept") == [b"file"]
    assert sorted(os.listdir(place)) == [b"kept", b"special"]


def test_paths_relative_to_the_working_directory(place: bytes) -> None:
    grow(place, ["d/e/f", "d/g", "-r/x"])
    assert run_frm(TWO, "-r", "d/e", cwd=place).code == 0
    assert run_frm(TWO, "-r", "--", "-r", cwd=place).code == 0
    assert paths(place) == [b"d", b"d/g"]


def test_a_dry_run_touches_nothing(place: bytes) -> None:
    build(place + b"/tree")
    before = paths(place)
    finished = run_frm(TWO, "-r", "--dry-run", "-v", place + b"/tree")
    assert finished.code == 0
    assert finished.out.count(b"would be removed") == len(before)
    assert paths(place) == before


remove_one = partial(removed, ONE, "-r")


@pytest.mark.parametrize("name", sorted(ALL))
def test_each_family_alone(place: bytes, name: str) -> None:
    if name == "modes" and os.geteuid() != 0:
        pytest.skip("nor can rm empty read-only directories as an ordinary user")
    os.mkdir(place + b"/tree")
    ALL[name](place + b"/tree")
    remove_one(place + b"/tree")
    assert os.listdir(place) == []


@pytest.mark.parametrize("is_steady", [True, False])
def test_a_directory_on_an_unknown_file_system_is_read_first(
    place: bytes, monkeypatch: pytest.MonkeyPatch, is_steady: bool
) -> None:
    """On NFS, for example, a listing might skip names after removed ones."""
    for number in range(3000):
        os.mknod(place + b"/%d" % number)
    done = []
    add, unlink = scan._add, native.unlink_names

    def read(block: scan.Block, entries: Sequence[Any]) -> None:
        done.append("read")
        add(block, entries)

    def gone(fd: int, names: list[bytes], *more: Any) -> bytes:
        done.extend(["gone"] * len(names))
        return bytes(unlink(fd, names, *more))

    monkeypatch.setattr(scan, "_STEADY", frozenset({b"tmpfs"} if is_steady else ()))
    monkeypatch.setattr(scan, "BLOCK_ENTRIES", 1000)
    monkeypatch.setattr(scan, "_add", read)
    monkeypatch.setattr(native, "unlink_names", gone)
    result = remove(place, recursive=True, keep_root=True, jobs=1)
    monkeypatch.undo()
    assert (result.counts["files"], os.listdir(place)) == (3000, [])
    assert (done.count("read") > 1, done.count("gone")) == (True, 3000)
    assert (done == sorted(done, reverse=True)) is not is_steady
