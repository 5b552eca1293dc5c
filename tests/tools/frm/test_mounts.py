"""Other file systems and bind mounts are not entered, tested in a mount namespace.

Each test runs a small shell program that creates private mounts.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.programs import needs_mount_namespace

from .running import grow, paths

pytestmark = needs_mount_namespace
# The outside does not see the mounts, so entries are checked from inside.
HEAD = """
set -e
mount --make-rprivate /
cd "$1"
frm() { "$PYTHON" -m pcircle.tools.frm -j 2 "$@" && code=0 || code=$?; echo "code $code"; }
"""


def in_namespace(place: bytes, program: str) -> tuple[list[str], str]:
    """Return a program's lines on standard output, and its standard error."""
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", HEAD + program, "sh", place],
        capture_output=True,
        env={**os.environ, "PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines(), done.stderr.decode()


@pytest.mark.parametrize(
    "mount",
    [
        "mount -t tmpfs none tree/a/inner",
        "mount --bind other tree/a/inner",
        "mount --bind tree/a/inner tree/a/inner",
    ],
)
def test_a_mount_point_below_stays_and_is_named(place: bytes, mount: str) -> None:
    """The mount may show a directory of the same file system, or even the same directory."""
    grow(place, ["tree/a/inner/file", "tree/a/file", "tree/b/file", "other/precious"])
    program = f"""
{mount}
touch tree/a/inner/mounted
frm -r -q tree
find tree | sort
"""
    out, said = in_namespace(place, program)
    assert said == "\n".join(
        (
            "frm: cannot remove directory 'tree/a/inner': it is a mount point",
            "frm: 1 failure: 1 mount point",
            "",
        )
    )
    assert out[:3] == ["code 1", "tree", "tree/a"]
    assert "tree/a/inner/mounted" in out
    assert "tree/a/file" not in out
    assert "tree/b" not in out
    assert b"precious" in os.listdir(place + b"/other")


def test_mounts_are_entered_on_request(place: bytes) -> None:
    """Their mount points stay, because they are in use."""
    grow(place, ["tree/a/inner/", "tree/file", "other/file", "other/d/file"])
    program = """
mount --bind other tree/a/inner
frm -r -q --cross-mounts tree
find tree | sort
"""
    out, said = in_namespace(place, program)
    assert out == ["code 1", "tree", "tree/a", "tree/a/inner"]
    assert "cannot remove directory 'tree/a/inner': Device or resource busy" in said
    assert paths(place + b"/other") == []


def test_a_mount_point_as_operand(place: bytes) -> None:
    """It is refused; with --keep-root it is emptied."""
    grow(place, ["top/", "other/file", "file", "bound"])
    program = """
mount --bind other top
mount --bind file bound
frm -r top
frm -r bound
find top | sort
frm -r -q --keep-root top
find top | sort
"""
    out, said = in_namespace(place, program)
    assert out == ["code 2", "code 2", "top", "top/file", "code 0", "top"]
    assert "refusing to remove 'top': it is a mount point; to empty it, add --keep-root" in said
    assert "refusing to remove 'bound': it is a mount point" in said


def test_a_file_that_is_mounted_over_stays(place: bytes) -> None:
    grow(place, ["tree/file", "tree/other", "precious"])
    program = """
mount --bind precious tree/file
frm -r -q tree
find tree | sort
"""
    out, said = in_namespace(place, program)
    assert out == ["code 1", "tree", "tree/file"]
    assert "cannot remove 'tree/file': Device or resource busy" in said


def test_without_openat2_mounts_are_compared(place: bytes) -> None:
    """An old kernel is simulated: the call has an unused number."""
    grow(place, ["tree/a/inner/file", "tree/b/c/file", "other/precious"])
    program = """
mount --bind other tree/a/inner
"$PYTHON" -c '
import sys
from pcircle.fs import openat2 as beneath
beneath._OPENAT2 = 10**6
from pcircle.tools.frm.cli import main
sys.exit(main(["-q", "-j1", "-r", "tree"]))' || echo "code $?"
find tree | sort
"""
    out, said = in_namespace(place, program)
    assert out == ["code 1", "tree", "tree/a", "tree/a/inner", "tree/a/inner/precious"]
    assert "'tree/a/inner': it is a mount point" in said


def test_a_mount_over_a_run_in_the_trash_stays(place: bytes) -> None:
    grow(place, ["trash/frm-20260101T000000-1/", "trash/frm-20260101T000000-2/file", "other/file"])
    program = """
mount --bind other trash/frm-20260101T000000-1
frm -q --empty-trash trash
find trash | sort
"""
    out, _ = in_namespace(place, program)
    assert out[0] == "code 0"
    run = "trash/frm-20260101T000000-1"
    assert out[1:] == ["trash", run, run + "/file"]
