"""Logs contain whole lines in all circumstances."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pcircle.jobs.failures import LogFile, open_log


def test_a_log_on_a_full_disk_ends_with_a_whole_line(tmp_path: Path) -> None:
    """A truncated path in a list of paths may be that of a directory."""
    log = LogFile(open_log(str(tmp_path / "log")))
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, former[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.append(b"directory/file\n" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    log.close()
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    assert set(lines) == {b"directory/file\n"}
