"""Run fsum like a user does, under every launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.tools.fcp.running import Finished, Launcher, Run, launchers

FSUM = ("pcircle.tools.fsum",)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 5], [1, 3, 8], True), ids=str)
some_launchers = pytest.mark.parametrize("launcher", launchers([1, 3], [2]), ids=str)


def run_fsum(
    launcher: Launcher | None,
    *arguments: str | bytes,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: bytes | None = None,
    program: Sequence[str] = FSUM,
) -> Finished:
    """Run fsum to its end, without -j if it only reads manifests."""
    if (
        launcher is not None
        and not launcher.ranks
        and {"--diff", "--export"}.intersection(arguments)
    ):
        launcher = None
    run = Run(
        launcher, *arguments, cwd=cwd, prefix=prefix, environment=environment, program=program
    )
    with run:
        return run.finish()


def signed(launcher: Launcher | None, *arguments: str | bytes) -> list[str]:
    """Return the signatures that fsum prints; it must succeed."""
    finished = run_fsum(launcher, *arguments)
    assert finished.code == 0, finished.said
    return [line.split(b"  ")[0].decode() for line in finished.out.splitlines()]
