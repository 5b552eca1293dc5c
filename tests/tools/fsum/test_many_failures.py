"""All failures of unreadable trees are reported, in constant memory.

Failures are sent to rank 0 in packs, no faster than it processes them; neither it nor the sending
ranks may store those that are not written yet.
"""

from __future__ import annotations

import os
import stat
from typing import Any

import pytest

from tests.conftest import SOAK
from tests.tools.fcp.running import FOUR, Launcher, Run, document, launchers, without_rights

BOUND_BYTES = 96 << 20
GROWN_BYTES = 8 << 20
NUMBERS = (100_000, 1_000_000) if SOAK else (5_000, 40_000)


def build(root: bytes, number: int, kind: int) -> bytes:
    """Create unreadable entries, in directories of a thousand; return `root`."""
    for directory in range(number // 1000):
        inner = root + b"/directory-%04d" % directory
        os.makedirs(inner)
        fd = os.open(inner, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in range(1000):
                if kind == stat.S_IFDIR:
                    os.mkdir(b"closed-%03d" % name, 0, dir_fd=fd)
                else:
                    os.mknod(b"closed-%03d" % name, stat.S_IFREG, dir_fd=fd)
        finally:
            os.close(fd)
    return root


def failed(launcher: Launcher, place: bytes, tree: bytes) -> dict[str, Any]:
    """Return the report of a run, whose error log must have a line for each failure."""
    result, log = place + b"/result", place + b"/log"
    words = ("--json", result, "--error-log", log, tree)
    prefix = without_rights("dac_override", "dac_read_search")
    with Run(launcher, *words, prefix=prefix, program=("pcircle.tools.fsum",)) as run:
        finished = run.finish(600.0)
    assert finished.code == 1, finished.said
    report = document(result)
    with open(log, "rb") as lines:
        logged = sum(1 for _ in lines)
    assert logged == report["failed"] == len(report["failures"]) + report["failures_omitted"]
    # The first ones are printed one by one, all others as a number.
    assert len(finished.err) < 64 << 10
    os.unlink(log)
    os.unlink(result)
    return report


@pytest.mark.slow
@pytest.mark.parametrize("launcher", launchers([FOUR.jobs] if SOAK else [2], [4] if SOAK else []))
@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFDIR], ids=["files", "directories"])
def test_memory_does_not_grow_with_failures(
    launcher: Launcher, kind: int, vast_place: bytes
) -> None:
    peaks = []
    for number in NUMBERS:
        report = failed(launcher, vast_place, build(vast_place + b"/%d" % number, number, kind))
        assert report["failed"] == number
        peaks.append([rank["peak_rss_bytes"] for rank in report["ranks"]])
        peaks_text = ", ".join(f"{peak / 2**20:.0f} MiB" for peak in peaks[-1])
        print(f"\n{launcher}: {number:,} failures in {report['elapsed_s']:.1f} s; {peaks_text}")
    assert max(map(max, peaks)) < BOUND_BYTES
    for few, many in zip(*peaks, strict=True):
        assert many < few + GROWN_BYTES
