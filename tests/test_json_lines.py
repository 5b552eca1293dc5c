"""`--json-lines -` writes to standard output in every tool that has the option."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run


@pytest.mark.parametrize(
    "words",
    [
        ("fcp", "a", "new"),
        ("fmirror", "--delete", "a", "b"),
        ("frm", "-r", "a"),
        ("fls", "a"),
        ("fdiff", "a", "b"),
        ("fchmod", "-R", "700", "a"),
        ("ffind", "a", "-name", "x", "-delete"),
    ],
    ids=lambda words: words[0],
)
def test_a_dash_is_standard_output(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    for name in ("a/x", "b/y"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"content")
    tool, *more = words
    line = [sys.executable, str(ROOT / "bin" / tool), "-q", "-j1", "--json-lines", "-", *more]
    if tool == "fls":
        line.remove("-q")
    done = run(line, cwd=tmp_path)
    assert done.returncode == (3 if tool == "fdiff" else 0), done.stderr
    actions = [json.loads(row) for row in done.stdout.splitlines() if row.startswith(b"{")]
    assert {action["tool"] for action in actions} == {tool}
    if tool == "fmirror":
        assert {action["action"] for action in actions} >= {"copy", "delete"}
    assert not (tmp_path / "-").exists()


def test_renames_are_written_to_standard_output(run: Run, tmp_path: Path) -> None:
    """A separate job renames; its lines follow those of the copy."""
    for name in ("a/new", "b/old"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"content")
        os.utime(tmp_path / name, (10**9, 10**9))
    (tmp_path / "a/more").write_bytes(b"more")
    words = ["-q", "-j1", "--moved", "--delete", "--json-lines", "-", "--list-out", "list"]
    done = run([sys.executable, str(ROOT / "bin/fmirror"), *words, "a", "b"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    actions = [json.loads(row) for row in done.stdout.splitlines()]
    done_with = {
        action["path"]: action["action"] for action in actions if action["action"] != "skip"
    }
    assert done_with == {"new": "move", "more": "copy", ".": "touch"}
    assert {"new", "more"} <= set((tmp_path / "list").read_text().split())
    assert not (tmp_path / "-").exists()
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["more", "new"]
