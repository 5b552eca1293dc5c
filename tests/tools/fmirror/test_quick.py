"""Small directories that are compared several at a time: any change in one is found."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from pcircle.fs.attributes.xattrs import read_flags
from pcircle.fs.scan import DirectoryBatch
from tests.strace import read_calls
from tests.tools.fcp.running import ONE, TWO
from tests.tools.fcp.trees import write_file

from .running import (
    as_root,
    differences,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
)

pytestmark = [needs_rsync]
_DIRECTORIES = 14
_QUIET_S = 2.2  # local change times, and room to truncate them
_BASE_NS = 1_700_000_000_123_456_789


def filled(top: bytes, files: int) -> bytes:
    for directory in range(_DIRECTORIES):
        os.makedirs(top + b"/%d" % directory)
        for number in range(files):
            path = write_file(top + b"/%d/%d" % (directory, number), b"x" * (number % 5))
            os.utime(path, ns=(_BASE_NS, _BASE_NS + number))
        os.symlink(b"0", top + b"/%d/link" % directory)
    return top


def settled(*words: str | bytes) -> None:
    """Simulate two nights without changes."""
    for _ in range(2):
        mirrored(TWO, *words)
        time.sleep(_QUIET_S)


def _changes(top: bytes) -> Iterator[Callable[[], object]]:
    """Yield changes of one file each, of which all but one preserve its modification time."""

    def in_directory(number: int) -> tuple[bytes, bytes, os.stat_result]:
        path = top + b"/%d/1" % number
        return path, top + b"/%d/2" % number, os.stat(path)

    path, _, status = in_directory(0)

    def append() -> None:
        with open(path, "ab") as stream:
            stream.write(b"more" * 1000)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    yield append
    path1, _, _ = in_directory(1)
    yield lambda: os.chmod(path1, 0o4711)
    path2, other2, _ = in_directory(2)
    yield lambda: os.rename(path2, other2)
    path3, _, _ = in_directory(3)
    yield lambda: os.link(path3, path3 + b" linked")
    path4, _, status4 = in_directory(4)

    def again() -> None:
        os.unlink(path4)
        write_file(path4, b"other")
        os.utime(path4, ns=(status4.st_atime_ns, status4.st_mtime_ns))

    yield again
    path5, _, _ = in_directory(5)
    yield lambda: os.setxattr(path5, "user.new", b"1")
    path6, other6, _ = in_directory(6)

    def swap() -> None:
        os.rename(path6, path6 + b" aside")
        os.rename(other6, path6)
        os.rename(path6 + b" aside", other6)

    yield swap
    path7, _, _ = in_directory(7)
    yield lambda: os.utime(path7, ns=(_BASE_NS, _BASE_NS + 10**6))
    path8, _, _ = in_directory(8)
    yield lambda: os.unlink(path8)
    path9, other9, _ = in_directory(9)

    def link_instead() -> None:
        os.unlink(path9)
        os.link(other9, path9)

    yield link_instead

    def lead_elsewhere() -> None:
        os.unlink(top + b"/10/link")
        os.symlink(b"1", top + b"/10/link")

    yield lead_elsewhere
    yield lambda: os.chmod(top + b"/11", 0o700)
    yield lambda: os.rename(top + b"/12", top + b"/new")
    if not os.geteuid():
        yield partial(os.setxattr, top + b"/13/link", "trusted.new", b"1", follow_symlinks=False)


@pytest.mark.parametrize("changed", ["source", "target"])
@pytest.mark.parametrize("files", [4, 60, 300])
def test_each_change_is_found(place: bytes, changed: str, files: int) -> None:
    source, target = filled(place + b"/a", files), place + b"/b"
    settled("--delete", source, target)
    for change in list(_changes(source if changed == "source" else target)):
        change()
    assert differences(source, target)
    finished = run_fmirror(TWO, "--delete", source, target)
    assert finished.code == 0, finished.said
    assert differences(source, target) == ""


def forget(place: bytes) -> None:
    """Remove the saved state of earlier runs: the next one is a first run."""
    for name in os.listdir(place):
        if name.startswith(b".fmirror-"):
            os.unlink(place + b"/" + name)


@pytest.mark.parametrize("changed", ["source", "target"])
def test_a_first_run_finds_each_change_below_others(place: bytes, changed: str) -> None:
    """No state is known of either side, and all attributes are compared."""
    source, target = place + b"/a", place + b"/b"
    top = b"/1/2/3/4"
    os.makedirs(source + top)
    filled(source + top, 60)
    mirrored(TWO, "--delete", source, target)
    side = source if changed == "source" else target
    for change in [lambda: None, *_changes(side + top), *_changes_of_directories(side)]:
        change()
        forget(place)
        finished = run_fmirror(TWO, "-a", "--delete", source, target)
        assert finished.code == 0, finished.said
        assert differences(source, target) == ""
        # Flags that only the target has stay.
        assert changed == "target" or flags_of(source) == flags_of(target)


def flags_of(top: bytes) -> list[tuple[bytes, int]]:
    """Return the inode flags of all directories."""
    found = []
    for folder, _, _ in os.walk(top):
        fd = os.open(folder, os.O_RDONLY)
        found.append((folder[len(top) :], read_flags(fd)))
        os.close(fd)
    return sorted(found)


def _changes_of_directories(top: bytes) -> Iterator[Callable[[], object]]:
    """Yield changes of directories above others, as in `_changes`."""
    folder = top + b"/1/2"

    def in_its_place(change: Callable[[], object]) -> Callable[[], object]:
        def changed() -> None:
            status = os.stat(folder)
            change()
            os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))

        return changed

    yield lambda: os.chmod(folder, 0o2750)
    yield lambda: os.setxattr(folder, "user.new", b"1")
    entries = [(1, 7, -1), (2, 5, 1), (4, 5, -1), (16, 5, -1), (32, 0, -1)]
    value = b"\2\0\0\0" + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    for name in ("access", "default"):
        yield partial(os.setxattr, folder, f"system.posix_acl_{name}", value)
    yield lambda: os.utime(folder, ns=(0, 5))
    yield in_its_place(lambda: os.rename(folder + b"/3", folder + b"/other"))
    yield in_its_place(lambda: os.mkdir(folder + b"/empty"))
    yield in_its_place(
        lambda: os.rmdir(folder + b"/empty") if os.path.exists(folder + b"/empty") else None
    )
    if shutil.which("chattr"):
        yield lambda: subprocess.run([b"chattr", b"+d", folder], check=False)


@pytest.mark.parametrize("first", [True, False])
def test_entries_are_counted_once(place: bytes, first: bool) -> None:
    """Any part of a tree may be compared before it is walked."""
    source, target = place + b"/a", place + b"/b"
    for number in range(40):
        folder = source + b"/%d/%d/%d" % (number % 3, number % 5, number)
        os.makedirs(folder)
        for name in b"xyz":
            write_file(folder + b"/%c" % name, b"1")
    os.makedirs(source + b"/deep" + b"/d" * 300)
    directories = sum(1 for _ in os.walk(source))
    mirrored(TWO, "-a", source, target)
    time.sleep(_QUIET_S)
    mirrored(TWO, "-a", source, target)
    if first:
        forget(place)
    for launcher in (ONE, TWO):
        os.utime(source + b"/2/2/2/x", ns=(0, launcher.size))
        finished = run_fmirror(launcher, "-a", "--json", "-", source, target)
        assert finished.code == 0, finished.said
        report = json.loads(finished.out)
        wanted = {"found": directories + 120, "directories": directories, "skipped": 119}
        assert {name: report[name] for name in wanted} == wanted


def test_extraneous_entries_stay_without_delete(place: bytes) -> None:
    """There are too many to hold the target's directories in the same batches as the source's."""
    source, target = filled(place + b"/a", 30), place + b"/b"
    mirrored(TWO, source, target)
    for directory in range(0, _DIRECTORIES, 2):
        for number in range(250 if directory < 6 else 600):
            write_file(target + b"/%d/more %d" % (directory, number), b"")
        os.utime(
            target + b"/%d" % directory, ns=(0, os.stat(source + b"/%d" % directory).st_mtime_ns)
        )
    settled_at = time.monotonic()
    mirrored(TWO, source, target)
    time.sleep(max(0, _QUIET_S - (time.monotonic() - settled_at)))
    os.unlink(target + b"/0/0")
    finished = run_fmirror(TWO, source, target)
    assert finished.code == 0, finished.said
    assert os.path.exists(target + b"/0/0")
    assert len(os.listdir(target + b"/0")) == 31 + 250
    assert len(os.listdir(target + b"/6")) == 31 + 600


@as_root
@needs_strace
@pytest.mark.parametrize("delete", [True, False])
def test_nothing_is_walked_without_changes(place: bytes, tmp_path: Path, delete: bool) -> None:
    """Each directory is opened once on each side, in any order of its names.

    Without --delete the target's other entries, of whatever type, make no difference.
    """
    source, target = filled(place + b"/a", 4), place + b"/b"
    words = ["--delete"] * delete
    mirrored(TWO, *words, source, target)
    if not delete:
        for number in range(_DIRECTORIES):
            os.mkdir(target + b"/%d/1 below" % number)
            write_file(target + b"/%d/0 surplus" % number, b"")
    settled(*words, source, target)
    log = tmp_path / "log"
    prefix = ["strace", "-f", "--seccomp-bpf", "-o", str(log), "-e", "trace=openat"]
    for _ in range(10):
        finished = run_fmirror(TWO, *words, source, target, prefix=prefix)
        assert finished.code == 0, finished.said
        opened = [call for call in read_calls(log) if '"13"' in call.text]
        if len(opened) == 2:
            break  # otherwise it took so long that the directory was processed alone
    assert len(opened) == 2, opened


def test_names_belong_to_their_directories(place: bytes) -> None:
    """Both sides have the same sequence of names, but not in the same directories."""
    source, target = place + b"/a", place + b"/b"
    for top, first, second in ((source, b"xy", b"z"), (target, b"x", b"yz")):
        for folder, files in (b"/A", first), (b"/B", second):
            os.makedirs(top + folder)
            for file in files:
                write_file(top + folder + b"/%c" % file, b"")
    fds = [os.open(top, os.O_RDONLY) for top in (source, target)]
    sides = [
        DirectoryBatch(
            fd, [b"A", b"B"], os.fstat(fd).st_dev, max_entries=9, max_all=99, looks=True, sorts=True
        )
        for fd in fds
    ]
    assert sides[0].text == sides[1].text
    assert sides[0].counts != sides[1].counts
    for fd in fds:
        os.close(fd)
    mirrored(TWO, "-a", "--delete", source + b"/", target)
    assert differences(source, target) == ""
