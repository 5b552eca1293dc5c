"""`--json-lines -` is standard output, in every tool that has the option."""

from __future__ import annotations

import json
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
    assert {each["tool"] for each in actions} == {tool}
    if tool == "fmirror":
        assert {each["action"] for each in actions} >= {"copy", "delete"}
    assert not (tmp_path / "-").exists()
