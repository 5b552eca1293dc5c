"""Copies equal their source: names, types, contents, links, holes; with -p all attributes.

The odd tree is copied by every launcher; rsync and the walker compare the copy. The deep tree,
where rsync fails, has only the walker. Without ``-p`` the modes are compared with those of ``cp
-r`` under the same umask.
"""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from .judge import CONTENT, METADATA, differences, hole_differences, rsync_differences
from .running import (
    FOUR,
    TWO,
    Launcher,
    copy,
    every_launcher,
    some_launchers,
)
from .trees import (
    BLOCK_BYTES,
    MIB,
    add_special_bits,
    add_times,
    build_small_tree,
    content,
    make_directory,
    set_times,
    write_file,
)


@every_launcher
def test_preserved_copy_is_identical(launcher: Launcher, odd_tree: bytes, place: bytes) -> None:
    target = os.path.join(place, b"copy")
    copy(launcher, "-p", "--chunksize", "4M", odd_tree, target)
    assert differences(odd_tree, target, METADATA) == []
    assert hole_differences(odd_tree + b"/holes", target + b"/holes") == []
    assert rsync_differences(odd_tree, target, preserved=True) == []


@every_launcher
def test_plain_copy_has_the_same_content(launcher: Launcher, odd_tree: bytes, place: bytes) -> None:
    target = os.path.join(place, b"copy")
    copy(launcher, odd_tree, target)
    assert differences(odd_tree, target, CONTENT) == []
    assert hole_differences(odd_tree + b"/holes", target + b"/holes") == []
    assert rsync_differences(odd_tree, target, preserved=False) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077], ids=oct)
def test_modes_without_p_are_those_of_cp(odd_tree: bytes, place: bytes, umask: int) -> None:
    source, ours, theirs = odd_tree + b"/modes", place + b"/ours", place + b"/theirs"
    copy(TWO, source, ours, umask=umask)
    subprocess.run(["cp", "-r", source, theirs], check=True, umask=umask)
    assert differences(theirs, ours, frozenset({"mode", "owner"})) == []


@pytest.mark.parametrize("umask", [0o000, 0o022], ids=oct)
def test_special_bits_without_p_are_those_of_cp(place: bytes, umask: int) -> None:
    source, ours, theirs = place + b"/bits", place + b"/ours", place + b"/theirs"
    add_special_bits(place)
    copy(TWO, source, ours, umask=umask)
    subprocess.run(["cp", "-r", source, theirs], check=True, umask=umask)
    assert differences(theirs, ours, frozenset({"mode"})) == []


def test_special_bits_are_preserved(place: bytes) -> None:
    add_special_bits(place)
    copy(TWO, "-p", place + b"/bits", place + b"/copy")
    assert differences(place + b"/bits", place + b"/copy") == []


@pytest.mark.parametrize("option", ["-p", "--preserve"])
def test_both_spellings_of_preserve(place: bytes, option: str) -> None:
    source = place + b"/source"
    add_times(source)
    set_times(source)
    copy(TWO, option, source, place + b"/copy")
    assert differences(source, place + b"/copy", METADATA) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_is_the_current_user_without_p(odd_tree: bytes, place: bytes) -> None:
    copy(TWO, odd_tree + b"/owners", place + b"/copy")
    for name in (b"", b"/file", b"/directory", b"/link"):
        status = os.lstat(place + b"/copy" + name)
        assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid()), name


def test_access_time_is_preserved(place: bytes) -> None:
    source = write_file(place + b"/source", b"read")
    # In the future: reading under relatime then does not change it.
    accessed_ns, modified_ns = 4_102_444_800_123_456_789, 1_000_000_000_000_000_001
    os.utime(source, ns=(accessed_ns, modified_ns))
    copy(TWO, "-p", source, place + b"/copy")
    status = os.stat(place + b"/copy")
    assert (status.st_atime_ns, status.st_mtime_ns) == (accessed_ns, modified_ns)


@some_launchers
def test_tree_beyond_path_max(launcher: Launcher, deep_tree: bytes, place: bytes) -> None:
    target = os.path.join(place, b"copy")
    copy(launcher, "-p", deep_tree, target)
    assert differences(deep_tree, target, METADATA) == []


def test_deep_tree_with_few_descriptors(deep_tree: bytes, place: bytes) -> None:
    target = os.path.join(place, b"copy")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        copy(TWO, deep_tree, target)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert differences(deep_tree, target, CONTENT) == []


def test_on_a_disk_file_system(odd_tree: bytes, tmp_path: Path) -> None:
    """Most trees here are on a tmpfs; this one is copied to the file system of /tmp."""
    target = os.fsencode(tmp_path) + b"/copy"
    copy(FOUR, "-p", odd_tree, target)
    assert rsync_differences(odd_tree, target, preserved=True) == []


@some_launchers
@pytest.mark.parametrize("chunk", ["4M", "8M", "5000k"])
def test_one_large_file_in_chunks(launcher: Launcher, chunk: str, place: bytes) -> None:
    source = write_file(place + b"/source", content(chunk, 6 * BLOCK_BYTES + MIB + 1), 0o640)
    os.utime(source, ns=(1, 1_111_111_111_222_222_222))
    copy(launcher, "-p", "--chunksize", chunk, source, place + b"/copy")
    assert differences(source, place + b"/copy", METADATA) == []
    assert sorted(os.listdir(place)) == [b"copy", b"source"]


@some_launchers
def test_directory_times_over_existing_directories(launcher: Launcher, place: bytes) -> None:
    """The times of existing directories are set too, after their last child."""
    source, target = build_small_tree(place + b"/source"), place + b"/target"
    make_directory(target, b"directory 1", b"inner")
    set_times(source)
    copy(launcher, "-p", "-T", "--chunksize", "4M", source, target)
    assert differences(source, target, METADATA) == []


@some_launchers
def test_empty_directory(launcher: Launcher, place: bytes) -> None:
    source = make_directory(place, b"source")
    os.utime(source, ns=(0, -1))
    copy(launcher, "-p", source, place + b"/copy")
    assert differences(source, place + b"/copy", METADATA) == []


def test_longest_link(place: bytes) -> None:
    source = make_directory(place, b"source")
    os.symlink(b"x" * 4095, source + b"/link")
    copy(TWO, source, place + b"/copy")
    assert os.readlink(place + b"/copy/link") == b"x" * 4095


def test_source_is_unchanged(odd_tree: bytes, place: bytes) -> None:
    """Modification and change times of every source entry are unchanged."""
    before = [(path, os.lstat(path).st_ctime_ns) for path in _paths(odd_tree)]
    copy(FOUR, "-p", odd_tree, place + b"/copy")
    assert [(path, os.lstat(path).st_ctime_ns) for path in _paths(odd_tree)] == before


def _paths(root: bytes) -> list[bytes]:
    return [
        os.path.join(directory, name)
        for directory, directories, files in os.walk(root)
        for name in (b"", *directories, *files)
    ]
