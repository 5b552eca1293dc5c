"""`--link-dest` and `--compare-dest`: unchanged entries of another tree are linked, or omitted."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.conftest import SOAK
from tests.programs import required
from tests.strace import read_calls
from tests.tools.fcp.running import TWO, Launcher
from tests.tools.fcp.trees import write_file

from .edits import Tree, copy_of
from .running import (
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
)
from .test_judge import state
from .test_moments import contents_of, hooked_run, night

pytestmark = [as_root, needs_rsync]


def inodes(top: bytes) -> dict[bytes, int]:
    """Return the inode of each non-directory by its path below `top`."""
    found = {}
    for here, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = os.path.join(here, name)
            if os.path.islink(path) or not os.path.isdir(path):
                found[os.path.relpath(path, top)] = os.lstat(path).st_ino
    return found


def by_rsync(option: bytes, source: bytes, target: bytes, other: bytes) -> dict[bytes, int]:
    line: list[str | bytes] = ["rsync", "-aHAX", "--modify-window=-1"]
    words = [option + b"=" + other, source + b"/", target + b"/"]
    subprocess.run([*line, *words], check=True)
    return inodes(target)


@every_launcher
def test_unchanged_entries_are_those_of_the_other_tree(place: bytes, launcher: Launcher) -> None:
    """The result equals rsync's, except for hard-linked files, which are copied."""
    source, other = place + b"/a", place + b"/yesterday"
    for number in range(4):
        tree = Tree(source + b"/%d" % number, 30 + number)
    for number in range(50):
        os.utime(write_file(source + b"/file %d" % number, b"%d" % number), (10**9, 10**9))
    copy_of(source, other)
    for _ in range(20):
        tree.edit()
    os.chmod(source + b"/file 1", 0o600)
    os.utime(source + b"/file 2", (1, 1))
    write_file(source + b"/new", b"")
    before = inodes(other)
    expected = by_rsync(b"--link-dest", source, place + b"/judge", other)
    mirrored(launcher, "--link-dest", other, source, place + b"/b")
    assert differences(source, place + b"/b") == ""
    found = inodes(place + b"/b")
    several = {name for name in found if os.lstat(source + b"/" + name).st_nlink > 1}
    is_old = {name for name in found if found[name] == before.get(name)} - several
    assert is_old == {name for name in expected if expected[name] == before.get(name)} - several
    assert len(is_old) > 48
    assert inodes(other) == before
    assert not is_old & {b"file 1", b"file 2", b"new"}
    expected = by_rsync(b"--compare-dest", source, place + b"/sparse judge", other)
    mirrored(launcher, "--compare-dest", other, source, place + b"/sparse")
    assert inodes(place + b"/sparse").keys() | several == expected.keys() | several


def test_the_first_of_several_trees_that_has_it(place: bytes, tmp_path: Path) -> None:
    source, first, second = (place + entry for entry in (b"/a", b"/one", b"/two"))
    for side in (source, first, second):
        for name in (b"x", b"y", b"z"):
            os.makedirs(side + b"/d", exist_ok=True)
            path = write_file(side + b"/d/" + name, b"content")
            os.utime(path, (10**9, 10**9))
    os.chmod(first + b"/d/y", 0o600)
    os.chmod(first + b"/d/z", 0o600)
    os.chmod(second + b"/d/z", 0o600)
    words: list[str | bytes] = ["--link-dest", first, "--link-dest", second]
    dry, real = tmp_path / "dry", tmp_path / "real"
    finished = mirrored(TWO, "--dry-run", "-i", "--json", str(dry), *words, source, place + b"/b")
    assert [line[12:] for line in sorted(finished.out.splitlines())] == [b"d/z", b"./", b"d/"]
    mirrored(TWO, "--json", str(real), *words, source, place + b"/b")
    for written in (dry, real):
        report = json.loads(written.read_bytes())
        assert [report[name] for name in ("files", "skipped", "linked")] == [1, 2, 2]
    found = inodes(place + b"/b")
    assert found[b"d/x"] == inodes(first)[b"d/x"]
    assert found[b"d/y"] == inodes(second)[b"d/y"]
    assert found[b"d/z"] not in (*inodes(first).values(), *inodes(second).values())
    before = os.stat(first + b"/d/x")
    os.chmod(source + b"/d/x", 0o600)  # the other tree keeps its mode
    mirrored(TWO, *words, source, place + b"/b")
    assert os.stat(first + b"/d/x").st_mode == before.st_mode
    assert differences(source, place + b"/b") == ""


def test_links_are_never_followed(place: bytes) -> None:
    source, other, outside = (place + entry for entry in (b"/a", b"/other", b"/outside"))
    for side in (source + b"/d", outside):
        os.makedirs(side)
        os.utime(write_file(side + b"/file", b"content"), (10**9, 10**9))
    os.mkdir(other)
    os.symlink(outside, other + b"/d")
    mirrored(TWO, "--link-dest", other, source, place + b"/b")
    assert inodes(place + b"/b") != inodes(outside)
    assert os.stat(outside + b"/file").st_nlink == 1


