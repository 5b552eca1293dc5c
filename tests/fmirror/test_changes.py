"""``--changed=fs``: what btrfs tells of two snapshots is all that has changed between them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import SOAK
from tests.fcp.running import TWO
from tests.fcp.trees import write_file

from .edits import Tree
from .running import as_root, differences, mirrored, needs_rsync, run_fmirror

pytestmark = [
    as_root,
    needs_rsync,
    pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="there is no mkfs.btrfs"),
]
_SEEDS = range(200 if SOAK else 12)


@pytest.fixture
def disk(mount: Callable[..., bytes]) -> bytes:
    """A file system of its own with a subvolume `data`; skipped where none can be mounted."""
    mounted = mount("btrfs", 1 << 30)
    _call("btrfs", "subvolume", "create", mounted + b"/data")
    return mounted


def _call(*line: str | bytes) -> None:
    subprocess.run(line, check=True, capture_output=True)


def snapshot(disk: bytes, name: bytes) -> bytes:
    _call("btrfs", "subvolume", "snapshot", "-r", disk + b"/data", disk + b"/" + name)
    return disk + b"/" + name


def nights(disk: bytes, seed: int) -> Iterator[bytes]:
    """Snapshots of a tree that is edited between them."""
    tree = Tree(disk + b"/data/tree %d" % seed, seed)
    for night in range(4):
        for _ in range(tree.random.randrange(1, 12)):
            tree.edit()
        yield snapshot(disk, b"%d-%d" % (seed, night))


def test_what_changed_between_snapshots(disk: bytes, place: bytes) -> None:
    target = place + b"/target"
    for seed in _SEEDS:
        for source in nights(disk, seed):
            finished = mirrored(TWO, "--delete", "--changed=fs", source, target)
            assert differences(source, target) == "", (seed, finished.said)


def test_few_calls_for_few_changes(disk: bytes, place: bytes) -> None:
    """Of a thousand files those that have changed are looked at, and no others."""
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


def test_the_first_time_all_is_looked_at(disk: bytes, place: bytes) -> None:
    write_file(disk + b"/data/file", b"content")
    source, target = snapshot(disk, b"one"), place + b"/target"
    finished = run_fmirror(TWO, "--changed=fs", source, target)
    assert finished.code == 0
    assert "all of the source is looked at: there was no complete run before" in finished.said
    assert differences(source, target) == ""


def test_a_subvolume_within_is_an_empty_directory_of_a_snapshot(disk: bytes, place: bytes) -> None:
    target = place + b"/target"
    mirrored(TWO, snapshot(disk, b"one"), target)
    _call("btrfs", "subvolume", "create", disk + b"/data/inner")
    write_file(disk + b"/data/inner/file", b"content")
    source = snapshot(disk, b"two")
    mirrored(TWO, "--changed=fs", source, target)
    assert differences(source, target) == ""


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
    assert "another directory or file system" in finished.said


def test_another_file_system_cannot_tell(place: bytes) -> None:
    os.mkdir(place + b"/a")
    finished = run_fmirror(TWO, "--changed=fs", place + b"/a", place + b"/b")
    assert finished.code == 0
    assert "no read-only snapshot of btrfs" in finished.said
