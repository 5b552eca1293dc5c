"""The filters also apply to entries that appear in a directory while it is removed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.conftest import Run

PROGRAM = """
import os, sys
rmdir, made = os.rmdir, []
def late(name, *, dir_fd):
    if not made and name == b"busy":
        fd = os.open(name, os.O_RDONLY, dir_fd=dir_fd)
        os.mkdir(b"young", dir_fd=fd)
        os.close(fd)
        made.append(name)
    rmdir(name, dir_fd=dir_fd)
os.rmdir = late
from pcircle.tools.frm.cli import main
sys.exit(main())
"""


def test_a_late_directory_that_is_not_selected_stays(run: Run, tmp_path: Path) -> None:
    """It stays, once, with its parents, and that is no failure."""
    busy = tmp_path / "tree" / "busy"
    busy.mkdir(parents=True)
    (busy / "file").touch()
    for path in (busy / "file", busy, tmp_path / "tree"):
        os.utime(path, (10**9, 10**9))
    options = ["-j1", "-q", "-r", "--older-than=1d", "--json=-"]
    done = run([sys.executable, "-c", PROGRAM, *options, str(tmp_path / "tree")])
    assert (done.returncode, done.stderr) == (0, b"")
    counts = json.loads(done.stdout)["counts"]
    assert (counts["files"], counts["failed"], counts["kept"]) == (1, 0, 3)
    assert os.listdir(busy) == ["young"]
