"""Each tool, started like a user starts it: by its script and under each launcher.

Other tests start tools by a fork where that makes no difference (`tests.fork_server`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run

WORDS = {
    "fbcast": ["tree/file", "gone"],
    "fchmod": ["-R", "u+rw", "tree"],
    "fcp": ["-a", "tree", "copy"],
    "fdiff": ["-c", "--fields=kind,content", "tree", "same"],
    "ffind": ["tree", "-name", "file"],
    "fls": ["-R", "tree"],
    "fmirror": ["--delete", "tree", "same"],
    "fprof": ["tree"],
    "frm": ["-r", "gone"],
    "fsum": ["-o", "sums", "tree"],
}
SHOWN = {"ffind": b"tree/file\n", "fls": b"file\n", "fprof": b"file"}


@pytest.mark.always
@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param(0, id="alone"),
        pytest.param(-2, id="j2"),
        pytest.param(2, id="np2", marks=pytest.mark.mpi),
    ],
)
@pytest.mark.parametrize("tool", WORDS)
def test_a_tool_does_its_work(
    run: Run, mpirun: Callable[[int], list[str]], tmp_path: Path, tool: str, ranks: int
) -> None:
    for name in ("tree", "same", "gone"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "file").write_bytes(b"content")
        os.utime(tmp_path / name / "file", (10**9, 10**9))
    if tool == "fmirror":
        (tmp_path / "same" / "more").touch()
    elif tool == "fbcast":
        (tmp_path / "gone" / "file").unlink()
    command = [sys.executable, str(ROOT / "bin" / tool), *WORDS[tool]]
    if ranks < 0:
        command.append(f"-j{-ranks}")
    elif ranks:
        command = [*mpirun(ranks), *command]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = run(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert SHOWN.get(tool, b"") in done.stdout
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*")}
    assert ("gone" in made) == (tool != "frm")
    assert ("sums" in made) == (tool == "fsum")
    assert ("copy" in made) == (tool == "fcp")
    assert (tmp_path / "gone" / "file").exists() == (tool != "frm")
    assert not (tmp_path / "same" / "more").exists()
