"""File systems that replace each other: no assumption is carried from one to the other."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.tools.fcp.running import ONE
from tests.tools.fcp.trees import write_file

from .running import as_root, differences, mirrored, needs_rsync

pytestmark = [as_root, needs_rsync]

# Entries that changed less than two seconds before a run are always compared.
_QUIET_S = 2.2


def _mount(image: bytes, path: bytes) -> None:
    subprocess.run(["mount", "-o", "loop", image, path], check=True)


def _unmount(path: bytes) -> None:
    subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize("side", ["source", "target", "below the target"])
def test_a_file_system_that_was_restored_from_an_image(
    place: bytes, mount: Callable[..., bytes], side: str
) -> None:
    """It has the UUID, the inodes and the change times of the image, which a later run preceded."""
    disk = mount("ext4", 16 << 20)
    source, target = place + b"/a", place + b"/b"
    where = {"source": source, "target": target, "below the target": target + b"/below"}[side]
    image, saved = place + b"/image 0", place + b"/saved"
    _unmount(disk)
    os.makedirs(source + b"/below/d")
    os.makedirs(target + b"/below")
    _mount(image, where)
    try:
        os.makedirs(source + b"/below/d", exist_ok=True)
        names = [b"/below/d/%d" % number for number in range(3)]
        for name in names:
            write_file(source + name, b"content")
        mirrored(ONE, source, target)
        _unmount(where)
        shutil.copyfile(image, saved)
        _mount(image, where)
        os.setxattr(source + names[1], "user.k", b"v")
        for _ in range(2):
            mirrored(ONE, source, target)
            time.sleep(_QUIET_S)
        _unmount(where)
        shutil.copyfile(saved, image)
        _mount(image, where)
        mirrored(ONE, source, target)
        for name in names:
            assert os.listxattr(target + name) == os.listxattr(source + name), name
    finally:
        _unmount(where)
        _mount(image, disk)


@pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="there is no mkfs.xfs")
def test_alternating_disks(place: bytes, mount: Callable[..., bytes]) -> None:
    """They share the inode of the root, and the second one was not mounted meanwhile."""
    disks = [mount("xfs", 320 << 20) for _ in range(2)]
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/d")
    os.mkdir(target)
    for number in range(3):
        write_file(source + b"/d/%d" % number, b"content")

    def run(number: int) -> str:
        _mount(place + b"/image %d" % number, target)
        try:
            mirrored(ONE, source, target)
            return differences(source, target)
        finally:
            _unmount(target)

    for disk in disks:
        _unmount(disk)
    try:
        for number in range(2):
            run(number)
        os.setxattr(source + b"/d/1", "user.k", b"v")
        for _ in range(2):
            assert run(0) == ""
            time.sleep(_QUIET_S)
        assert run(1) == ""
    finally:
        for number, disk in enumerate(disks):
            _mount(place + b"/image %d" % number, disk)


@pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="there is no mkfs.btrfs")
def test_an_older_snapshot_is_like_an_image(place: bytes, mount: Callable[..., bytes]) -> None:
    disk = mount("btrfs", 1 << 30)

    def call(*words: bytes | str) -> None:
        subprocess.run(["btrfs", "subvolume", *words], check=True, capture_output=True)

    call("create", disk + b"/data")
    write_file(disk + b"/data/file", b"content")
    call("snapshot", "-r", disk + b"/data", disk + b"/1")
    os.setxattr(disk + b"/data/file", "user.k", b"v")
    call("snapshot", "-r", disk + b"/data", disk + b"/2")
    target = place + b"/b"
    mirrored(ONE, disk + b"/2", target)
    time.sleep(_QUIET_S)
    mirrored(ONE, disk + b"/2", target)
    mirrored(ONE, disk + b"/1", target)
    assert os.listxattr(target + b"/file") == []
