"""Directories of runs in the trash, and the descriptors that are opened for them."""

from __future__ import annotations

import os
from pathlib import Path

from pcircle.ops.remove.trash import create_run, move_to_run, remove_empty_run


def test_only_an_empty_directory_of_a_run_is_removed(tmp_path: Path) -> None:
    """Neither way leaves a descriptor open."""
    run = create_run("--trash", bytes(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    os.mkdir(os.path.join(run, b"0"))
    remove_empty_run(run)
    assert os.listdir(run) == [b"0"]
    os.rmdir(os.path.join(run, b"0"))
    remove_empty_run(run)
    assert not os.path.exists(run)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_entry_is_moved_without_a_descriptor_left_open(tmp_path: Path) -> None:
    (tmp_path / "entry").touch()
    (tmp_path / "trash").mkdir()
    run = create_run("--trash", bytes(tmp_path / "trash"))
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        before = len(os.listdir("/proc/self/fd"))
        move_to_run(b"entry", fd, run, 3)
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        os.close(fd)
    assert not (tmp_path / "entry").exists()
    assert os.listdir(os.path.join(run, b"3")) == [b"entry"]
