"""Run ffind like a user does, under every launcher."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

import pytest

from tests.tools.fcp.running import ONE, Finished, Launcher, Run, launchers

FFIND = ("pcircle.tools.ffind",)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 4], [3]), ids=str)


def run_ffind(
    launcher: Launcher | None,
    *arguments: str | bytes,
    cwd: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Finished:
    """Run ffind to its end."""
    given = {"LC_ALL": "C"} if environment is None else environment
    run = Run(launcher, *arguments, cwd=cwd, environment=given, prefix=prefix, program=FFIND)
    with run:
        return run.finish()


def found(
    *arguments: str | bytes, launcher: Launcher = ONE, cwd: bytes | None = None, code: int = 0
) -> list[bytes]:
    """Return the lines that ffind prints, sorted; it must end with `code`."""
    finished = run_ffind(launcher, *arguments, cwd=cwd)
    assert finished.code == code, finished.said
    return sorted(finished.out.split(b"\n")[:-1])


def by_find(*arguments: str | bytes, cwd: bytes, code: int = 0) -> list[bytes]:
    """Return the lines that find prints, sorted."""
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        ["find", *arguments], cwd=cwd, env=environment, capture_output=True, check=False
    )
    assert done.returncode == code, done.stderr
    return sorted(done.stdout.split(b"\n")[:-1])
