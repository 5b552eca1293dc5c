"""What a small file costs in system calls, counted by strace.

Wall time can't be asserted in a test; the number of calls can, and on a parallel file system it
is what the time is made of. Counted is the difference between copying 2,000 files and 1,000, all
calls of all threads, so that start-up falls out. Measures nothing about their duration.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from .running import ONE, clean_environment, command
from .trees import build_flat_tree


def _count_calls(place: bytes, files: int, options: list[str]) -> int:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    source = build_flat_tree(place + b"/%d" % files, 1, files, 4096)
    log = place + b"/log %d" % files
    # Traced, a call takes so long that more threads would pay, which add calls of their own.
    fcp = command(ONE, ["-q", "--threads", "1", *options, source, place + b"/copy %d" % files])
    finished = subprocess.run(
        [strace, "-f", "-c", "-o", log, *fcp],
        check=False,
        capture_output=True,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
    )
    if b"ptrace" in finished.stderr and finished.returncode != 0:
        pytest.skip(f"strace may not trace here: {finished.stderr!r}")
    assert finished.returncode == 0, finished.stderr
    with open(log, "rb") as stream:
        total = stream.read().splitlines()[-1].split()
    # "100.00  0.123  1  calls [errors] total"
    assert total[-1] == b"total"
    return int(total[3])


@pytest.mark.parametrize(
    ("options", "most"), [([], 9), (["-p"], 12), (["-a"], 14)], ids=["plain", "-p", "-a"]
)
def test_calls_per_small_file(place: bytes, options: list[str], most: int) -> None:
    calls = _count_calls(place, 2000, options) - _count_calls(place, 1000, options)
    assert len(os.listdir(place + b"/copy 2000/000000")) == 2000
    assert calls / 1000 <= most
