"""A destination that accepts no more: full, out of inodes, read-only. Exit code 4, and no hang.

The file systems are really full: a tmpfs of eight mebibytes, mounted by root.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable

import pytest

from .judge import CONTENT, differences
from .running import FOUR, TWO, Launcher, document, run_fcp, some_launchers
from .trees import MIB, build_flat_tree, build_small_tree, content, write_file

Mount = Callable[[str], bytes]


def _assert_whole_or_absent(source: bytes, target: bytes) -> None:
    """Check that no incomplete file has the name of a large one."""
    for name in os.listdir(target):
        if name.startswith(b"large"):
            left, right = os.path.join(source, name), os.path.join(target, name)
            assert differences(left, right, CONTENT) == []


@some_launchers
def test_no_space_for_many_files(launcher: Launcher, place: bytes, mount_tmpfs: Mount) -> None:
    full = mount_tmpfs("size=8m")
    source = build_flat_tree(place + b"/source", 4, 100, 64 * 1024)
    arguments = ("--json", place + b"/result", source, full + b"/copy")
    finished = run_fcp(launcher, *arguments)
    assert finished.code == 4, finished.said
    assert re.search("no space", finished.said, re.IGNORECASE)
    assert "Traceback" not in finished.said
    assert document(place + b"/result")["exit_code"] == 4


@some_launchers
def test_no_space_for_large_files(launcher: Launcher, place: bytes, mount_tmpfs: Mount) -> None:
    full, source = mount_tmpfs("size=8m"), build_small_tree(place + b"/source")
    for number in range(3):
        write_file(source + b"/large %d" % number, content(number, 13 * MIB + number))
    finished = run_fcp(launcher, "--chunksize", "4M", source, full + b"/copy")
    assert finished.code == 4, finished.said
    assert re.search("no space", finished.said, re.IGNORECASE)
    _assert_whole_or_absent(source, full + b"/copy")


@pytest.mark.parametrize("launcher", [TWO, FOUR], ids=str)
def test_no_inodes(launcher: Launcher, place: bytes, mount_tmpfs: Mount) -> None:
    full = mount_tmpfs("size=8m,nr_inodes=50")
    source = build_flat_tree(place + b"/source", 4, 100, 0)
    finished = run_fcp(launcher, source, full + b"/copy")
    assert finished.code == 4, finished.said
    assert re.search("no space", finished.said, re.IGNORECASE)


@some_launchers
@pytest.mark.parametrize("existing", [False, True])
def test_read_only_destination(
    launcher: Launcher, existing: bool, place: bytes, mount_tmpfs: Mount
) -> None:
    read_only, source = mount_tmpfs("size=8m"), build_small_tree(place + b"/source")
    if existing:
        os.mkdir(read_only + b"/copy")
    subprocess.run(["mount", "-o", "remount,ro", read_only], check=True)
    finished = run_fcp(launcher, "-T", source, read_only + b"/copy")
    assert finished.code == 4, finished.said
    assert re.search("read-only", finished.said, re.IGNORECASE)


def test_sufficient_space_does_not_stop_a_copy(place: bytes, mount_tmpfs: Mount) -> None:
    """The same mount with a smaller source: the tests above fail only because of space."""
    small = mount_tmpfs("size=8m")
    source = build_flat_tree(place + b"/source", 2, 20, 64 * 1024)
    assert run_fcp(FOUR, source, small + b"/copy").code == 0
