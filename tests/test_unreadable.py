"""A failing file system: unreadable entries are named, and the exit code is 1.

The exit code is never that of a defect, whichever call fails, and nothing is removed as a result.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fusefs.fixture import Mount, fuse
from tests.fusefs.rules import Rule
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import Run
from tests.tools.fcp.trees import write_file

__all__ = ["fuse", "place"]

RULES = [
    Rule(ops=("opendir",), path=".", errno="EIO"),
    Rule(ops=("getattr",), path="d*", errno="EIO", times=1),
    Rule(ops=("flush",), path="h*", errno="EIO"),
    Rule(ops=("getattr",), path=".", errno="ESTALE"),
    *[Rule(ops=("getattr",), errno="EIO", skip=skip) for skip in (0, 1, 2, 3, 5, 9)],
]
TOOLS = {
    "fmirror": ["--delete", "-q", "source", "kept"],
    "fcp": ["-a", "-q", "-T", "source", "copied"],
    "fsum": ["-q", "source"],
    "fprof": ["-q", "source"],
    "fdiff": ["source", "kept"],
    "ffind": ["source", "-size", "+0"],
    "fls": ["-l", "source"],
    "fchmod": ["-R", "-q", "u+w", "source"],
    "frm": ["-r", "-q", "source"],
}


def make(at: bytes) -> None:
    """Create a small tree in which two names are hard links of one file."""
    for directory in (b"d", b"d/e", b"h"):
        os.makedirs(os.path.join(at, directory), exist_ok=True)
        for number in range(3):
            path = os.path.join(at, directory, b"f%d" % number)
            if not os.path.lexists(path):
                write_file(path, directory)
    with suppress(FileExistsError):
        os.link(at + b"/d/f0", at + b"/h/hl")


@pytest.mark.parametrize("tool", TOOLS)
def test_no_error_of_a_file_system_is_a_defect(
    fuse: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.chdir(tmp_path)
    mounted = fuse()
    arguments = [os.fsdecode(mounted.path) if word == "source" else word for word in TOOLS[tool]]
    for rule in RULES:
        make(mounted.path)
        backup = os.fsencode(tmp_path / "kept")
        subprocess.run(["cp", "-a", "--", mounted.path + b"/.", backup], check=True)
        os.unlink(backup + b"/h/f2")
        os.truncate(backup + b"/d/f1", 0)
        if not os.path.lexists(backup + b"/h/own"):
            write_file(backup + b"/h/own", b"own")
        mounted.rules(rule)
        with Run(None, *arguments, "-j1", program=(f"pcircle.tools.{tool}",)) as run:
            finished = run.finish()
        mounted.rules()
        assert finished.code in (0, 1, 2, 3 if tool == "fdiff" else 1), (rule, finished.said)
        assert "internal error" not in finished.said, rule
        is_listed = rule.ops == ("flush",)  # ensures that "own" is known to be extraneous
        if tool not in ("fls", "frm"):  # 2 like ls; frm refuses a mount point
            assert finished.code != 2, (rule, finished.said)
        if tool == "fmirror" and finished.code and not is_listed:
            assert os.path.exists(backup + b"/h/own"), rule
