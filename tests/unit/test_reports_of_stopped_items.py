"""If an error stops a job in the middle of an item, all completed actions are still logged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.fcp.running import clean_environment

DONE = 5

# The action number `DONE` is recorded, and then the thread's work fails.
_STOP = f"""
import runpy, sys
from pcircle.core.errors import StoppedEarly
from pcircle.jobs.action_log import ActionLog

record, calls = ActionLog.done, []

def record_and_stop(*args, **kwargs):
    record(*args, **kwargs)
    calls.append(args)
    if len(calls) == {DONE}:
        raise StoppedEarly("the temporary directory is full")

ActionLog.done = record_and_stop
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.parametrize(
    "command",
    [
        "fcp -a source new",
        "fcp --no-checkpoint source new",
        "fcp --chunksize 1M large new",
        "fmirror source target",
        "fmirror --delete=during source target",
        "fmirror --delete empty target --allow-empty",
        "frm -r source",
        "fchmod -R 700 source",
        "fchmod --undo=undo -R 700 source",
        "ffind source -type f -delete",
        "fdiff source target",
    ],
)
def test_completed_actions_are_logged(tmp_path: Path, command: str) -> None:
    for name in ("source", "target", "empty", "large"):
        (tmp_path / name).mkdir()
    for number in range(40):
        (tmp_path / f"source/file{number}").write_bytes(b"content")
        (tmp_path / f"target/extra{number}").write_bytes(b"content")
    for number in range(6):
        (tmp_path / f"large/file{number}").write_bytes(bytes(2 << 20))
    tool, *words = command.split()
    options = ["-q", "-j1", "--json-lines", "lines"]
    if tool != "ffind":
        options += ["--threads", "1"]
    done = subprocess.run(
        [sys.executable, "-c", _STOP, f"pcircle.tools.{tool}", *words, *options],
        cwd=tmp_path,
        capture_output=True,
        env=clean_environment(),
        check=False,
        timeout=120,
    )
    assert done.returncode == 4, done.stderr
    assert b"the temporary directory is full" in done.stderr
    with open(tmp_path / "lines", encoding="ascii") as lines:
        states = [json.loads(line)["state"] for line in lines]
    # A large file whose chunks are complete may still be completed before the job stops.
    assert len(states) >= DONE
    assert set(states) == {"planned" if tool == "fdiff" else "done"}
