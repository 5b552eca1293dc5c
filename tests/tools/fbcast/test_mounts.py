"""Other file systems below a copy are not removed with it, tested in a mount namespace."""

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
! fbcast --remove
! fbcast --force
cmp node0/tree/file tree/file
umount node0/tree/inner
mkdir -p node0/.fbcast-0123456789abcdef-0/old/inner
mount --bind other node0/.fbcast-0123456789abcdef-0/old/inner
! fbcast --remove  # until the remainder of an earlier job is unmounted
umount node0/.fbcast-0123456789abcdef-0/old/inner
fbcast --remove
"""


@needs_mount_namespace
def test_what_is_mounted_below_a_copy_stays(place: bytes) -> None:
    make_directory(place, b"node0")
    make_directory(place, b"tree/inner")
    make_directory(place, b"other")
    write_file(place + b"/tree/file", b"copied")
    write_file(place + b"/other/precious", b"kept")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", _PROGRAM, "sh", place],
        capture_output=True,
        env={**os.environ, "PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(b"node0/tree/inner is a mount point") == 2
    assert re.search(rb"cannot remove '[^']*/inner': it is a mount point", done.stderr)
    assert not os.path.lexists(place + b"/node0/tree")
    assert os.listdir(place + b"/other") == [b"precious"]
