"""The directory of a run in the trash is removed when nothing was moved into it."""

from __future__ import annotations

import os
from pathlib import Path

from pcircle.ops.remove.trash import create_run, remove_empty_run


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
