"""A directory that was opened for a removal, and stays, is closed again."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from tests.conftest import Run
from tests.tools.fcp.running import without_rights


def test_a_closed_directory_that_stays_keeps_its_mode(run: Run, tmp_path: Path) -> None:
    """A mirror removes a file from it, and another one is protected by a filter."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    (source / "file").touch()
    closed = copy / "closed"
    closed.mkdir(parents=True)
    for name in ("surplus", "own.keep"):
        (closed / name).touch()
    closed.chmod(0o555)
    prefix = without_rights("dac_override", "dac_read_search", "fowner")
    command = [sys.executable, "-m", "pcircle.tools.fmirror", "-j1", "-q", "--delete"]
    done = run([*prefix, *command, "--exclude=*.keep", str(source), str(copy)])
    assert (done.returncode, done.stderr) == (0, b"")
    assert os.listdir(closed) == ["own.keep"]
    assert stat.S_IMODE(closed.stat().st_mode) == 0o555
