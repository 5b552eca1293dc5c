"""Trees of 3,000 levels, too deep for a path, are found, listed and changed as by find and chmod.

Removals are tested in `tests.tools.frm.test_removal`, and copies in the tests of fcp.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.tools.fcp.running import Launcher, Run, launchers

LEVELS = 3000
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 4], [3]), ids=str)


def grow(top: bytes) -> bytes:
    """Create nested directories; every hundredth contains a file and a link."""
    os.mkdir(top)
    here = os.open(top, os.O_RDONLY)
    for level in range(LEVELS):
        if not level % 100:
            os.mknod(b"file", 0o640, dir_fd=here)
            os.symlink(b"file", b"link", dir_fd=here)
        os.mkdir(b"d", 0o755, dir_fd=here)
        below = os.open(b"d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    return top


def found(top: bytes, form: str) -> list[bytes]:
    """Return what find prints for each entry."""
    words: list[str | bytes] = ["find", top, "-printf", f"{form}\\0"]
    return sorted(subprocess.run(words, check=True, stdout=-1).stdout.split(b"\0"))


def run(tool: str, launcher: Launcher, *words: str | bytes) -> bytes:
    with Run(launcher, *words, program=(f"pcircle.tools.{tool}",)) as started:
        done = started.finish()
    assert done.code == 0, done.said[-500:]
    return done.out


@every_launcher
def test_the_deepest_entry_is_reached(place: bytes, launcher: Launcher) -> None:
    ours, theirs = grow(place + b"/ours"), grow(place + b"/theirs")
    output = run("ffind", launcher, ours, "-size", "-9", "-printf", "%d %y %m %s %f\\0")
    assert sorted(output.split(b"\0")) == [
        line.replace(b" theirs", b" ours") for line in found(theirs, "%d %y %m %s %f")
    ]
    listed = set()
    for part in run("fls", launcher, "-1R", ours).split(b"\n\n"):
        holder, *names = part.rstrip(b"\n").split(b"\n")
        listed |= {holder[:-1] + b"/" + name for name in names}
    assert listed == set(found(ours, "%p")) - {b"", ours}
    run("fchmod", launcher, "-q", "-R", "u-w,g=u,o=", ours)
    subprocess.run(["chmod", "-R", "u-w,g=u,o=", theirs], check=True)
    assert found(ours, "%d %y %m %P") == found(theirs, "%d %y %m %P")
