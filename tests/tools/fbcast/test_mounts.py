"""Other file systems below an old copy are not removed with it, tested in a mount namespace."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.programs import needs_mount_namespace
from tests.tools.fcp.trees import make_directory, write_file

_PROGRAM = """
set -e
mount --make-rprivate /
cd "$1"
fbcast() { "$PYTHON" -m pcircle.tools.fbcast -j 1 --record-dir records "$@" tree 'node{rank}'; }
fbcast
mount --bind other node0/tree/inner
fbcast --remove
! fbcast  # until the remainder of the old copy is unmounted
"""


@needs_mount_namespace
def test_what_is_mounted_below_an_old_copy_stays(place: bytes) -> None:
    make_directory(place, b"node0")
    make_directory(place, b"tree/inner")
    make_directory(place, b"other")
    write_file(place + b"/tree/inner/file", b"copied")
    write_file(place + b"/other/precious", b"kept")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", _PROGRAM, "sh", place],
        capture_output=True,
        env={**os.environ, "PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(rb"cannot remove '[^']*/inner': it is a mount point", done.stderr)
    assert not os.path.lexists(place + b"/node0/tree")
    assert os.listdir(place + b"/other") == [b"precious"]
