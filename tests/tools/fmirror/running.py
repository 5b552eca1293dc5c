"""Run fmirror like a user does, and rsync as the reference."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, settings

from tests.conftest import SOAK
from tests.programs import required
from tests.tools.fcp.running import Finished, Launcher, Run, launchers

FMIRROR = ("pcircle.tools.fmirror",)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 4], [3]), ids=str)
needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes devices and gives files away")


def run_fmirror(
    launcher: Launcher | None,
    *arguments: str | bytes,
    prefix: Sequence[str] = (),
    cwd: bytes | None = None,
) -> Finished:
    """Run fmirror to its end."""
    with Run(launcher, *arguments, cwd=cwd, prefix=prefix, program=FMIRROR) as run:
        return run.finish()


def mirrored(launcher: Launcher | None, *arguments: str | bytes, code: int = 0) -> Finished:
    """Run it without messages except errors; it must end with `code`."""
    finished = run_fmirror(launcher, "-q", *arguments)
    assert finished.code == code, finished.said
    return finished


def searched(examples: int, *, soak: int) -> settings:
    """Return the settings of a search: the number of examples, constant except in a soak."""
    return settings(
        max_examples=soak if SOAK else examples,
        deadline=None,
        derandomize=not SOAK,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


def differences(source: bytes, target: bytes, *options: str) -> str:
    """Return rsync's lines about the remaining differences between two trees."""
    line: list[str | bytes] = [
        required("rsync"),
        "-naHAXi",
        "--delete",
        "--checksum",
        *options,
        source + b"/",
        target + b"/",
    ]
    done = subprocess.run(line, capture_output=True, check=True)
    return done.stdout.decode(errors="replace")
