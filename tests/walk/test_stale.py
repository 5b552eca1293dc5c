"""A stale directory handle at any moment is a failure of an entry, never a defect."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, Run
from tests.tools.fcp.trees import make_directory, write_file

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
LOOKS, CLOSES = "newfstatat,fstat,statx", "close"
NAMES = b"a", b"b", b"c"
TOOLS: dict[str, list[str]] = {
    "ffind": ["-type", "f", "-size", "-9"],
    "fchmod": ["-R", "u+x"],
    "fls": ["-lR"],
    "fsum": [],
}
MOST = 40


def failed(tool: str, top: bytes, at: list[bytes], log: Path, what: str) -> bool:
    """Return whether a call was made to fail on the given directories; the tool must survive."""
    places = [word for path in at for word in ("-P", os.fsdecode(path))]
    prefix = ["strace", "-f", "-o", str(log), *places, "-e", f"inject={what}"]
    words: list[str | bytes] = [*TOOLS[tool]]
    words.insert(0 if tool == "ffind" else len(words), top)
    with Run(ONE, *words, prefix=prefix, program=(f"pcircle.tools.{tool}",)) as run:
        finished = run.finish()
    assert finished.code in (0, 1, 2), (what, finished.said)
    assert finished.code == 0 or "Stale file handle" in finished.said, (what, finished.said)
    return "(INJECTED)" in log.read_text()


@pytest.mark.parametrize("calls", [LOOKS, CLOSES])
@pytest.mark.parametrize("where", ["above", "below"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_stale_directory_is_a_failure_of_its_own(
    place: bytes, tmp_path: Path, tool: str, where: str, calls: str
) -> None:
    top = make_directory(place, b"top")
    below = [make_directory(top, name) for name in NAMES]
    for path in below:
        write_file(path + b"/one", b"one")
        write_file(path + b"/two", b"two")
    at = [top] if where == "above" else below
    for moment in range(1, MOST):
        log = tmp_path / "log"
        if not failed(tool, top, at, log, f"{calls}:error=ESTALE:when={moment}+"):
            assert moment > 1
            return
    pytest.fail(f"more than {MOST} calls")
