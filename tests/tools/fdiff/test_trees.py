"""Equal trees give no output, and every launcher finds the same changes as rsync."""

from __future__ import annotations

import os
import random
import re
import stat

import pytest

from tests.conftest import SOAK
from tests.tools.fcp import trees
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import ONE, TWO, Launcher, without_rights
from tests.tools.frm.test_costs import MAX_RANK_BYTES
from tests.tools.frm.test_removal import add_every_byte, add_hard_links

from .running import as_root, differing, document, every_launcher, rsync, run_fdiff, twin

__all__ = ["place"]


def _odd(top: bytes) -> bytes:
    trees.build_odd_tree(top)
    add_every_byte(top)
    add_hard_links(top)
    special = trees.make_directory(top, b"special")
    os.mkfifo(special + b"/fifo")
    if os.geteuid() == 0:
        os.mknod(special + b"/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    return top


@every_launcher
def test_equal_trees_give_no_output(place: bytes, launcher: Launcher) -> None:
    a = _odd(place + b"/a")
    b = twin(a, place + b"/b")
    for options in ([], ["-c", "--fields=all"], ["-i", "--moved", "--by-hash"]):
        finished = run_fdiff(launcher, *options, a, b)
        assert (finished.code, finished.out, finished.err) == (0, b"", b""), options


@every_launcher
def test_every_launcher_gives_the_same_output(place: bytes, launcher: Launcher) -> None:
    a = _odd(place + b"/a")
    b = twin(a, place + b"/b")
    _edit(b, random.Random(7))
    lines = differing(launcher, "-c", "-i", a, b)
    assert lines == differing(ONE, "-c", "-i", a, b)
    assert len(lines) > 30
    counts = document(launcher, "-c", "-i", a, b)["counts"]
    assert counts["different"] + counts["only_a"] + counts["only_b"] == len(lines)


def _edit(top: bytes, draw: random.Random) -> None:
    """Remove, add, touch and change some entries of a tree."""
    for directory, _, files, fd in os.fwalk(top, topdown=False):
        if len(directory) > 2000:
            continue
        for name in sorted(files):
            chance = draw.random()
            if chance < 0.1:
                os.unlink(name, dir_fd=fd)
            elif chance < 0.3:
                os.utime(name, ns=(5, 5), dir_fd=fd, follow_symlinks=False)
            elif chance < 0.4 and stat.S_ISREG(os.lstat(directory + b"/" + name).st_mode):
                os.chmod(name, 0o640, dir_fd=fd)
        if draw.random() < 0.2:
            os.mkdir(b"new", dir_fd=fd)


@as_root
def test_unreadable_directories_are_named(place: bytes) -> None:
    """Other directories are compared; a difference elsewhere determines the exit code."""
    os.chmod(place, 0o755)
    a, b = (trees.make_directory(place, name) for name in (b"a", b"b"))
    for top in (a, b):
        for name in (b"shut", b"open"):
            trees.write_file(trees.make_directory(top, name) + b"/file", b"same")
    for top, name in ((a, b"shut"), (b, b"open")):
        os.chmod(os.path.join(top, name), 0)
    as_user = without_rights("dac_override", "dac_read_search")
    options = ("--fields=kind,size",)
    finished = run_fdiff(TWO, *options, a, b, prefix=as_user)
    assert finished.code == 1
    assert finished.out == b""
    for path in (a + b"/shut", b + b"/open"):
        assert b"'%b': Permission denied" % path in finished.err, finished.said
    os.unlink(b + b"/shut/file")
    trees.write_file(b + b"/more", b"")
    finished = run_fdiff(TWO, *options, a, b, prefix=as_user)
    assert finished.code == 3
    assert finished.out == b"+Bf++++++++ more\n"


@as_root
def test_unreadable_files_are_named(place: bytes) -> None:
    os.chmod(place, 0o755)
    a, b = (trees.make_directory(place, name) for name in (b"a", b"b"))
    for top in (a, b):
        trees.write_file(top + b"/file", b"same")
        trees.write_file(top + b"/large", bytes(33 << 20))
    for name in (b"/file", b"/large"):
        os.chmod(b + name, 0)
    as_user = without_rights("dac_override", "dac_read_search")
    finished = run_fdiff(TWO, "-c", "--fields=size", a, b, prefix=as_user)
    assert (finished.code, finished.out) == (1, b"")
    for name in (b"/file", b"/large"):
        assert finished.err.count(b"'%b': Permission denied" % (b + name)) == 1


@pytest.mark.slow
@every_launcher
def test_directories_that_are_read_in_parts(place: bytes, launcher: Launcher) -> None:
    """There are more names than in a block: none are kept in memory, and missing ones are found."""
    a, b = (trees.make_directory(place, name) for name in (b"a", b"b"))
    fds = [os.open(top, os.O_RDONLY) for top in (a, b)]
    try:
        for number in range(70_000):
            for fd in fds:
                os.close(os.open(b"%d" % number, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
        for number in (0, 12_345, 69_999):
            os.unlink(b"%d" % number, dir_fd=fds[1])
            os.unlink(b"%d" % (number + 1000 if number < 60_000 else 5), dir_fd=fds[0])
    finally:
        for fd in fds:
            os.close(fd)
    os.mkdir(a + b"/only")
    os.mkdir(b + b"/more")
    trees.write_file(b + b"/more/in", b"")
    lines = differing(launcher, "-i", "--fields=kind,size", a, b)
    only_a = ["+Ad++++++++ only/", *(f"+Af++++++++ {number}" for number in (0, 12_345, 69_999))]
    only_b = [f"+Bf++++++++ {name}" for name in ("1000", "13345", "5", "more/in")]
    assert lines == sorted([*only_a, *only_b, "+Bd++++++++ more/"])
    small = trees.make_directory(place, b"small")
    trees.write_file(small + b"/5", b"")
    assert document(launcher, "--quick", small, b)["counts"]["only_b"] == 69_997


def test_changes_of_rsync(place: bytes) -> None:
    a = _odd(place + b"/a")
    b = twin(a, place + b"/b")
    assert rsync(a, b) == []
    _edit(b, random.Random(11))
    assert len(rsync(a, b)) > 20


@pytest.mark.slow
@pytest.mark.skipif(not SOAK, reason="makes millions of files; runs in a soak")
@pytest.mark.parametrize("edit", ["equal", "touched", "gone", "linked"])
def test_memory_for_a_million_pairs(place: bytes, edit: str) -> None:
    """Entries of a flat directory are equal, different, one-sided, or linked differently."""
    a, b = (trees.make_directory(place, name) for name in (b"a", b"b"))
    for top in (a, b):
        fd = os.open(top, os.O_RDONLY)
        for number in range(1_000_000):
            name = b"a name of some length, %d" % number
            if edit == "linked" and number % 2 and top == a:
                os.link(b"a name of some length, %d" % (number - 1), name, src_dir_fd=fd,
                        dst_dir_fd=fd)  # fmt: skip
            elif edit != "gone" or top == a:
                os.mknod(name, dir_fd=fd)
                if edit == "equal":
                    os.utime(name, ns=(5, 5), dir_fd=fd)
        os.close(fd)
    finished = run_fdiff(
        TWO, "-v", "--stats", "--ignore=mtime" if edit != "touched" else "--quick", a, b
    )
    count = {"equal": 0, "touched": 1_000_000, "gone": 1_000_000, "linked": 500_000}[edit]
    assert finished.code == (3 if count else 0), finished.said
    assert count <= finished.out.count(b"\n") <= count + 1
    peaks = re.findall(r" ([\d.]+) MiB$", finished.said, re.MULTILINE)
    assert len(peaks) == TWO.size
    assert max(map(float, peaks)) < MAX_RANK_BYTES >> 20