def test_invalid_options_are_refused(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source)
    os.makedirs(target + b"/inner")
    cases: list[tuple[list[str | bytes], str]] = [
        (["--link-dest", place + b"/missing"], "is not a directory"),
        (["--link-dest", target + b"/inner"], "is inside"),
        (["--compare-dest", source], "is inside"),
        (["--link-dest", b"/proc"], "not on the file system of"),
        (["--link-dest", place, "--signature"], "cannot be combined"),
        (["--copy-dest", source], "is inside"),
        (["--copy-dest", place, "--verify"], "cannot be combined with --verify"),
        (["--reflink-dest", place, "--signature"], "cannot be combined with --signature"),
        (["--reflink-dest", place, "--reflink=never"], "cannot be combined with --reflink=never"),
        (["--reflink-dest", b"/proc"], "not on the file system of"),
        (["--reflink-dest", place], "cannot share blocks (Operation not supported)"),
    ]
    for words, text in cases:
        finished = run_fmirror(TWO, *words, source, target)
        assert finished.code == 2, words
        assert text in finished.said


def nearby(tmp_path: Path, launcher: Launcher | None, *words: str | bytes) -> dict[str, int]:
    """Run a dry run and a run; return the counts, which must agree."""
    found = []
    for more in (["--dry-run"], []):
        path = tmp_path / "report"
        mirrored(launcher, "--json", str(path), *more, *words)
        report = json.loads(path.read_bytes())
        found.append({name: report[name] for name in ("files", "nearby", "skipped", "bytes")})
    assert found[0] == found[1]
    return found[1]


def bytes_read(log: Path, top: bytes) -> int:
    """Return the number of bytes that the calls in a log have read from files below `top`."""
    found = 0
    for call in read_calls(log):
        match = re.match(r"\w+\(\d+<([^>]*)>", call.text)
        if match and match[1].startswith(os.fsdecode(top) + "/") and call.result.isdigit():
            found += int(call.result)
    return found


@every_launcher
@pytest.mark.parametrize("more", [[], ["-c"], ["--size-only"]], ids=" ".join)
def test_content_is_copied_from_another_tree(
    place: bytes, tmp_path: Path, launcher: Launcher, more: list[str]
) -> None:
    """All other attributes of the copy are those of the source."""
    source, other, target = (place + entry for entry in (b"/a", b"/yesterday", b"/b"))
    for number in range(3):
        tree = Tree(source + b"/%d" % number, 60 + number)
    size = (5 << 20) + 7
    for name in (b"large", b"holes", b"mode", b"owner", b"list", b"twice"):
        path = write_file(source + b"/" + name, name * (size if name == b"large" else 9000))
        os.utime(path, (10**9, 10**9))
    os.truncate(source + b"/holes", size)
    os.utime(source + b"/holes", (10**9, 10**9))
    os.link(source + b"/twice", source + b"/0/twice again")
    copy_of(source, other)
    os.chmod(source + b"/mode", 0o600)
    os.chown(source + b"/owner", 2, 3)
    os.setxattr(source + b"/list", "user.own", b"1")
    for _ in range(10):
        tree.edit()
    os.utime(write_file(source + b"/new", b"new"), (10**9, 10**9))
    before = state(other)
    counted = nearby(tmp_path, launcher, "--copy-dest", other, *more, source, target)
    assert differences(source, target) == ""
    assert state(other) == before
    assert 4 < counted["nearby"] < counted["files"]
    counted = nearby(tmp_path, launcher, "--copy-dest", other, *more, source, target)
    assert (counted["files"], counted["nearby"]) == (0, 0)


@needs_strace
def test_local_content_is_not_read_from_the_source(place: bytes, tmp_path: Path) -> None:
    """This includes a large file; only its own data counts, not the name in the other tree."""
    source, other, target = (place + entry for entry in (b"/a", b"/other", b"/b"))
    os.mkdir(source)
    for name, size in ((b"small", 100), (b"large", 6 << 20), (b"changed", 100)):
        os.utime(write_file(source + b"/" + name, b"x" * size), (10**9, 10**9))
    copy_of(source, other)
    os.utime(other + b"/changed", (1, 1))
    log = tmp_path / "calls"
    calls = "read,readv,pread64,preadv,copy_file_range,sendfile"
    prefix = ["strace", "-f", "-y", "-o", str(log), "-e", f"trace={calls}"]
    words = ("-q", "-j1", "--chunksize=1M", "--reflink=never", "--copy-dest", other)
    assert run_fmirror(None, *words, source, target, prefix=prefix).code == 0
    assert differences(source, target) == ""
    assert bytes_read(log, source) == 100


