"""Unremovable entries stay with their directories and are named; late entries are found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import ONE, TWO, Launcher, without_rights

from .running import every_launcher, grow, paths, removed, run_frm

BOUND = ("dac_override", "dac_read_search", "fowner")
USER = 12345


@pytest.fixture
def locked(place: bytes) -> bytes:
    """Create directories that their owner may not list, search or write."""
    top = grow(place + b"/tree", ["open/file", "empty/"])
    for mode in (0o000, 0o100, 0o200, 0o300, 0o400, 0o500, 0o600):
        grow(top, [f"full {mode:03o}/file", f"full {mode:03o}/d/file", f"empty {mode:03o}/"])
        os.chmod(top + b"/full %03o" % mode, mode)
        os.chmod(top + b"/empty %03o" % mode, mode)
    return top


def test_directories_without_permissions(place: bytes, locked: bytes) -> None:
    """frm leaves the same entries as rm -rf: an empty directory is removed, whatever its mode."""
    subprocess.run(["cp", "-a", locked, place + b"/theirs"], check=True)
    prefix = without_rights(*BOUND)
    subprocess.run([*prefix, "rm", "-rf", place + b"/theirs"], check=False, capture_output=True)
    report = removed(TWO, "-r", locked, code=1, prefix=prefix)
    assert paths(locked) == paths(place + b"/theirs")
    assert {failure["error"] for failure in report["failures"]} == {"EACCES"}
    assert report["counts"]["kept"] > 0


def test_force_modes_gives_the_owner_access(place: bytes, locked: bytes) -> None:
    report = removed(TWO, "-r", "--force-modes", locked, prefix=without_rights(*BOUND))
    assert report["counts"]["failed"] == 0
    assert os.listdir(place) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set flags")
@every_launcher
def test_immutable_entries_stay_with_their_directories(place: bytes, launcher: Launcher) -> None:
    if shutil.which("chattr") is None:
        pytest.skip("chattr is not installed")
    here = Path(__file__).parent  # a tmpfs may have no flags
    top = os.fsencode(here) if _takes_flags(place) is None else place
    tree = grow(top + b"/immutable", ["a/fixed", "a/free", "b/inner/free", "c/file"])
    flagged = [tree + b"/a/fixed", tree + b"/b/inner"]
    subprocess.run(["chattr", "+i", *flagged], check=True)
    try:
        report = removed(launcher, "-r", tree, code=1)
    finally:
        subprocess.run(["chattr", "-i", *flagged], check=True)
        remaining = paths(tree)
        shutil.rmtree(tree)
    assert remaining == [b"a", b"a/fixed", b"b", b"b/inner", b"b/inner/free"]
    assert {failure["error"] for failure in report["failures"]} == {"EPERM"}
    assert report["counts"]["kept"] == 4


def _takes_flags(place: bytes) -> bytes | None:
    done = subprocess.run(["chattr", "+i", place], check=False, capture_output=True)
    if done.returncode:
        return None
    subprocess.run(["chattr", "-i", place], check=True)
    return place


LATE = """
import os, sys
rmdir, made = os.rmdir, []
def late(name, *, dir_fd):
    if len(made) < {times} and name == b"busy":
        fd = os.open(name, os.O_RDONLY, dir_fd=dir_fd)
        os.mkdir(b"d%d" % len(made), dir_fd=fd)
        os.mkdir(b"d%d/inner" % len(made), dir_fd=fd)
        os.mknod(b"d%d/inner/file" % len(made), dir_fd=fd)
        os.mknod(b"f%d" % len(made), dir_fd=fd)
        os.close(fd)
        made.append(name)
    rmdir(name, dir_fd=dir_fd)
os.rmdir = late
from pcircle.tools.frm.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("below", ["", "sub/file"])
def test_late_entries_are_removed_too(run: Run, place: bytes, below: str) -> None:
    """There are up to three passes; the directory is completed in place or later."""
    tree = grow(
        place + b"/tree", ["busy/file", "other/file"] + ([f"busy/{below}"] if below else [])
    )
    options = ["-j1", "-q", "-r", "--json=-"]
    done = run([sys.executable, "-c", LATE.format(times=3), *options, tree])
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert counts["found"] == counts["files"] + counts["directories"]
    assert counts["files"] == 2 + 2 * 3 + bool(below)
    assert os.listdir(place) == []


