"""Memory of a rank does not grow with the tree.

Measured from outside, by the high-water mark that the kernel keeps of every process of the run
(``VmHWM``), read repeatedly until the process ends; the marks that fcp reports for itself are
compared with the same limit. The page cache and the tmpfs of the trees do not count.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.conftest import SOAK

from .running import TWO, Launcher, Run, document, launchers
from .trees import build_flat_tree, count

LIMIT_BYTES = 150 * 1024 * 1024
_MANY = 1_000_000 if SOAK else 400_000


def _high_water_bytes(pid: int) -> int:
    try:
        status = Path("/proc", str(pid), "status").read_text()
    except OSError:
        return 0  # It ended after the listing; the earlier readings count.
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _copy_and_watch(launcher: Launcher, source: bytes, place: bytes) -> dict[int, int]:
    """Copy `source`, and return the high-water mark of each process of the run in bytes."""
    marks: dict[int, int] = {}
    arguments = ("-q", "--json", place + b"/result", source, place + b"/copy")
    with Run(launcher, *arguments) as run:
        while run.process.poll() is None:
            for pid in run.processes():
                marks[pid] = max(marks.get(pid, 0), _high_water_bytes(pid))
            time.sleep(0.1)
        finished = run.finish()
    assert finished.code == 0, finished.said
    return marks


def _assert_small(launcher: Launcher, source: bytes, place: bytes) -> None:
    marks = _copy_and_watch(launcher, source, place)
    assert len(marks) >= launcher.size
    assert max(marks.values()) < LIMIT_BYTES, marks
    result = document(place + b"/result")
    assert len(result["ranks"]) == launcher.size
    for rank in result["ranks"]:
        assert 1 << 20 < rank["peak_rss_bytes"] < LIMIT_BYTES
    assert count(place + b"/copy") == count(source)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", launchers([1, 2] if SOAK else [2], [2] if SOAK else []))
def test_200_000_files_in_one_directory(launcher: Launcher, place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 1, 200_000, 0)
    _assert_small(launcher, source, place)


@pytest.mark.slow
def test_many_files(vast_place: bytes) -> None:
    """Half of them are in one directory, which must not be listed as one item."""
    source = build_flat_tree(vast_place + b"/source/many", _MANY // 2000, 1000, 0)
    build_flat_tree(vast_place + b"/source/flat", 1, _MANY // 2, 0)
    _assert_small(TWO, os.path.dirname(source), vast_place)
