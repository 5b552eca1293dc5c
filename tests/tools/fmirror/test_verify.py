"""`--verify`: work that waits for a commit continues, whatever else happens at that moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO, Launcher
from tests.tools.fcp.trees import write_file

from .running import differences, mirrored, needs_rsync


@needs_rsync
@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_notices_before_a_commit_do_not_stop_the_run(launcher: Launcher, tmp_path: Path) -> None:
    """Without progress rounds, no timer makes up for a missed event."""
    source, target = os.fsencode(tmp_path / "a"), os.fsencode(tmp_path / "b")
    os.makedirs(source)
    os.makedirs(target + b"/h/e/f")
    write_file(source + b"/d", b"22\n")
    os.link(source + b"/d", source + b"/h")
    write_file(target + b"/d", b"olddd\n")
    write_file(target + b"/h/e/b", b"o\n")
    os.mkfifo(target + b"/h/d")
    os.mkfifo(target + b"/f")
    mirrored(launcher, "--delete", "--verify", source, target)
    assert differences(source, target) == ""