def test_late_directories_of_excluded_entries_stay(run: Run, place: bytes) -> None:
    tree = grow(place + b"/tree", ["busy/a", "other/a"])
    options = ["-j1", "-q", "-r", "--json=-", "--exclude=file"]
    done = run([sys.executable, "-c", LATE.format(times=1), *options, tree])
    assert (done.returncode, done.stderr) == (0, b"")
    counts = json.loads(done.stdout)["counts"]
    assert counts["found"] == counts["files"] + counts["directories"] + counts["kept"]
    assert (counts["kept"], counts["left_out"]) == (4, 1)
    assert paths(tree) == [b"busy", b"busy/d0", b"busy/d0/inner", b"busy/d0/inner/file"]


def test_a_directory_with_constant_additions_is_named(run: Run, place: bytes) -> None:
    tree = grow(place + b"/tree", ["busy/file", "other/file"])
    done = run([sys.executable, "-c", LATE.format(times=9), "-j1", "-q", "-r", tree])
    assert done.returncode == 1
    said = (
        f"frm: cannot remove directory '{tree.decode()}/busy': another process is creating entries "
        "here\n"
    )
    assert done.stderr.decode().startswith(said)
    assert paths(tree)[0] == b"busy"


@pytest.fixture
def failing(fuse: Mount) -> Callable[..., bytes]:
    """Create a tree on a file system of which some requests fail."""

    def make(*rules: Rule) -> bytes:
        mounted = fuse()
        names = [f"d{number}/{name}" for number in range(8) for name in ("f1", "f2", "in/f3")]
        grow(mounted.backing, [f"tree/{name}" for name in names])
        mounted.rules(*rules)
        return mounted.path + b"/tree"

    return make


def _behind(tree: bytes) -> bytes:
    """Return the same tree, without the faults."""
    return tree.replace(b"/fuse ", b"/backing ")


def test_failures_are_named_and_others_removed(failing: Callable[..., bytes]) -> None:
    tree = failing(
        Rule(("unlink",), "tree/d1/f2", errno="EIO"),
        Rule(("rmdir",), "tree/d2/in", errno="EIO"),
        Rule(("opendir",), "tree/d3/in", errno="EIO"),
        Rule(("readdir", "readdirplus"), "tree/d4", errno="EIO"),
    )
    report = removed(TWO, "-r", tree, code=1)
    remaining = "d1 d1/f2 d2 d2/in d3 d3/in d3/in/f3 d4 d4/f1 d4/f2 d4/in d4/in/f3"
    assert paths(_behind(tree)) == os.fsencode(remaining).split()
    failures = {
        failure["path"].partition("/tree/")[2]: failure["error"] for failure in report["failures"]
    }
    assert failures == dict.fromkeys(("d1/f2", "d2/in", "d3/in", "d4"), "EIO")
    assert report["counts"]["kept"] == 4


def test_vanished_entries_are_not_failures(failing: Callable[..., bytes]) -> None:
    """Another process removes the same tree: vanished entries are only counted."""
    tree = failing(
        Rule(("unlink",), "tree/d1/f2", errno="ENOENT"),
        Rule(("rmdir",), "tree/d2/in", errno="ENOENT"),
        Rule(("opendir",), "tree/d3/in", errno="ENOENT"),
    )
    counts = removed(ONE, "-r", tree, code=1)["counts"]
    # The entries that were reported as vanished still exist, so their directories stay.
    assert counts["vanished"] >= 3


def test_a_directory_that_turns_into_a_link_is_not_followed(run: Run, place: bytes) -> None:
    """It happens between listing and open: the directory is named, and the target stays."""
    grow(place, ["tree/d/file", "outside/file"])
    program = """
import os, sys
from pcircle.fs import openat2 as beneath
opener = beneath.opener
def swapping(**options):
    real = opener(**options)
    def opened(name, fd):
        if name == b"d":
            os.rename(b"d", b"moved", src_dir_fd=fd, dst_dir_fd=fd)
            os.symlink(b"../outside", b"d", dir_fd=fd)
        return real(name, fd)
    return opened
beneath.opener = swapping
from pcircle.tools.frm.cli import main
sys.exit(main())
"""
    done = run([sys.executable, "-c", program, "-j1", "-q", "-r", place + b"/tree"])
    assert done.returncode == 1
    assert b"/tree/d': Not a directory" in done.stderr
    assert paths(place + b"/outside") == [b"file"]


def test_failures_are_logged(place: bytes, failing: Callable[..., bytes], tmp_path: Path) -> None:
    tree = failing(Rule(("unlink",), "tree/d1/f2", errno="EIO"))
    log = tmp_path / "log"
    assert run_frm(TWO, "-q", "-r", "--error-log", str(log), tree).code == 1
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["error"], line["doing"], line["entry"]) == ("EIO", "remove", "d1/f2")
