"""The stand-ins for mount and umount provide the features of the real programs that tests need."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import mounting
from tests.programs import needs_mount_namespace

STAND_INS = Path(mounting.__file__).with_name("stand_ins")
# Its mounts disappear with the shell, which has a mount namespace of its own.
SCRIPT = """
set -e
cd "$1"
mount --make-rprivate /
mkdir small bound above above/below
mount -t tmpfs -o size=64k,mode=0750 none small
stat -c %a small
echo text > small/file
head -c 100000 /dev/zero 2>/dev/null > small/large || echo full
mount -o remount,size=1m small
head -c 100000 /dev/zero > small/large
mount --bind small bound
cat bound/file
mount -o remount,bind,ro bound
touch bound/new 2>/dev/null || echo read-only
touch small/new
mount --rbind . above/below
cat above/below/bound/file
umount bound
ls -A bound
exec 3<small
umount small 2>/dev/null || echo busy
umount -l small
ls -A small
"""
OUTPUT = "750 full text read-only text busy"


@needs_mount_namespace
@pytest.mark.parametrize("programs", ["stand-ins", "installed"])
def test_stand_ins_mount_like_the_programs_of_the_system(tmp_path: Path, programs: str) -> None:
    path = os.environ["PATH"]
    if programs == "stand-ins":
        path = f"{STAND_INS}{os.pathsep}{path}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", SCRIPT, "sh", tmp_path],
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == OUTPUT.split(), done.stderr


def test_failures_are_reported(tmp_path: Path) -> None:
    top = str(tmp_path)
    for words, code, reason in (
        (["mount", "--bind", top, f"{top}/missing"], 32, f"mount: {top}/missing: "),
        (["umount", top], 32, f"umount: {top}: "),
        (["mount", "-o", "loop", f"{top}/image", top], 1, "util-linux"),
    ):
        done = subprocess.run(
            [STAND_INS / words[0], *words[1:]], check=False, capture_output=True, text=True
        )
        assert done.returncode == code, words
        assert reason in done.stderr, words
