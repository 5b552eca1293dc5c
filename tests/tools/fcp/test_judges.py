"""The judges themselves: each planted difference is found, and equal trees are found equal.

A blind judge would let every other test here pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from .judge import CONTENT, METADATA, differences, hole_differences, rsync_differences
from .trees import (
    add_borders,
    add_holes,
    add_links,
    build_deep_tree,
    build_odd_tree,
    build_small_tree,
    count,
    make_directory,
    remove_tree,
    set_times,
    write_file,
)

Damage = Callable[[bytes], object]


def _rewrite(path: bytes, offset: int) -> None:
    """Change one byte and restore the time, so that only the content differs."""
    status = os.stat(path)
    with open(path, "r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _relink(path: bytes, target: bytes) -> None:
    status = os.lstat(path)
    os.unlink(path)
    os.symlink(target, path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def _shift_time(path: bytes) -> None:
    status = os.lstat(path)
    shifted_ns = status.st_mtime_ns + 1
    os.utime(path, ns=(status.st_atime_ns, shifted_ns), follow_symlinks=False)


DAMAGES: dict[str, tuple[bool, Damage]] = {
    "byte": (True, lambda root: _rewrite(root + b"/large", 5_000_000)),
    "tail": (True, lambda root: os.truncate(root + b"/directory 1/inner/7", 6999)),
    "extra": (True, lambda root: write_file(root + b"/directory 1/extra", b"")),
    "extra directory": (True, lambda root: os.mkdir(root + b"/directory 1/inner/extra")),
    "missing": (True, lambda root: os.unlink(root + b"/directory 1/inner/3")),
    "renamed": (True, lambda root: os.rename(root + b"/large", root + b"/Large")),
    "target": (True, lambda root: _relink(root + b"/link", b"Large")),
    "mode": (False, lambda root: os.chmod(root + b"/directory 2/inner/1", 0o645)),
    "directory mode": (False, lambda root: os.chmod(root + b"/directory 2/inner", 0o711)),
    "time": (False, lambda root: _shift_time(root + b"/large")),
    "directory time": (False, lambda root: _shift_time(root + b"/directory 2")),
    "root time": (False, _shift_time),
    "link time": (False, lambda root: _shift_time(root + b"/link")),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found(kind: str, place: bytes) -> None:
    in_content, damage = DAMAGES[kind]
    source, target = build_small_tree(place + b"/source"), build_small_tree(place + b"/target")
    set_times(source)
    set_times(target)
    assert differences(source, target, METADATA) == []
    assert rsync_differences(source, target, preserved=True) == []
    damage(target)
    assert differences(source, target, METADATA) != []
    assert rsync_differences(source, target, preserved=True) != []
    assert (differences(source, target, CONTENT) != []) == in_content
    assert (rsync_differences(source, target, preserved=False) != []) == in_content


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_is_found(place: bytes) -> None:
    source, target = build_small_tree(place + b"/source"), build_small_tree(place + b"/target")
    os.chown(target + b"/link", 1, 1, follow_symlinks=False)
    assert differences(source, target, frozenset({"owner"})) != []


def test_filled_hole_is_found(place: bytes) -> None:
    add_holes(place + b"/source")
    add_holes(place + b"/target")
    holes = place + b"/source/holes", place + b"/target/holes"
    assert hole_differences(*holes) == []
    with open(place + b"/target/holes/chunks", "r+b") as stream:
        stream.seek(10_000_000)
        stream.write(b"\0")
    assert hole_differences(*holes) != []
    assert differences(*holes, CONTENT) == []


def test_difference_beyond_path_max_is_found(place: bytes) -> None:
    source = build_deep_tree(place + b"/source", 600)
    target = build_deep_tree(place + b"/target", 600)
    assert differences(source, target, METADATA) == []
    other = build_deep_tree(place + b"/other", 601)
    assert differences(source, other, CONTENT) != []


def test_builders_create_what_they_promise(place: bytes) -> None:
    """The names, sizes and times exist on this file system, and rsync sees them all."""
    root = build_odd_tree(place + b"/odd")
    assert min(os.lstat(entry.path).st_mtime_ns for entry in os.scandir(root + b"/times")) < 0
    assert len(os.listdir(root + b"/odd files")) == 22
    rsync = shutil.which("rsync")
    if rsync is not None:
        subprocess.run([rsync, "-a", "--sparse", root + b"/", place + b"/copy"], check=True)
        assert differences(root, place + b"/copy", METADATA) == []


def test_remover_removes_everything(place: bytes) -> None:
    root = make_directory(place, b"root")
    add_links(root)
    add_borders(root)
    build_deep_tree(root + b"/deep", 600)
    os.chmod(root + b"/borders", 0o000)
    entries, _size_bytes = count(root)
    assert entries > 600
    remove_tree(root)
    assert os.listdir(place) == []
    remove_tree(root)
