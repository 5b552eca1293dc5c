"""The number of calls for a change, none without changes, and the needs of kernels before 6.6."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import counts, strace
from tests.conftest import Run
from tests.tools.fcp.running import ONE, TWO
from tests.tools.frm.running import grow

from .running import build, changed, differences, run_tool, snapshot

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
NAMES = "f?chmod|fchmodat2?|f?chown|lchown|fchownat|f?setxattr|lsetxattr|syscall_0x1c4"
# Without the call that checks whether the kernel has it, which names no file.
CHANGING = re.compile(rf"({NAMES})\((?!0x\w+9c)")
LOOKING = re.compile(r"((?:new)?fstatat\w*|stat|lstat|statx)\(.*(?:file|four)")
# Simulates a kernel without fchmodat2.
OLD = """
import errno, struct, sys
from pcircle.fs import native
change_names = native.change_names
def without(fds, names, mode, *more):
    if mode < 0:
        return change_names(fds, names, mode, *more)
    return struct.pack("q", -1 - errno.ENOSYS) * len(names)
native.change_names = without
from pcircle.tools.fchmod.cli import main
sys.exit(main())
"""


def traced(log: Path, *arguments: str | bytes) -> list[strace.Call]:
    """Return the calls of a run with one thread."""
    tool = [sys.executable, "-m", "pcircle.tools.fchmod", "-q", "-j1", "--threads=1", "-R"]
    return strace.trace([*tool, *arguments], log)


def matching(pattern: re.Pattern[str], calls: list[strace.Call]) -> list[strace.Call]:
    """Return the calls whose text matches a pattern."""
    return [call for call in calls if pattern.match(call.text)]


@pytest.mark.counts
def test_nothing_is_called_without_changes(place: bytes, tmp_path: Path) -> None:
    """Changes need few calls per entry."""
    log = tmp_path / "calls"
    files = [f"{number}/file{letter}" for number in range(50) for letter in "abcd"]

    def count() -> dict[str, int]:
        top = grow(place + b"/tree", files)
        changes, looks, found = 0, 0, {}
        for arguments in (
            ["u=rw,go=,u+X"],
            ["--mode", "a+r", "--owner", "5"],
            ["--owner", "6", "--group", "7"],
            ["--acl", "u:1001:rX"],
            ["--acl", "u:1001:rwX,d:u:1001:r", "--mode", "o+t"],
        ):
            calls = traced(log, *arguments, top)
            changes, looks = len(matching(CHANGING, calls)), len(matching(LOOKING, calls))
            assert changes
            found[" ".join(["changes by", *arguments])] = changes
            found[" ".join(["look-ups by", *arguments])] = looks
            calls = traced(log, *arguments, top)
            assert matching(CHANGING, calls) == [], arguments
            found[" ".join(["look-ups by a second", *arguments])] = len(matching(LOOKING, calls))
        assert matching(CHANGING, traced(log, "--force", "--owner", "6", top))
        shutil.rmtree(top)
        return found

    counts.check("fchmod (50 directories of four files)", count)


@pytest.mark.counts
@pytest.mark.parametrize(("holders", "size"), [(1, 1000), (100, 10)])
def test_calls_where_some_files_have_other_names(
    place: bytes, tmp_path: Path, holders: int, size: int
) -> None:
    """Only these are looked up once more, not the entries that are processed with them."""
    paths = [f"{number}/file{name}" for number in range(holders) for name in range(size)]
    top = grow(place + b"/tree", paths)
    for linked in paths[:: 5 * size if holders > 1 else size // 10]:
        path = os.path.join(top, os.fsencode(linked))
        os.link(path, path + b" linked")

    def count() -> dict[str, int]:
        looks = []
        for change in ("o+r", "o-r", "o-r"):  # the last one changes nothing
            calls = traced(tmp_path / "calls", change, top)
            looks.append(len(matching(LOOKING, calls)))
        return {"look-ups": looks[1], "look-ups by a second run": looks[2]}

    counts.check(f"fchmod (some hard links among {holders} x {size} files)", count)


def test_without_the_call_of_new_kernels(run: Run, place: bytes) -> None:
    ours = build(place + b"/ours")
    theirs = place + b"/theirs"
    subprocess.run(["cp", "-a", ours, theirs], check=True)
    program: list[str | bytes] = [
        sys.executable,
        "-c",
        OLD,
        "-q",
        "-j1",
        "-R",
        "--",
        "u+s,go-w,o=u",
        ours,
    ]
    done = run(program)
    assert done.returncode == 0, done.stderr
    subprocess.run(["chmod", "-R", "--", "u+s,go-w,o=u", theirs], check=True)
    assert differences(ours, theirs) == []


@pytest.mark.parametrize("arguments", [["0"], ["--acl", "u:5:r"], ["--owner", "5"]])
def test_times_are_unchanged(place: bytes, arguments: list[str]) -> None:
    top = grow(place + b"/tree", ["d/e", "f"])
    for directory, directories, files in os.walk(top):
        for name in (*directories, *files):
            os.utime(os.path.join(directory, name), ns=(10**18, 10**18))
    before = {path: entry.mtime_ns for path, entry in snapshot(top).items()}
    changed("fchmod", TWO, "-R", *arguments, top)
    assert {path: entry.mtime_ns for path, entry in snapshot(top).items()} == before


def test_each_file_is_opened_where_others_may_exchange_names(place: bytes, tmp_path: Path) -> None:
    """The file that was looked up is changed, whatever entry has its name."""
    top = grow(place + b"/tree", ["four"])
    log = tmp_path / "calls"
    everybodys, mine, theirs = (0o777, 0, True), (0o755, 0, False), (0o755, 65534, True)
    for bits, owner, opened in (everybodys, mine, theirs, (0o1777, 0, True), (0o775, 0, True)):
        os.chmod(top, bits)
        os.chown(top, owner, 0)
        calls = traced(log, "--files", "o=r", top)
        is_opened = matching(re.compile(r'openat\(\d+, "four", O_RDONLY\|.*O_PATH'), calls)
        assert bool(is_opened) == opened, (oct(bits), owner)
        os.chmod(top + b"/four", 0o600)


@pytest.mark.counts
@pytest.mark.parametrize("width", [1000, 40])
def test_calls_where_others_may_exchange_names(place: bytes, tmp_path: Path, width: int) -> None:
    """A file is opened, checked, changed and closed, and only checked if nothing changes."""
    top = grow(place + b"/tree", [f"{number // width}/{number}" for number in range(1000)])
    for directory, _, files in os.walk(top):
        for name in (b".", *files):
            os.chown(os.path.join(directory, name), 65534, 65534)

    def count() -> dict[str, int]:
        found = {}
        for name, change in ("changed", "go+w"), ("unchanged", "go+w"), ("changed back", "go-w"):
            calls = traced(tmp_path / "calls", "--files", change, top)
            assert bool(matching(CHANGING, calls)) == (name != "unchanged")
            found[f"calls on files that are {name}"] = counts.total(counts.by_name(calls))
        return found

    counts.check(f"fchmod (1000 files of another user, {width} in a directory)", count)


def test_a_link_created_in_between_is_not_followed(run: Run, place: bytes) -> None:
    """The link is created between the look-up and the change."""
    grow(place, ["tree/file", "outside"])
    before = snapshot(place)
    hook = f"""
