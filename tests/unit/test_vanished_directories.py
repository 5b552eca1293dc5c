"""A directory that another process removes first is listed as vanished, not as removed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.conftest import Run

PROGRAM = """
import os, sys
rmdir = os.rmdir
def late(name, *, dir_fd):
    rmdir(name, dir_fd=dir_fd)
    if name == b"gone":
        raise FileNotFoundError(2, "another process was first")
os.rmdir = late
from pcircle.tools.frm.cli import main
sys.exit(main())
"""


def test_a_directory_that_vanishes_is_listed_as_vanished(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tree" / "gone").mkdir(parents=True)
    (tmp_path / "tree" / "gone" / "file").touch()
    lines, tree = tmp_path / "lines", str(tmp_path / "tree")
    done = run([sys.executable, "-c", PROGRAM, "-j1", "-q", "-r", "--json-lines", str(lines), tree])
    assert (done.returncode, done.stderr) == (0, b"")
    actions = list(map(json.loads, lines.read_text().splitlines()))
    states = {action["path"]: action["state"] for action in actions}
    assert states == {"gone/file": "done", "gone": "vanished", ".": "done"}
