"""Counts and bytes match find and du, for any number of ranks."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher
from tests.tools.fprof.judge import document_totals, judged
from tests.tools.fprof.running import every_launcher, profiled, run_fprof, some_launchers

REAL = b"/usr/share"


@pytest.mark.slow
@every_launcher
def test_a_real_tree(launcher: Launcher) -> None:
    document = profiled(launcher, REAL)
    assert document_totals(document) == judged(REAL)
    assert len(document["ranks"]) == launcher.size


@every_launcher
def test_the_odd_tree(launcher: Launcher, odd_tree: bytes) -> None:
    """The tree has every type of entry and name, and holes."""
    assert document_totals(profiled(launcher, odd_tree)) == judged(odd_tree)


@every_launcher
def test_hard_links_count_once_in_bytes(launcher: Launcher, place: bytes) -> None:
    """Files have up to nine names all over the tree, some outside of it, and a hundred sizes.

    Next to them are empty directories, which are read together with the others.
    """
    tree, outside = place + b"/tree", place + b"/outside"
    os.mkdir(outside)
    for number in range(40):
        os.makedirs(tree + b"/%d/below" % number)
        os.mkdir(tree + b"/%d/empty" % number)
    for number in range(400):
        first = tree + b"/%d/file-%d" % (number % 40, number)
        with open(first, "wb") as file:
            file.write(b"x" * (number * 97 % 10_000))
        for link in range(number % 9):
            os.link(first, tree + b"/%d/below/%d-%d" % ((number + link) % 40, number, link))
        if not number % 7:
            os.link(first, outside + b"/%d" % number)
    document = profiled(launcher, "--by", "owner,age,ext", tree)
    assert document_totals(document) == judged(tree)
    several = [number for number in range(400) if number % 9 or not number % 7]
    counts = document["counts"]
    assert counts["hard_linked_files"] == len(several)
    assert counts["hard_linked_names"] == sum(1 + number % 9 for number in several)
    bins = document["sizes"]["bins"]
    assert sum(size_bin["bytes"] for size_bin in bins) == counts["files"]["bytes"]
    assert sum(size_bin["number"] for size_bin in bins) == counts["files"]["number"]


def test_several_roots_share_their_hard_links(place: bytes) -> None:
    for name in (b"a", b"b"):
        os.mkdir(os.path.join(place, name))
    with open(place + b"/a/file", "wb") as file:
        file.write(b"x" * 100_000)
    os.link(place + b"/a/file", place + b"/b/other")
    document = profiled(TWO, place + b"/a", place + b"/b")
    assert document_totals(document) == judged(place + b"/a", place + b"/b")
    assert document["counts"]["files"]["number"] == 2
    assert document["counts"]["files"]["bytes"] == 100_000


@some_launchers
@pytest.mark.parametrize("number", [1, 3000, 70_000])
def test_a_directory_of_many_names(launcher: Launcher, place: bytes, number: int) -> None:
    """Above some thousand names all ranks share them; above 65,536 there are several blocks."""
    tree = place + b"/tree"
    os.makedirs(tree + b"/below")
    os.symlink(b"nowhere", tree + b"/link")
    os.mkfifo(tree + b"/fifo")
    fd = os.open(tree, os.O_RDONLY)
    for count in range(number):
        os.close(os.open(b"%d" % count, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    os.truncate(tree + b"/0", 12_345)
    document = profiled(launcher, tree)
    assert document_totals(document) == judged(tree)
    assert document["largest_directory"]["entries"] == number + 3
    assert document["largest_directory"]["all_entries"] == number + 4
    assert document["largest_directory"]["bytes"] >= 12_345


def test_a_root_that_is_a_file_and_one_that_is_a_link(place: bytes) -> None:
    with open(place + b"/file", "wb") as file:
        file.write(b"x" * 1000)
    os.symlink(b"file", place + b"/link")
    for name in (b"/file", b"/link"):
        document = profiled(ONE, place + name)
        assert document["counts"]["files"]["number"] == document["counts"]["entries"] == 1
        assert document["counts"]["total"]["bytes"] == 1000
    os.mkdir(place + b"/directory")
    os.symlink(b"directory", place + b"/to-directory")
    document = profiled(ONE, place + b"/to-directory")
    assert document["counts"]["directories"]["number"] == document["counts"]["entries"] == 1


def test_an_empty_directory(place: bytes) -> None:
    os.mkdir(place + b"/empty")
    assert document_totals(profiled(FOUR, place + b"/empty")) == judged(place + b"/empty")
    finished = run_fprof(TWO, place + b"/empty")
    assert (finished.code, finished.said) == (0, "")


def test_nested_paths_are_refused(place: bytes) -> None:
    os.makedirs(place + b"/a/b")
    for paths in ((b"/a", b"/a/b"), (b"/a/b", b"/a"), (b"/a", b"/a/../a")):
        finished = run_fprof(ONE, *(place + path for path in paths))
        assert finished.code == 2
        assert "is in" in finished.said
    os.mkdir(place + b"/ab")
    assert run_fprof(ONE, place + b"/a", place + b"/ab").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_one_directory_mounted_twice_is_refused(place: bytes) -> None:
    for name in (b"/a", b"/b", b"/c"):
        os.mkdir(place + name)
    subprocess.run(["mount", "--bind", place + b"/a", place + b"/b"], check=True)
    try:
        finished = run_fprof(ONE, place + b"/a", place + b"/b")
        assert run_fprof(ONE, place + b"/a", place + b"/c").code == 0
    finally:
        subprocess.run(["umount", place + b"/b"], check=True)
    assert finished.code == 2
    assert f"'{os.fsdecode(place)}/b' is '{os.fsdecode(place)}/a'" in finished.said


def test_deep_directories_are_counted(place: bytes) -> None:
    tree = place + b"/tree"
    os.mkdir(tree)
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir(b"a-directory", dir_fd=fd)
        below = os.open(b"a-directory", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    document = profiled(TWO, tree)
    assert document["counts"]["directories"]["number"] == 3001
