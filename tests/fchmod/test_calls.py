"""How many calls a change takes, none where nothing changes, and what kernels before 6.6 need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.fcp.running import ONE, TWO
from tests.frm.running import grow

from .running import build, changed, differences, run_tool, snapshot

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
NAMES = "f?chmod|fchmodat2?|f?chown|lchown|fchownat|f?setxattr|lsetxattr|syscall_0x1c4"
# But for the one that asks whether the kernel has the call, of no file.
CHANGING = re.compile(rf"^\d+ +({NAMES})\((?!0x\w+9c)", re.MULTILINE)
LOOKING = re.compile(r"^\d+ +((?:new)?fstatat\w*|stat|lstat|statx)\(.*(?:file|four)", re.MULTILINE)
# As on a kernel without fchmodat2.
OLD = """
import sys
from pcircle.fchmod.entries import calls
calls.FCHMODAT2 = 1 << 20
from pcircle.fchmod.cli import main
sys.exit(main())
"""


def traced(run: Run, log: Path, *arguments: str | bytes) -> tuple[Counter[str], int]:
    """Calls of a run that change something, and look-ups of the tree's files."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    tool = [sys.executable, "-m", "pcircle.fchmod", "-q", "-j1", "-R"]
    done = run(["strace", "-f", "-o", log, "-e", "signal=none", *tool, *arguments])
    assert done.returncode == 0, done.stderr
    text = log.read_text(errors="replace")
    return Counter(CHANGING.findall(text)), len(LOOKING.findall(text))


def test_nothing_is_called_where_nothing_changes(run: Run, place: bytes, tmp_path: Path) -> None:
    """And one call for each entry where something does; each is looked up once or twice."""
    log = tmp_path / "calls"
    top = grow(
        place + b"/tree", [f"{number}/file{each}" for number in range(50) for each in "abcd"]
    )
    entries = 50 * 5 + 1
    for arguments, calls in (
        (["u=rw,go=,u+X"], 1),
        (["--mode", "a+r", "--owner", "5"], 2),
        (["--owner", "6", "--group", "7"], 1),
        (["--acl", "u:1001:rX"], 1),
        (["--acl", "u:1001:rwX,d:u:1001:r", "--mode", "o+t"], 2),
    ):
        counts, looks = traced(run, log, *arguments, top)
        assert entries <= counts.total() <= entries * calls + 51, (arguments, counts)
        assert 200 <= looks <= 400
        counts, looks = traced(run, log, *arguments, top)
        assert counts.total() == 0, (arguments, counts)
        assert 200 <= looks <= 400
    counts, _ = traced(run, log, "--force", "--owner", "6", top)
    assert counts.total() == entries


@pytest.mark.parametrize("large", [False, True])
def test_what_has_other_names_is_looked_up_once_more(
    run: Run, place: bytes, tmp_path: Path, large: bool
) -> None:
    """And not what is done together with it, in the same directory or in others."""
    holders, count = (1, 1000) if large else (100, 10)
    paths = [f"{number}/file{name}" for number in range(holders) for name in range(count)]
    top = grow(place + b"/tree", paths)
    linked = paths[:: 100 if large else 5 * count]
    for each in linked:
        path = os.path.join(top, os.fsencode(each))
        os.link(path, path + b" linked")
    names = len(paths) + len(linked)
    for _ in range(2):  # the second one changes nothing
        _, looks = traced(run, tmp_path / "calls", "--threads=1", "o-r", top)
        assert names <= looks <= names + names // 5  # of which some are of modules


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
def test_times_stay(place: bytes, arguments: list[str]) -> None:
    top = grow(place + b"/tree", ["d/e", "f"])
    for directory, directories, files in os.walk(top):
        for name in (*directories, *files):
            os.utime(os.path.join(directory, name), ns=(10**18, 10**18))
    before = {path: entry.mtime_ns for path, entry in snapshot(top).items()}
    changed("fchmod", TWO, "-R", *arguments, top)
    assert {path: entry.mtime_ns for path, entry in snapshot(top).items()} == before


