"""Run fprof like a user does, under every launcher."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.tools.fcp.running import Finished, Launcher, Run, launchers

FPROF = ("pcircle.tools.fprof",)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 4], [1, 4]), ids=str)
some_launchers = pytest.mark.parametrize("launcher", launchers([1, 3], [2]), ids=str)


def run_fprof(
    launcher: Launcher | None,
    *arguments: str | bytes,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: bytes | None = None,
) -> Finished:
    """Run fprof to its end."""
    run = Run(launcher, *arguments, cwd=cwd, prefix=prefix, environment=environment, program=FPROF)
    with run:
        return run.finish()


def profiled(launcher: Launcher | None, *arguments: str | bytes, code: int = 0) -> dict[str, Any]:
    """Return fprof's JSON document; it must end with `code`."""
    finished = run_fprof(launcher, "-q", "--json", "-", *arguments)
    assert finished.code == code, finished.said
    loaded = json.loads(finished.out)
    assert isinstance(loaded, dict)
    return loaded
