"""Tools that change entries refuse a list that may end within a name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = {
    "frm": ("pcircle.tools.frm", "-q", "-r", "{0}", "--files-from", "{1}", "t"),
    "fchmod": ("pcircle.tools.fchmod", "-q", "-R", "{0}", "--files-from", "{1}", "o-rx", "t"),
    "fchgrp": (
        "pcircle",
        "fchgrp",
        "-q",
        "-R",
        "{0}",
        "--files-from",
        "{1}",
        "1234",
        "t",
    ),
    "fmirror": ("pcircle.tools.fmirror", "-q", "{0}", "--files-from", "{1}", "t", "u"),
    "patterns": ("pcircle.tools.frm", "-q", "-r", "{0}", "--exclude-from", "{1}", "t"),
}
ENDS = {"-0": b"\0", "": b"\n"}


def run(words: tuple[str, ...], option: str, name: str, stream: bytes) -> tuple[int, str]:
    filled = [word.format(option, name) for word in words]
    command = [sys.executable, "-m", *filter(None, filled), "-j1"]
    done = subprocess.run(command, input=stream, capture_output=True, timeout=60)
    return done.returncode, done.stderr.decode()


def state() -> list[tuple[str, int, int]]:
    found = []
    for directory, _, names in os.walk("."):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            status = os.stat(path)
            found.append((path, status.st_mode, status.st_gid))
    return sorted(found)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("keep/a", "keep/b"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).touch()
    (tmp_path / "u").mkdir()
    return tmp_path


@pytest.mark.parametrize("option", ENDS, ids=["null", "lines"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_cut_list_is_refused(tree: Path, tool: str, option: str) -> None:
    """A list from a pipe is refused; in a regular file only the last line may lack its end."""
    end, before = ENDS[option], state()
    cut = end.join([b"keep/a", b"keep/"])
    missing = "NUL" if option else "newline"
    code, said = run(TOOLS[tool], option, "/dev/stdin" if tool == "patterns" else "-", cut)
    assert code == 2, said
    assert f"'keep/' does not end with {missing} and may be truncated" in said
    assert state() == before
    (tree / "list").write_bytes(cut)
    code, said = run(TOOLS[tool], option, "list", b"")
    (tree / "list").unlink()
    stays = bool(option) or tool == "patterns"  # these protect the target
    assert (code, state() == before) == (2 if option else 0, stays), said


@pytest.mark.parametrize("action", [("-delete",), ("-exec", "rm", "-r", "{}", ";")], ids=str)
def test_a_cut_list_of_starting_points_is_refused(tree: Path, action: tuple[str, ...]) -> None:
    before = state()
    words = ("-m", "pcircle.tools.ffind", "-j1", "-files0-from", "-")
    for last, code in ((b"t/keep", 2), (b"t/keep\0", 0)):
        done = subprocess.run(
            [sys.executable, *words, *action], input=b"t/keep/a\0" + last, capture_output=True
        )
        if code == 2:
            assert (done.returncode, state()) == (2, before), done.stderr
    assert not (tree / "t/keep").exists()
    printed = [sys.executable, *words]
    assert subprocess.run(printed, input=b"t", capture_output=True).stdout == b"t\n"
