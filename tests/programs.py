"""Programs that may be missing: tests skip without them, or use their own stand-ins."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_STAND_INS = Path(__file__).resolve().with_name("stand_ins")


def add_stand_ins() -> None:
    """Provide the stand-ins of mount and umount where the system has neither."""
    directories = [*os.get_exec_path(), str(_STAND_INS)]
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys(directories))


@functools.cache
def no_mount_namespace() -> str:
    """Return why tests cannot mount in a namespace of their own here; "" where they can."""
    if os.geteuid() != 0:
        return "only root may mount"
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    # Containers may not allow it, and in a chroot, whose / is not a mount point, unshare fails.
    tried = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True, text=True)
    return tried.stderr.strip() if tried.returncode else ""


needs_mount_namespace = pytest.mark.skipif(
    bool(no_mount_namespace()), reason=no_mount_namespace() or "there are mount namespaces"
)


def required(program: str) -> str:
    """Return the path of *program*; skip the test where it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found