import os, sys
from pcircle.tools.fchmod import state
change = state.BulkChanger.change
def late(self, fd, names, odd):
    os.rename({place + b"/tree/file"!r}, {place + b"/tree/was"!r})
    os.symlink("../outside", {place + b"/tree/file"!r})
    return change(self, fd, names, odd)
state.BulkChanger.change = late
from pcircle.tools.fchmod.cli import main
sys.exit(main())
"""
    done = run([sys.executable, "-c", hook, "-q", "-j1", "-R", "--files", "0777", place + b"/tree"])
    assert done.returncode == 0, done.stderr  # it is looked up again, and links have no mode
    assert snapshot(place)[b"outside"] == before[b"outside"]
    assert run_tool("fchmod", ONE, "-R", "--files", "0700", place + b"/tree").code == 0
    assert snapshot(place)[b"outside"] == before[b"outside"]


def test_the_owner_of_a_directory_cannot_change_files_of_root(run: Run, place: bytes) -> None:
    """Files are exchanged after the look-up, also in directories that are processed at once."""
    top = grow(place + b"/tree", ["evil", "good", "small/evil", "small/good", "small/else"])
    trees = [top, top + b"/small"]
    for tree in trees:
        os.chown(tree, 65534, 65534)
        os.chown(tree + b"/evil", 65534, 65534)
        os.chmod(tree + b"/evil", 0o4755)
        os.chmod(tree + b"/good", 0o700)
    hook = """
import os, sys
from pcircle.tools.fchmod import cli, state, visitor
def exchange(fd):
    for pair in (("evil", "was"), ("good", "evil"), ("was", "good")):
        os.rename(*pair, src_dir_fd=fd, dst_dir_fd=fd)
change, held = state.BulkChanger.change, state.BulkChanger.change_held
one, opened, done = visitor.ModeVisitor._one, os.open, set()
def exchanged(self, fd, names, *modes):
    if WHEN == "looked up":
        exchange(fd)
        return held(self, fd, names, *modes)
    os.open = opening
    try:
        return held(self, fd, names, *modes)
    finally:
        os.open = opened
def opening(name, flags, dir_fd):
    fd = opened(name, flags, dir_fd=dir_fd)
    if name in (b"evil", b"good"):
        exchange(dir_fd)
    return fd
def late(self, fd, names, odd):
    exchange(fd)
    return change(self, fd, names, odd)
def later(self, where, name, path, mark, status, fd, *more):
    if name in (b"evil", b"good") and where.path not in done:
        done.add(where.path)
        exchange(fd)
    return one(self, where, name, path, mark, status, fd, *more)
state.BulkChanger.change, state.BulkChanger.change_held = late, exchanged
visitor.ModeVisitor._one = later
sys.exit(cli.main())
"""
    files, all_of_it = ["--files", "g+w"], ["--mode", "g+w", "--owner", "0", "--no-setid"]
    for options, when in ((files, "looked up"), (files, "opened"), (all_of_it, "looked up")):
        for tree in trees:
            for name in (b"/evil", b"/good"):
                if options is files:
                    os.chmod(tree + name, os.stat(tree + name).st_mode & 0o7757)
        spoiled = f"WHEN = {when!r}\n{hook}"
        done = run([sys.executable, "-c", spoiled, "-q", "-j1", "-R", *options, top])
        assert done.returncode == 0, done.stderr
        for tree in trees:
            for name in (b"/evil", b"/good"):
                status = os.stat(tree + name)
                assert not (status.st_uid == 0 and status.st_mode & 0o4000), options
                # A file that is never found under its name can't be changed.
                allowed = (0o700, 0o4755) if when == "opened" else ()
                assert status.st_mode & 0o7777 in (0o720, 0o4775, 0o775, *allowed), options
