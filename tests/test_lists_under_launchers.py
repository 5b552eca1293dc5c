"""A launcher loses or blocks long standard input, so lists from it are refused there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run

LISTS = {
    "fcp": ["--files-from=-", "tree", "copy"],
    "fchmod": ["--files-from", "-", "u+r", "tree"],
    "fdiff": ["--files-from=-", "tree", "tree"],
    "ffind": ["-files0-from", "-"],
    "fls": ["--files-from=-", "tree"],
    "fmirror": ["--files-from=-", "tree", "copy"],
    "fprof": ["--files-from=-", "tree"],
    "frm": ["--files-from=-", "tree"],
    "fsum": ["--files-from=-", "tree"],
}


@pytest.mark.mpi
@pytest.mark.parametrize("tool", LISTS)
def test_lists_are_refused_with_advice(
    run: Run, mpirun: Callable[[int], list[str]], tmp_path: Path, tool: str
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"content")
    done = run(
        [*mpirun(2), sys.executable, "-m", f"pcircle.tools.{tool}", *LISTS[tool]], cwd=tmp_path
    )
    option = "-files0-from" if tool == "ffind" else "--files-from"
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert f"{tool}: {option}: cannot read standard input under " in said
    assert "beyond 64 KiB; write the list to a file and specify that file" in said
    assert done.stdout == b""
    assert sorted(os.listdir(tmp_path)) == ["tree"]
    assert os.listdir(tmp_path / "tree") == ["file"]