def test_where_others_may_exchange_names_each_file_is_opened(
    run: Run, place: bytes, tmp_path: Path
) -> None:
    """What was looked up is what is changed then, whatever has its name."""
    top = grow(place + b"/tree", ["four"])
    log = tmp_path / "calls"
    everybodys, mine, theirs = (0o777, 0, True), (0o755, 0, False), (0o755, 65534, True)
    for bits, owner, opened in (everybodys, mine, theirs, (0o1777, 0, True), (0o775, 0, True)):
        os.chmod(top, bits)
        os.chown(top, owner, 0)
        traced(run, log, "--files", "o=r", top)
        text = log.read_text(errors="replace")
        is_opened = re.search(r'openat\(\d+, "four", O_RDONLY\|.*O_PATH', text) is not None
        assert is_opened == opened, (oct(bits), owner)
        os.chmod(top + b"/four", 0o600)


@pytest.mark.parametrize("width", [4000, 40])
def test_where_others_may_exchange_names_a_change_takes_four_calls(
    run: Run, place: bytes, tmp_path: Path, width: int
) -> None:
    """And one where nothing changes; whose a file is costs none."""
    top = grow(place + b"/tree", [f"{number // width}/{number}" for number in range(4000)])
    for directory, _, files in os.walk(top):
        for name in (b".", *files):
            os.chown(os.path.join(directory, name), 65534, 65534)
    log = tmp_path / "calls"
    for changes in (True, False):
        counts, _ = traced(run, log, "--threads=1", "--files", "go+w", top)
        text = log.read_text(errors="replace")
        opened = len(re.findall(r'openat\(\d+, "\d+", \w+\|.*O_PATH', text))
        looked = len(re.findall(r"st_mode=S_IFREG\|\d+, st_size=100,", text))
        assert counts.total() == (4000 if changes else 0)
        if changes:
            assert opened == looked == 4000  # each is opened, looked at, changed and closed
        else:
            assert opened < 100  # before it is noticed that nothing changes
            assert 4000 <= looked < 4100


def test_a_link_that_comes_in_between_is_not_followed(run: Run, place: bytes) -> None:
    """Between the look-up and the change."""
    grow(place, ["tree/file", "outside"])
    before = snapshot(place)
    hook = f"""
import os, sys
from pcircle.fchmod.entries import quick
change = quick.Quick.change
def late(self, fd, names, odd):
    os.rename({place + b"/tree/file"!r}, {place + b"/tree/was"!r})
    os.symlink("../outside", {place + b"/tree/file"!r})
    return change(self, fd, names, odd)
quick.Quick.change = late
from pcircle.fchmod.cli import main
sys.exit(main())
"""
    done = run([sys.executable, "-c", hook, "-q", "-j1", "-R", "--files", "0777", place + b"/tree"])
    assert done.returncode == 0, done.stderr  # it is looked up again, and links have no mode
    assert snapshot(place)[b"outside"] == before[b"outside"]
    assert run_tool("fchmod", ONE, "-R", "--files", "0700", place + b"/tree").code == 0
    assert snapshot(place)[b"outside"] == before[b"outside"]


def test_the_owner_of_a_directory_gets_no_mode_onto_files_of_root(run: Run, place: bytes) -> None:
    """Files are exchanged after they were looked up, also in directories that are done at once."""
    top = grow(place + b"/tree", ["evil", "good", "small/evil", "small/good", "small/else"])
    trees = [top, top + b"/small"]
    for tree in trees:
        os.chown(tree, 65534, 65534)
        os.chown(tree + b"/evil", 65534, 65534)
        os.chmod(tree + b"/evil", 0o4755)
        os.chmod(tree + b"/good", 0o700)
    hook = """
import os, sys
from pcircle.fchmod import changing, visitor
from pcircle.fchmod.entries import quick
def exchange(fd):
    for pair in (("evil", "was"), ("good", "evil"), ("was", "good")):
        os.rename(*pair, src_dir_fd=fd, dst_dir_fd=fd)
change, held = quick.Quick.change, quick.Quick.change_held
one, opened, done = visitor.Changer._one, os.open, set()
def exchanged(self, fd, names):
    if WHEN == "looked up":
        exchange(fd)
        return held(self, fd, names)
    os.open = opening
    try:
        return held(self, fd, names)
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
quick.Quick.change, quick.Quick.change_held, visitor.Changer._one = late, exchanged, later
from pcircle.fchmod.cli import main
sys.exit(main())
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
                # One that is never found under its name can't be changed.
                kept = (0o700, 0o4755) if when == "opened" else ()
                assert status.st_mode & 0o7777 in (0o720, 0o4775, 0o775, *kept), options
