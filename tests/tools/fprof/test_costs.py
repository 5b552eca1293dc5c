"""The costs of an entry in system calls and memory; benchmarks measure time."""

from __future__ import annotations

import os

import pytest

from pcircle.fs.registry import FirstNames
from pcircle.tools.fprof.profile.groups import Claim, home_of, unpack
from tests import counts, strace
from tests.conftest import SOAK
from tests.tools.fcp.running import ONE, TWO, Launcher, clean_environment, command, launchers
from tests.tools.fcp.trees import build_flat_tree
from tests.tools.fprof.running import FPROF, profiled

LIMIT_BYTES = 100 << 20
BLOCK_BYTES = 32 << 20


def _count_calls(tree: bytes, log: bytes) -> int:
    # With one thread: strace slows the file system, and the number of threads would adapt to that.
    fprof = command(ONE, ["-q", "--threads", "1", tree], FPROF)
    return counts.total(counts.by_name(strace.trace(fprof, log, env=clean_environment())))


@pytest.mark.counts
@pytest.mark.parametrize(
    ("directories", "files"), [(1, 500), (500, 1)], ids=["files", "directories"]
)
def test_calls_per_entry(place: bytes, directories: int, files: int) -> None:
    """The trees are files in one directory, and directories of one file."""
    few = build_flat_tree(place + b"/few", directories, files, 0)
    many = build_flat_tree(place + b"/many", directories * 2 - 1, files * 2 - 1, 0)

    def calls(tree: bytes) -> int:
        return _count_calls(tree, place + b"/log")

    counts.check(
        f"fprof ({directories} x {files} files)",
        lambda: {"calls for 499 more": counts.growth(lambda: calls(few), lambda: calls(many))},
    )


@pytest.mark.slow
@pytest.mark.parametrize("launcher", launchers([1, 2] if SOAK else [2], [2] if SOAK else []))
def test_memory_does_not_grow_with_the_tree(launcher: Launcher, vast_place: bytes) -> None:
    """A million entries, half of them in one directory, need no more than fifty thousand."""
    place = vast_place
    few = build_flat_tree(place + b"/few", 50, 1000, 0)
    build_flat_tree(place + b"/more/many", 500, 1000, 0)
    build_flat_tree(place + b"/more/flat", 1, 500_000, 0)
    by = "age,owner,group,ext,depth,dirsize"
    for options in ((), ("--by", by, "--top", "100", "--save", place + b"/kept")):
        small = profiled(launcher, *options, few)
        large = profiled(launcher, *options, place + b"/more")
        assert large["counts"]["files"]["number"] == 1_000_000
        peaks = [
            max(rank["peak_rss_bytes"] for rank in document["ranks"]) for document in (small, large)
        ]
        assert max(peaks) < LIMIT_BYTES
        # A large directory uses memory for the names of one block, in any tree.
        assert peaks[1] < peaks[0] + BLOCK_BYTES


@pytest.mark.slow
def test_memory_of_an_index_of_long_names(vast_place: bytes) -> None:
    """All names are in one directory, so that each rank's share is as large as possible."""
    tree = vast_place + b"/tree"
    os.mkdir(tree)
    fd = os.open(tree, os.O_RDONLY)
    for number in range(750_000):
        os.mknod(b"%06d%b" % (number, b"n" * 234), dir_fd=fd)
    os.close(fd)
    document = profiled(TWO, "--save", vast_place + b"/kept", "--entries", tree)
    assert document["counts"]["files"]["number"] == 750_000
    assert max(rank["peak_rss_bytes"] for rank in document["ranks"]) < LIMIT_BYTES


@pytest.mark.slow
def test_memory_does_not_grow_with_hard_links(place: bytes) -> None:
    """Each of 150,000 files has one name here and one elsewhere, so that none is ever complete."""
    if os.statvfs(place).f_favail < 400_000:
        pytest.skip("no room for so many files")
    tree = build_flat_tree(place + b"/tree", 150, 1000, 1)
    for folder in os.listdir(tree):
        os.makedirs(place + b"/elsewhere/" + folder)
        for name in os.listdir(tree + b"/" + folder):
            path = b"/" + folder + b"/" + name
            os.link(tree + path, place + b"/elsewhere" + path)
    document = profiled(TWO, tree)
    assert document["counts"]["hard_linked_files"] == 150_000
    assert document["counts"]["files"]["bytes"] == 150_000
    assert max(rank["peak_rss_bytes"] for rank in document["ranks"]) < LIMIT_BYTES
    both = profiled(TWO, tree, place + b"/elsewhere")
    assert both["counts"]["hard_linked_names"] == 300_000
    assert both["counts"]["files"]["bytes"] == 150_000


def claim(inode: int, links: int = 2) -> Claim:
    return Claim(1 << 40, inode, links, inode % 77, 512, 0, 0, -5)


@pytest.mark.parametrize("most", [3, 1000])
def test_spilled_inodes_are_still_known(most: int) -> None:
    inodes = FirstNames(most)
    assert all(inodes.is_first((1, number), 3) for number in range(100))
    assert not any(inodes.is_first((1, number), 3) for number in range(0, 100, 3))
    assert not any(inodes.is_first((1, number), 3) for number in range(100))
    # All three names of these were found, so they need not be remembered.
    assert all(inodes.is_first((1, number), 3) for number in range(0, 100, 3))
    inodes.close()


def test_claims_are_packed_and_unpacked() -> None:
    claims = [claim(2**63), claim(5), Claim(2**64 - 1, 1, 2, 2**62, 0, 2**32 - 1, 7, -(2**40))]
    assert list(unpack(b"".join(map(Claim.pack, claims)))) == claims


def test_homes_are_spread() -> None:
    for step in (1, 2, 32, 4096):
        homes = [home_of(claim(number * step), 7) for number in range(7000)]
        assert min(homes.count(rank) for rank in range(7)) > 700
