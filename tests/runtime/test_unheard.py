"""Another rank, but not yet rank 0, knows of the loss of a rank when the job ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import Run

# Of twelve ranks the last one dies, and the first never receives a message about it.
DEAF = """
import os, signal, sys
from pcircle.runtime.loop import Rank
from pcircle.transport._local import LocalTransport
from pcircle.transport.contract import LostRank
turn, loop = LocalTransport.turn, Rank._loop
def deaf(self, wait_s, arrivals):
    woken = turn(self, wait_s, arrivals)
    if (self.rank, self.size) == (0, 12):
        lost = [one for one in arrivals if isinstance(one, LostRank) and one.rank == 11]
        arrivals[:] = [one for one in arrivals if one not in lost]
    return woken
def dying(self, signals):
    if (self._transport.rank, self._transport.size) == (11, 12):
        os.kill(os.getpid(), signal.SIGKILL)
    return loop(self, signals)
LocalTransport.turn, Rank._loop = deaf, dying
from pcircle.tools.{tool}.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("tool", ["fcp", "ffind"])
def test_the_job_continues_without_the_rank(tool: str, run: Run, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in range(40):
        (tree / f"d{name}").mkdir(parents=True)
        (tree / f"d{name}" / "file").write_text("content")
    words = {"fcp": ["-T", str(tree), str(tmp_path / "copy")], "ffind": [str(tree)]}[tool]
    done = run([sys.executable, "-c", DEAF.format(tool=tool), "-j12", *words])
    assert done.returncode == 0, done.stderr
    assert b"rank 11 was lost" in done.stderr
    if tool == "fcp":
        assert len(os.listdir(tmp_path / "copy")) == 40
    else:
        assert len(done.stdout.splitlines()) == 81
