"""A tree for the functions, in the working directory, and scripts that call them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run

Script = Callable[..., list[str]]
_SAY = """\
import os

def say(*values):
    with open(f"said.{os.getpid()}", "a") as file:
        print(*values, file=file)

"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which contains the tree `data` of three files."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "sub/c"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name * 1000)
    return tmp_path


@pytest.fixture
def script(run: Run, here: Path) -> Script:
    """Run a script, by default as one process, which prints nothing; return what it says.

    Each process writes to a file of its own, because launchers mix the lines of processes.
    """

    def start(text: str, *launcher: str) -> list[str]:
        (here / "script.py").write_text(_SAY + text)
        done = run([*launcher, sys.executable, "script.py"], cwd=here)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done.stderr.decode()
        texts = [path.read_text() for path in here.glob("said.*")]
        return sorted(line for text in texts for line in text.splitlines())

    return start
