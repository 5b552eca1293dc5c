"""Small directories that are changed several at a time, with the same result as chmod -R."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import Run
from tests.tools.fcp.running import Launcher, launchers

from .running import changed, differences, pair, snapshot

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
# After a look-up in several directories, one of the names is another file.
LATE = """
import itertools, os, sys, types
from pcircle.tools.fchmod import state
from pcircle.walk import walker
ticks = itertools.count()  # of a clock on which nothing is slow
walker.time = types.SimpleNamespace(monotonic=lambda: next(ticks) * 1e-6)
change, done = state.BulkChanger.change, []
def late(self, fd, names, odd):
    fds = [at for place, at in enumerate(fd) if place not in odd] if isinstance(fd, list) else []
    if len(set(fds)) > 2 and not done:
        done.append(1)
        at = fds[len(fds) // 2]
        os.rename("f0", "was", src_dir_fd=at, dst_dir_fd=at)
        os.symlink("../../outside", "f0", dir_fd=at)
    return change(self, fd, names, odd)
state.BulkChanger.change = late
from pcircle.tools.fchmod.cli import main
code = main()
sys.exit(code or (0 if done else 9))
"""


def build(top: bytes) -> None:
    """Build directories of files of several modes, some of them with links or another owner."""
    for number in range(60):
        directory = top + b"/d%d" % number
        os.makedirs(directory)
        for file_number in range(number % 6):
            os.close(
                os.open(
                    directory + b"/f%d" % file_number, os.O_CREAT | os.O_EXCL, 0o600 + file_number
                )
            )
        if number % 10 == 3:
            os.link(directory + b"/f0", top + b"/d%d/linked" % (number - 1))
        if number % 10 == 4:
            os.symlink("f0", directory + b"/link")
        if number % 10 == 5:
            os.chown(directory, 65534, 65534)
            os.chmod(directory, 0o770)
        if number % 10 == 6:
            os.makedirs(directory + b"/below/further")
        if number % 10 == 7:
            os.mkfifo(directory + b"/pipe")


@pytest.mark.parametrize("launcher", launchers([1, 2, 4], [3]), ids=str)
def test_batches_have_the_result_of_chmod(place: bytes, launcher: Launcher) -> None:
    ours, theirs = pair(place, build)
    for mode in ("g+rwX", "0640", "u+X,o=u"):
        counts = changed("fchmod", launcher, "-R", mode, ours)
        subprocess.run(["chmod", "-R", mode, theirs], check=True)
        assert differences(ours, theirs) == [], mode
        assert counts["found"] == len(snapshot(ours))
    changed("fchown", launcher, "-R", "1001:1002", ours)
    subprocess.run(["chown", "-R", "1001:1002", theirs], check=True)
    assert differences(ours, theirs) == []


def test_a_new_link_in_a_batch_is_not_followed(run: Run, place: bytes) -> None:
    build(place + b"/tree")
    with open(place + b"/outside", "xb"):
        os.chmod(place + b"/outside", 0o600)
    done = run([sys.executable, "-c", LATE, "-q", "-j1", "-R", "a+rw,u+X", place + b"/tree"])
    assert done.returncode == 0, done.stderr
    found = snapshot(place)
    assert found[b"outside"].mode == 0o600
    unchanged = [path for path, entry in found.items() if entry.mode & 0o666 != 0o666]
    was = [path for path in found if path.endswith(b"/was")]
    assert len(was) == 1
    assert set(unchanged) == {b".", b"outside", *was}
