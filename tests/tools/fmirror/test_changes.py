"""``--changed=fs``: btrfs reports exactly the changes between two snapshots."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import SOAK
from tests.fusefs.mounting import Mounted
from tests.tools.fcp.running import TWO
from tests.tools.fcp.trees import write_file

from .edits import Tree
from .running import as_root, differences, mirrored, needs_rsync, run_fmirror

pytestmark = [
    as_root,
    needs_rsync,
    pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="there is no mkfs.btrfs"),
]
_SEEDS = range(200 if SOAK else 8)


@pytest.fixture
def disk(mount: Callable[..., bytes]) -> bytes:
    """Mount a file system with a subvolume `data`; skip where none can be mounted."""
    mounted = mount("btrfs", 1 << 30)
    _call("btrfs", "subvolume", "create", mounted + b"/data")
    return mounted


@pytest.fixture
def backup(disk: bytes) -> bytes:
    """Create a subvolume as the target, whose access times rsync does not change."""
    _call("mount", "-o", "remount,noatime", disk)
    _call("btrfs", "subvolume", "create", disk + b"/backup")
    return disk + b"/backup"


def _call(*line: str | bytes) -> None:
    subprocess.run(line, check=True, capture_output=True)


def snapshot(disk: bytes, name: bytes) -> bytes:
    _call("btrfs", "subvolume", "snapshot", "-r", disk + b"/data", disk + b"/" + name)
    return disk + b"/" + name


def nights(disk: bytes, seed: int) -> Iterator[bytes]:
    """Yield snapshots of a tree that is edited between them."""
    tree = Tree(disk + b"/data/tree %d" % seed, seed)
    for night in range(4):
        for _ in range(tree.random.randrange(1, 12)):
            tree.edit()
        yield snapshot(disk, b"%d-%d" % (seed, night))


def test_changes_between_snapshots(disk: bytes, place: bytes) -> None:
    target = place + b"/target"
    for seed in _SEEDS:
        for source in nights(disk, seed):
            finished = mirrored(TWO, "--delete", "--changed=fs", source, target)
            assert differences(source, target) == "", (seed, finished.said)


def test_few_calls_for_few_changes(disk: bytes, place: bytes) -> None:
    """Only the changed files of a thousand are looked up."""
    for directory in range(10):
        os.mkdir(disk + b"/data/%d" % directory)
        for number in range(100):
            write_file(disk + b"/data/%d/%d" % (directory, number), b"content")
    target = place + b"/target"
    mirrored(TWO, "--delete", snapshot(disk, b"one"), target)
    write_file(disk + b"/data/3/new", b"")
    os.unlink(disk + b"/data/4/7")
    os.rename(disk + b"/data/5/8", disk + b"/data/6/renamed")
    second = snapshot(disk, b"two")
    finished = run_fmirror(TWO, "--delete", "--changed=fs", "--json", "-", second, target)
    assert finished.code == 0, finished.said
    assert differences(second, target) == ""
    assert b'"found":' in finished.out
    found = int(finished.out.partition(b'"found":')[2].split(b",")[0])
    assert found < 20


def test_the_first_run_checks_everything(disk: bytes, place: bytes) -> None:
    write_file(disk + b"/data/file", b"content")
    source, target = snapshot(disk, b"one"), place + b"/target"
    finished = run_fmirror(TWO, "--changed=fs", source, target)
    assert finished.code == 0
    assert "examining the entire source: no earlier complete run" in finished.said
    assert differences(source, target) == ""


def test_a_subvolume_within_is_an_empty_directory_of_a_snapshot(disk: bytes, place: bytes) -> None:
    target = place + b"/target"
    mirrored(TWO, snapshot(disk, b"one"), target)
    _call("btrfs", "subvolume", "create", disk + b"/data/inner")
    write_file(disk + b"/data/inner/file", b"content")
    source = snapshot(disk, b"two")
    mirrored(TWO, "--changed=fs", source, target)
    # btrfs gives this directory the time at which its inode was last read into memory.
    assert differences(source, target, "--omit-dir-times") == ""


@pytest.mark.parametrize("mode", ["fs", "auto"])
@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_subvolume_that_takes_over_a_name(
    disk: bytes, backup: bytes, kind: str, mode: str
) -> None:
    """The snapshot has no inode for the name, which the target still uses."""
    if kind == "directory":
        os.mkdir(disk + b"/data/name")
        write_file(disk + b"/data/name/file", b"content")
    else:
        write_file(disk + b"/data/name", b"content")
    _call("btrfs", "subvolume", "create", disk + b"/data/inner")
    mirrored(TWO, "--delete", f"--changed={mode}", snapshot(disk, b"one"), backup)
    os.rename(disk + b"/data/name", disk + b"/data/old")
    os.rename(disk + b"/data/inner", disk + b"/data/name")
    source = snapshot(disk, b"two")
    mirrored(TWO, "--delete", f"--changed={mode}", source, backup)
    assert os.listdir(backup + b"/name") == []
    # The directory has the time at which the kernel read it.
    assert differences(source, backup) in ("", ".d..t...... name/\n")


def test_auto_where_the_target_has_subvolumes(disk: bytes, backup: bytes) -> None:
    """A change in a nested subvolume is not a change of the target."""
    os.mkdir(disk + b"/data/inner")
    write_file(disk + b"/data/inner/file", b"content")
    _call("btrfs", "subvolume", "create", backup + b"/inner")
    _auto(snapshot(disk, b"1"), backup)
    os.unlink(backup + b"/inner/file")
    assert "subvolumes or mount points below the target" in _auto(snapshot(disk, b"2"), backup)


def test_another_snapshot_is_not_foreign_and_another_subvolume_is(
    disk: bytes, place: bytes
) -> None:
    target = place + b"/target"
    write_file(disk + b"/data/file", b"content")
    mirrored(TWO, "--delete", snapshot(disk, b"one"), target)
    mirrored(TWO, "--delete", snapshot(disk, b"two"), target)
    _call("btrfs", "subvolume", "create", disk + b"/other")
    write_file(disk + b"/other/file", b"content")
    finished = mirrored(TWO, "--delete", disk + b"/other", target, code=2)
    assert "different directory or file system" in finished.said


def test_another_file_system_cannot_tell(place: bytes) -> None:
    os.mkdir(place + b"/a")
    finished = run_fmirror(TWO, "--changed=fs", place + b"/a", place + b"/b")
    assert finished.code == 0
    assert "not a read-only btrfs snapshot" in finished.said


def _auto(source: bytes, target: bytes, *more: str) -> str:
    """Run with ``--changed=auto``; return its message about the method, and check the target."""
    finished = run_fmirror(TWO, "--delete", "--changed=auto", "-v", *more, source, target)
    assert finished.code == 0, finished.said
    assert differences(source, target) == "", finished.said
    return finished.said


_PROVEN = "examining only the changes that btrfs reports: the snapshot of the last complete run"


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "deleted"])
def test_directories_that_are_exchanged(disk: bytes, place: bytes, keeps: bool) -> None:
    """Their contents are unchanged, but must be copied nevertheless."""
    for name in (b"a", b"b", b"c"):
        os.makedirs(disk + b"/data/in/" + name + b"/deep")
        write_file(disk + b"/data/in/" + name + b"/deep/file", name)
    target, first = place + b"/target", snapshot(disk, b"one")
    mirrored(TWO, "--delete", first, target)
    os.rename(disk + b"/data/in/a", disk + b"/data/in/aside")
    os.rename(disk + b"/data/in/b", disk + b"/data/in/a")
    os.rename(disk + b"/data/in/aside", disk + b"/data/in/b")
    second = snapshot(disk, b"two")
    if not keeps:
        _call("btrfs", "subvolume", "delete", first)
    mirrored(TWO, "--delete", "--changed=fs", second, target)
    assert differences(second, target) == ""


def test_auto_over_many_nights(disk: bytes, backup: bytes) -> None:
    for seed in _SEEDS:
        proven = 0
        for source in nights(disk, seed):
            _call("btrfs", "subvolume", "snapshot", "-r", backup, source + b"-backup")
            proven += _PROVEN in _auto(source, backup)
        assert proven == 3 + (seed > 0), seed  # "never" is the first run of all


def test_auto_where_something_may_have_been_missed(disk: bytes, backup: bytes) -> None:
    write_file(disk + b"/data/file", b"content")
    assert "no earlier complete run" in _auto(snapshot(disk, b"1"), backup)
    assert _PROVEN in _auto(snapshot(disk, b"2"), backup)
    os.chmod(backup + b"/file", 0o777)
    assert "the target was changed since" in _auto(snapshot(disk, b"3"), backup)
    assert "all files must be compared" in _auto(snapshot(disk, b"4"), backup, "-c")
    _call("btrfs", "subvolume", "delete", disk + b"/4")
    assert "no longer exists" in _auto(snapshot(disk, b"5"), backup)
    _call("btrfs", "property", "set", "-f", disk + b"/5", "ro", "false")
    write_file(disk + b"/5/own", b"")
    _call("btrfs", "property", "set", disk + b"/5", "ro", "true")
    assert "no longer exists" in _auto(snapshot(disk, b"6"), backup)
    assert _PROVEN in _auto(snapshot(disk, b"7"), backup)


def test_auto_after_a_writable_snapshot_was_changed(disk: bytes, backup: bytes) -> None:
    """Its own state, which its origin never had, is not saved as a state of the origin."""
    write_file(disk + b"/data/file", b"content")
    _call("btrfs", "subvolume", "snapshot", disk + b"/data", disk + b"/own")
    write_file(disk + b"/own/more", b"content")
    os.truncate(disk + b"/own/file", 3)
    _call("btrfs", "property", "set", disk + b"/own", "ro", "true")
    _auto(disk + b"/own", backup)
    assert _PROVEN not in _auto(snapshot(disk, b"1"), backup)


def test_auto_after_runs_that_were_not_whole(disk: bytes, backup: bytes) -> None:
    for name in (b"one", b"two"):
        write_file(disk + b"/data/" + name, b"content")
    mirrored(TWO, "--exclude=two", snapshot(disk, b"1"), backup)
    assert _PROVEN not in _auto(snapshot(disk, b"2"), backup)
    write_file(backup + b"/extra", b"")
    mirrored(TWO, snapshot(disk, b"3"), backup)
    assert "left entries that the source lacks" in _auto(snapshot(disk, b"4"), backup)
    assert _PROVEN in _auto(snapshot(disk, b"5"), backup)


def test_auto_with_a_replaced_target(disk: bytes, backup: bytes) -> None:
    """A changed snapshot of the target has taken its place."""
    write_file(disk + b"/data/file", b"content")
    _auto(snapshot(disk, b"1"), backup)
    _call("btrfs", "subvolume", "snapshot", backup, disk + b"/copy")
    os.rename(backup, disk + b"/was")
    os.rename(disk + b"/copy", backup)
    assert "the target was changed since" in _auto(snapshot(disk, b"2"), backup)


def test_auto_after_the_source_was_restored(place: bytes, mount: Callable[..., bytes]) -> None:
    """The file system was restored from an image older than the last run, and then diverged."""
    disk = mount("btrfs", 1 << 30)
    target_disk = mount("btrfs", 1 << 30)
    _call("mount", "-o", "remount,noatime", target_disk)
    _call("btrfs", "subvolume", "create", disk + b"/data")
    _call("btrfs", "subvolume", "create", target_disk + b"/target")
    target = target_disk + b"/target"
    write_file(disk + b"/data/file", b"content")
    find = ["findmnt", "-n", "-o", "SOURCE", os.fsdecode(disk)]
    device = subprocess.run(find, check=True, capture_output=True, text=True).stdout.strip()
    _call("sync")
    _call("cp", "--sparse=always", device, place + b"/before")
    os.truncate(disk + b"/data/file", 3)
    _auto(snapshot(disk, b"1"), target, "--state-dir", os.fsdecode(place))
    _call("umount", disk)
    _call("mount", "-o", "loop", place + b"/before", disk)
    os.utime(disk + b"/data/file", ns=(0, 0))
    for number in range(40):  # its generation is higher than at the last run
        _call("btrfs", "filesystem", "sync", disk)
        write_file(disk + b"/data/%d" % number, b"")
    said = _auto(snapshot(disk, b"2"), target, "--state-dir", os.fsdecode(place))
    assert "no longer exists" in said


def test_names_that_are_one_where_a_directory_was_renamed(disk: bytes, place: bytes) -> None:
    for name in (b"in/one", b"out"):
        os.makedirs(disk + b"/data/" + name)
    write_file(disk + b"/data/in/one/file", b"content")
    os.link(disk + b"/data/in/one/file", disk + b"/data/out/file")
    target = place + b"/target"
    mirrored(TWO, "--delete", snapshot(disk, b"one"), target)
    os.rename(disk + b"/data/in/one", disk + b"/data/in/two")
    second = snapshot(disk, b"two")
    mirrored(TWO, "--delete", "--changed=fs", second, target)
    assert differences(second, target) == ""


def test_a_name_in_another_case_is_not_removed(
    disk: bytes, place: bytes, fuse: Callable[..., Mounted]
) -> None:
    target = fuse(folding="case").path + b"/target"
    write_file(disk + b"/data/Name", b"content")
    keep = ("--delete", "--preserve=timestamps", "--state-dir", place)
    mirrored(TWO, *keep, snapshot(disk, b"one"), target)
    os.rename(disk + b"/data/Name", disk + b"/data/name")
    mirrored(TWO, *keep, "--changed=fs", snapshot(disk, b"two"), target)
    assert [name.lower() for name in os.listdir(target)] == [b"name"]
