"""A write to a full file is reported; a reader that has gone is not.

Users type `ffind | head` and `fcp --help | head -1` every day: the reader has all it wants, and a
message about a broken pipe, let alone a traceback, would only disturb its output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pcircle.tools.commands import COMMANDS
from tests.tools.fcp.running import clean_environment

_TOOLS = {each.name for each in COMMANDS} - {"fchgrp", "fchown", "pcircle-doctor", "pcircle-scale"}
_HELPS = [f"-m pcircle.tools.{each} --help" for each in sorted(_TOOLS)]
_RESULTS = [
    "-m pcircle",
    "-m pcircle --version",
    "-m pcircle doctor --help",
    "-m pcircle scale --help",
    "-m pcircle doctor --no-trials {tree}",
    "-m pcircle doctor --no-trials --json - {tree}",
    "-m pcircle.tools.fdiff -j1 {tree} {other}",
    "-m pcircle.tools.ffind -j1 {tree}",
    "-m pcircle.tools.ffind -j1 {tree} -printf %p",
    "-m pcircle.tools.fls -j1 {tree}",
    "-m pcircle.tools.fls -j1 -lR {tree}",
    "-m pcircle.tools.fprof -j1 {tree}",
    "-m pcircle.tools.fprof -j1 -q --json - {tree}",
    "-m pcircle.tools.fsum -j1 {tree}",
    "-m pcircle scale --ranks 2 --files 100",
    "-m pcircle scale --ranks 2 --files 100 --json -",
]


def _run(command: str, place: Path, output: int) -> subprocess.CompletedProcess[bytes]:
    tree, other = place / "tree", place / "other"
    for directory in (tree, other):
        directory.mkdir(exist_ok=True)
    (tree / "file").write_bytes(b"content")
    filled = [word.format(tree=tree, other=other) for word in command.split()]
    return subprocess.run(
        [sys.executable, *filled],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("command", _HELPS + _RESULTS)
def test_a_full_output_is_reported_and_a_closed_pipe_is_not(command: str, tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        finished = _run(command, tmp_path, full)
        left = _run(command, tmp_path, writer)
    finally:
        os.close(full)
        os.close(writer)
    assert finished.returncode in (1, 3), finished
    assert b"standard output: No space left on device\n" in finished.stderr
    assert b"Traceback" not in finished.stderr
    assert (left.returncode, left.stderr) == (finished.returncode, b""), left
