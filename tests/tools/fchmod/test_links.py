"""With -L all links are followed as by chown -RL, even out of the tree, but not in circles."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess

import pytest

from tests.tools.fcp.running import ONE, Launcher
from tests.tools.frm.running import grow

from .running import changed, every_launcher, run_tool

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def _plant(top: bytes) -> None:
    """Create links to files and directories, inside and outside, chained, broken and circular."""
    grow(top, ["tree/a", "tree/d/b", "tree/d/e/c", "out/x", "out/y/z", "far/file", "unseen"])
    os.link(top + b"/tree/a", top + b"/tree/d/hard")
    for name, to in (
        (b"tree/to_file", b"../far/file"),
        (b"tree/to_directory", b"../out"),
        (b"tree/d/over_two", b"../to_file"),
        (b"tree/d/e/to_hard", b"../hard"),
    ):
        os.symlink(to, top + b"/" + name)


def _seen(top: bytes) -> dict[bytes, tuple[int, int]]:
    """Return the modes and owners of all entries."""
    found = {}
    for holder, directories, files in os.walk(top):
        for name in (b".", *directories, *files):
            path = os.path.normpath(os.path.join(holder, name))
            status = os.lstat(path)
            found[os.path.relpath(path, top)] = status.st_mode, status.st_uid
    return found


@root_only
@every_launcher
def test_owners_are_those_of_chown(place: bytes, launcher: Launcher) -> None:
    _plant(place + b"/ours")
    shutil.copytree(os.fsdecode(place) + "/ours", os.fsdecode(place) + "/theirs", symlinks=True)
    counts = changed("fchown", launcher, "-R", "-L", "1234:0", place + b"/ours/tree")
    assert not counts["failed"]
    subprocess.run(["chown", "-RL", "1234:0", place + b"/theirs/tree"], check=True)
    seen = _seen(place + b"/ours")
    assert seen == _seen(place + b"/theirs")
    assert seen[b"far/file"][1] == seen[b"out/y/z"][1] == 1234
    assert seen[b"unseen"][1] == seen[b"tree/to_file"][1] == 0


@every_launcher
def test_modes_of_link_targets(place: bytes, launcher: Launcher) -> None:
    """The result equals chmod for each entry of find -L; without -L nothing outside changes."""
    _plant(place + b"/ours")
    shutil.copytree(os.fsdecode(place) + "/ours", os.fsdecode(place) + "/theirs", symlinks=True)
    changed("fchmod", launcher, "-R", "g=u,o-r", place + b"/ours/tree")
    before = _seen(place + b"/ours")
    assert before[b"far/file"] != before[b"tree/a"]
    counts = changed("fchmod", launcher, "-R", "-L", "g=u,o-r", place + b"/ours/tree")
    find = ["find", "-L", "theirs/tree", "-exec", "chmod", "g=u,o-r", "{}", "+"]
    subprocess.run(find, check=True, cwd=place)
    assert _seen(place + b"/ours") == _seen(place + b"/theirs")
    assert counts["changed"] == 5  # in `far` and `out`
    assert counts["links"] == 0


def test_circles_and_broken_links_are_named(place: bytes) -> None:
    """Each is a failure, as with chown -RL and find -L, and the remaining entries are changed."""
    grow(place, ["tree/a", "tree/d/b"])
    os.symlink("..", place + b"/tree/d/up")
    os.symlink("nowhere", place + b"/tree/broken")
    done = run_tool("fchmod", ONE, "-R", "-L", "751", place + b"/tree")
    assert done.code == 1
    assert "/tree/d/up': it leads back to a directory above it" in done.said
    assert "/tree/broken': No such file or directory" in done.said
    modes = {
        os.stat(place + b"/tree/" + name).st_mode & 0o777 for name in (b"", b"a", b"d", b"d/b")
    }
    assert modes == {0o751}
    theirs = subprocess.run(
        ["chown", "-RL", str(os.getuid()), place + b"/tree"], capture_output=True, check=False
    )
    assert theirs.returncode == 1


@root_only
def test_links_to_devices_are_skipped(place: bytes) -> None:
    """A device itself is changed, as by chown."""
    grow(place, ["tree/a"])
    os.mknod(place + b"/outside", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(place + b"/tree/inside", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.symlink("../outside", place + b"/tree/link")
    os.symlink("/proc/self/status", place + b"/tree/kernel")
    done = run_tool("fchmod", ONE, "-R", "-L", "--owner", "77", "--mode", "640", place + b"/tree")
    assert done.code == 1
    assert "/tree/link': the link leads to a device" in done.said
    assert "/tree/kernel': " in done.said
    assert os.lstat(place + b"/outside").st_uid == 0
    assert {os.lstat(place + b"/tree/" + name).st_uid for name in (b"a", b"inside")} == {77}


@pytest.mark.parametrize("more", ["-H", "-P", "-h", "--undo=x", "--apply=x", "--files-from=x"])
def test_options_that_exclude_it(place: bytes, more: str) -> None:
    words = ["-R", "-L", more] + ["755", "tree"] * (not more.startswith("--apply"))
    done = run_tool("fchmod", ONE, *words, cwd=grow(place, ["tree/a"]))
    assert (done.code, done.said.startswith("fchmod: -L cannot be combined with ")) == (2, True)
