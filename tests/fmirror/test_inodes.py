"""``--changed`` on XFS: the status of files that have not changed, of many with one call."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from pcircle.comparing import inodes
from pcircle.comparing.inodes import Bulk
from pcircle.fs.stats import Stats
from tests.conftest import SOAK
from tests.fcp.running import ONE, TWO, Finished, without_rights
from tests.fcp.trees import write_file

from .running import (
    as_root,
    differences,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
)

pytestmark = [
    as_root,
    needs_rsync,
    pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="there is no mkfs.xfs"),
]
_MIB = 1 << 20
_QUIET_S = 2.2  # local change times, and room for them to be cut
_DIRECTORIES, _FILES = 16, 60
_COLUMNS = ("mode", "uid", "gid", "size", "atime", "mtime", "atime_ns", "mtime_ns", "ctime_ns")
_BASE_NS = 1_700_000_000_123_456_789


@pytest.fixture
def disk(mount: Callable[..., bytes]) -> bytes:
    """A file system that tells; skipped where none can be mounted, or by a kernel without it."""
    mounted = mount("xfs", 320 * _MIB)
    if not inodes.tells(mounted):
        pytest.skip("this kernel has no XFS_IOC_BULKSTAT")
    return mounted


def filled(top: bytes) -> bytes:
    for directory in range(_DIRECTORIES):
        os.makedirs(top + b"/%d" % directory)
        for number in range(_FILES):
            path = write_file(top + b"/%d/%d" % (directory, number), b"x" * (number % 5))
            os.chmod(path, 0o600 + number % 3)
            os.chown(path, number % 2, number % 4)
            os.utime(path, ns=(_BASE_NS, _BASE_NS + number))
    return top


def settled(source: bytes, target: bytes) -> None:
    """As after two nights on which nothing has changed."""
    mirrored(TWO, "--delete", source, target)
    time.sleep(_QUIET_S)
    mirrored(TWO, "--delete", source, target)
    time.sleep(_QUIET_S)


def asked(source: bytes, target: bytes, log: Path, *options: str) -> tuple[Finished, int]:
    """Run it; how often the file system was asked in bulk."""
    line = ["strace", "-f", "--seccomp-bpf", "-o", str(log), "-e", "trace=ioctl"]
    finished = run_fmirror(ONE, "--delete", *options, source, target, prefix=line)
    assert finished.code == 0, finished.said
    return finished, log.read_bytes().count(b"_IOC(_IOC_READ, 0x58, 0x7f, 0x40)")


class Counted(Stats):
    """Counts what is looked up."""

    names = 0

    def look(self, directory_fd: int | Sequence[int], names: Sequence[bytes]) -> None:
        super().look(directory_fd, names)
        self.names += len(names)


# ---- what is told ------------------------------------------------------------------------------


def test_what_is_told_is_what_each_name_has(disk: bytes) -> None:
    """Once it is on disk: before that sizes are smaller."""
    top, bulk, look = filled(disk + b"/a"), Bulk(_COLUMNS), Stats(1)
    subprocess.run(["sync", "-f", disk], check=True)
    for directory in range(_DIRECTORIES):
        fd = os.open(top + b"/%d" % directory, os.O_RDONLY)
        try:
            told = bulk.of(fd)
            assert told is not None
            names = sorted(os.fsencode(name) for name in os.listdir(top + b"/%d" % directory))
            look.look(fd, names)
        finally:
            os.close(fd)
        columns = [look.column(name, 0, _FILES) for name in bulk.columns]
        assert told.rows == dict(zip(names, zip(*columns, strict=True), strict=True))
        assert told.newest_s == max(look.column("ctime", 0, _FILES))
        assert told.alone


def test_what_it_is_no_use_to_ask_for(disk: bytes) -> None:
    """Few files, other kinds, more files than a call tells, and inodes far from each other."""
    for name, count in (b"few", 5), (b"many", 513), (b"mixed", 60):
        os.mkdir(disk + b"/" + name)
        for number in range(count):
            write_file(disk + b"/%b/%d" % (name, number), b"")
    os.symlink(b"0", disk + b"/mixed/link")
    os.mkdir(disk + b"/sparse")
    for number in range(3000):
        path = write_file(disk + b"/many/later %d" % number, b"")
        if number % 50 == 0:
            os.rename(path, disk + b"/sparse/%d" % number)
    for name in (b"few", b"many", b"mixed", b"sparse"):
        fd = os.open(disk + b"/" + name, os.O_RDONLY)
        try:
            assert Bulk(_COLUMNS).of(fd) is None, name
        finally:
            os.close(fd)


def test_who_and_where_is_not_told(disk: bytes, place: bytes) -> None:
    assert inodes.tells(disk)
    assert not inodes.tells(place)
    assert not inodes.tells(disk + b"/missing")
    filled(disk + b"/a")
    settled(disk + b"/a", disk + b"/b")
    prefix = without_rights("sys_admin")
    finished = run_fmirror(
        ONE, "--delete", "--changed=auto", disk + b"/a", disk + b"/b", prefix=prefix
    )
    assert finished.code == 0
    assert "XFS" not in finished.said
    assert differences(disk + b"/a", disk + b"/b") == ""


# ---- mirrors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [(True, True), (True, False), (False, True)])
def test_names_are_not_looked_up_where_it_is_told(disk: bytes, sides: tuple[bool, bool]) -> None:
    tops = filled(disk + b"/a"), filled(disk + b"/b")
    subprocess.run(["sync", "-f", disk], check=True)
    looks = Counted(1), Counted(1)
    columns = "mode", "uid", "gid", "size", "mtime", "mtime_ns"
    unchanged = inodes.Unchanged(columns, sides, looks)
    now_s = int(time.time())

    def files(directory: int, before_s: tuple[int, int], *, alone: bool = True) -> int | None:
        fds = [os.open(top + b"/%d" % directory, os.O_RDONLY) for top in tops]
        try:
            return unchanged.files((fds[0], fds[1]), before_s, alone=alone)
        finally:
            for fd in fds:
                os.close(fd)

    later_s = now_s + 10, now_s + 10
    for directory in range(_DIRECTORIES):
        assert files(directory, later_s) == _FILES
    expected = [0 if told else _DIRECTORIES * _FILES for told in sides]
    assert [look.names for look in looks] == expected
    for early_s in (now_s - 600, now_s + 10), (now_s + 10, now_s - 600):
        assert files(0, early_s) is None
    os.link(tops[0] + b"/1/1", disk + b"/other name")
    assert (files(1, later_s), files(1, later_s, alone=False)) == (None, _FILES)
    os.chmod(tops[1] + b"/2/2", 0o777)
    os.rename(tops[1] + b"/3/3", tops[1] + b"/3/other")
    os.unlink(tops[0] + b"/4/4")
    assert [files(directory, later_s) for directory in (2, 3, 4)] == [None] * 3


@needs_strace
@pytest.mark.parametrize("where", ["both", "source", "target"])
def test_the_file_system_is_asked(disk: bytes, place: bytes, tmp_path: Path, where: str) -> None:
    """Where a directory seems to take long the next ones are looked at name by name."""
    source = (place if where == "target" else disk) + b"/a"
    target = (place if where == "source" else disk) + b"/b"
    for directory in range(10):
        filled(source + b"/%d" % directory)
    settled(source, target)
    assert asked(source, target, tmp_path / "walk")[1] == 0
    finished, calls = asked(source, target, tmp_path / "auto", "--changed=auto")
    assert calls > 2
    assert "read from XFS in bulk" in finished.said
    assert b"nothing to do" in finished.out


def test_nothing_is_told_without_a_complete_run(disk: bytes) -> None:
    """What was changed since the last one could be missed."""
    filled(disk + b"/a")
    for _ in range(2):
        finished = run_fmirror(ONE, "--delete", "--changed=auto", disk + b"/a", disk + b"/b")
        assert finished.code == 0
        assert differences(disk + b"/a", disk + b"/b") == ""
        for name in os.listdir(disk):
            if name.endswith(b".state"):
                os.unlink(disk + b"/" + name)
        assert "XFS" not in finished.said


def _changes(top: bytes) -> Iterator[Callable[[], object]]:
    """Changes of a file each, of which all but one leave its modification time as it was."""

    def in_directory(number: int) -> tuple[bytes, bytes, os.stat_result]:
        path = top + b"/%d/7" % number
        return path, top + b"/%d/8" % number, os.stat(path)

    path, _, _ = in_directory(0)
    yield lambda: os.truncate(path, 0)
    path1, _, status1 = in_directory(1)

    def append() -> None:  # what is on disk is shorter for a while
        with open(path1, "ab") as stream:
            stream.write(b"more" * 1000)
        os.utime(path1, ns=(status1.st_atime_ns, status1.st_mtime_ns))

    yield append
    path2, _, _ = in_directory(2)
    yield lambda: os.chmod(path2, 0o4711)
    path3, _, _ = in_directory(3)
    yield lambda: os.chown(path3, 5, 5)
    path4, other4, _ = in_directory(4)
    yield lambda: os.rename(path4, other4)
    path5, _, _ = in_directory(5)
    yield lambda: os.link(path5, path5 + b" linked")
    path6, _, status6 = in_directory(6)

    def again() -> None:  # with the same inode, most likely
        os.unlink(path6)
        os.mkdir(path6)
        os.rmdir(path6)
        write_file(path6, b"1")
        os.utime(path6, ns=(status6.st_atime_ns, status6.st_mtime_ns))

    yield again
    path7, _, _ = in_directory(7)
    yield lambda: os.setxattr(path7, "user.new", b"1")
    path8, other8, _ = in_directory(8)

    def swap() -> None:
        os.rename(path8, path8 + b" aside")
        os.rename(other8, path8)
        os.rename(path8 + b" aside", other8)

    yield swap
    path9, _, _ = in_directory(9)
    yield lambda: os.utime(path9, ns=(_BASE_NS, _BASE_NS + 10**6))
    path10, _, _ = in_directory(10)
    yield lambda: os.unlink(path10)


@pytest.mark.parametrize("changed", ["source", "target"])
@pytest.mark.parametrize("option", ["--changed=auto", "--changed=fs"])
def test_each_change_is_found(disk: bytes, changed: str, option: str) -> None:
    source, target = filled(disk + b"/a"), disk + b"/b"
    settled(source, target)
    for change in list(_changes(source if changed == "source" else target)):
        change()
    assert differences(source, target)
    finished = run_fmirror(TWO, "--delete", option, source, target)
    assert finished.code == 0, finished.said
    assert "read from XFS in bulk" in finished.said
    assert differences(source, target) == ""


def test_a_file_that_is_mounted_over_another(disk: bytes, place: bytes) -> None:
    """The name has the inode of what is below."""
    source, target = filled(disk + b"/a"), place + b"/b"
    settled(source, target)
    other = write_file(place + b"/other", b"seen")
    subprocess.run(["mount", "--bind", other, source + b"/3/3"], check=True)
    try:
        finished = run_fmirror(ONE, "--delete", "--changed=auto", source, target)
        assert finished.code == 0, finished.said
        assert "XFS" not in finished.said
        with open(target + b"/3/3", "rb") as stream:
            assert stream.read() == b"seen"
    finally:
        subprocess.run(["umount", source + b"/3/3"], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30 if SOAK else 3))
def test_nights(disk: bytes, seed: int) -> None:
    """Whatever is done between runs, on either side, by inodes that are used again and again."""
    source, target, random = filled(disk + b"/a"), disk + b"/b", Random(seed)
    settled(source, target)
    for night in range(3):
        for _ in range(random.randrange(1, 30)):
            _edit(random, source if random.random() < 0.7 else target)
        finished = run_fmirror(TWO, "--delete", "--changed=auto", source, target)
        assert finished.code == 0, finished.said
        assert "read from XFS in bulk" in finished.said
        assert differences(source, target) == "", (seed, night)
        time.sleep(_QUIET_S)
        mirrored(TWO, "--delete", source, target)
        time.sleep(_QUIET_S)


def _edit(random: Random, top: bytes) -> None:
    directories = [top + b"/%d" % random.randrange(_DIRECTORIES) for _ in range(2)]
    paths = [b"%b/%d" % (each, random.randrange(_FILES + 5)) for each in directories]
    path, other = paths
    if not os.path.exists(path):
        write_file(path, random.randbytes(random.randrange(6)))
        return
    choice, status = random.randrange(7), os.stat(path)
    if choice == 0:
        os.unlink(path)
    elif choice == 1:
        os.rename(path, other)
    elif choice == 2:
        os.chmod(path, random.choice((0o600, 0o644, 0o4755)))
    elif choice == 3:
        os.truncate(path, random.randrange(5000))
    elif choice == 4:
        os.unlink(path)
        write_file(path, b"y" * (status.st_size + 1))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif choice == 5:
        os.chown(path, random.randrange(3), 3)
    elif not os.path.exists(other):
        os.link(path, other)