@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_blocks_are_shared(mount: Callable[..., bytes], tmp_path: Path, kind: str) -> None:
    """Files share existing blocks: only changed data is written."""
    disk = mount(kind, 1 << 30)
    source, other, target = (disk + entry for entry in (b"/a", b"/yesterday", b"/b"))
    os.makedirs(source + b"/d")
    for number in range(8):
        path = write_file(source + b"/d/%d" % number, os.urandom((8 << 20) + 11))
        os.utime(path, (10**9, 10**9))
    subprocess.run(["cp", "-a", "--reflink=never", source, other], check=True)
    os.utime(source + b"/d/7", (10**9, 10**9 + 1))
    os.chmod(source + b"/d/6", 0o640)
    before = used(disk)
    counted = nearby(tmp_path, TWO, "--reflink-dest", other, "--reflink=auto", source, target)
    assert (counted["files"], counted["nearby"]) == (8, 7)
    assert differences(source, target) == ""
    assert used(disk) - before < 4 << 20  # 7 is cloned from the source
    for number in range(7):
        shared = extents(target + b"/d/%d" % number)
        assert shared == extents(other + b"/d/%d" % number)
        assert shared != extents(source + b"/d/%d" % number)


def used(disk: bytes) -> int:
    subprocess.run(["sync", "-f", disk], check=True)
    status = os.statvfs(disk)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def extents(path: bytes) -> list[bytes]:
    """Return the location of a file's blocks."""
    line: list[str | bytes] = [required("filefrag"), "-v", path]
    found = subprocess.run(line, check=True, capture_output=True).stdout
    return re.findall(rb"^ *\d+: +\d+\.\. +\d+: +(\d+)\.\.", found, re.MULTILINE)


@needs_strace
def test_unreadable_entries_of_the_other_tree_are_copied(place: bytes) -> None:
    source, other = place + b"/a", place + b"/other"
    os.mkdir(source)
    for number in range(4):
        path = write_file(source + b"/%d" % number, os.urandom(200_000 << 2 * number))
        os.utime(path, (10**9, 10**9))
    copy_of(source, other)
    for number in range(4):
        name = os.fsdecode(other + b"/%d" % number)
        calls = "inject=copy_file_range,preadv,pread64,readv,sendfile,ioctl:error=EIO"
        prefix = ["strace", "-f", "-P", name, "-o", "/dev/null", "-e", calls]
        target = place + b"/b%d" % number
        words = ("-q", "-j1", "--copy-dest", other, source, target)
        assert run_fmirror(None, *words, prefix=prefix).code == 0
        assert differences(source, target) == ""


def test_content_without_shareable_blocks_is_copied(mount: Callable[..., bytes]) -> None:
    """On btrfs, files without checksums of their blocks can't share blocks with other files."""
    disk = mount("btrfs", 1 << 28)
    source, other, target = (disk + entry for entry in (b"/a", b"/other", b"/b"))
    os.mkdir(source)
    os.mkdir(other)
    subprocess.run([required("chattr"), "+C", other], check=True)
    for number in range(4):
        path = write_file(source + b"/%d" % number, os.urandom(200_000 << number))
        os.utime(path, (10**9, 10**9))
    subprocess.run(["cp", "-a", "--reflink=never", source + b"/.", other], check=True)
    finished = run_fmirror(TWO, "--json", "-", "--reflink-dest", other, source, target)
    assert finished.code == 0, finished.said
    assert differences(source, target) == ""
    assert b'"nearby": 0,' in finished.out


@pytest.mark.parametrize("error", [0, 28], ids=["KILL", "ENOSPC"])
def test_any_change_with_content_of_another_tree(place: bytes, tmp_path: Path, error: int) -> None:
    """Each file is old or new at every moment, and the next run completes the mirror."""

    def pair() -> tuple[bytes, bytes]:
        source, target = night(place, 7)
        copy_of(source, place + b"/other")
        return source, target

    words, log = [os.fsdecode(b"--copy-dest=" + place + b"/other")], tmp_path / "changes"
    assert hooked_run(pair(), words, log) == 0
    every = range(1, log.stat().st_size + 1)
    assert len(every) > 40
    for moment in every if SOAK else sorted(Random(error).sample(every, 10)):
        source, target = sides = pair()
        old, new = contents_of(target), contents_of(source)
        assert hooked_run(sides, words, log, moment, error) in ((0, 1, 4) if error else (0, -9))
        now = contents_of(target)
        for name in old.keys() & new.keys():
            assert now.get(name) in (old[name], new[name]), (moment, name)
        assert hooked_run(sides, words, log, 10**9) == 0, moment
        left = differences(source, target, *["--exclude=.fcp-mark-*"] * bool(error))
        assert left == "", moment
