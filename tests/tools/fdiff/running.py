"""Run fdiff like a user does, under every launcher, and create equal trees."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.programs import required
from tests.tools.fcp.running import Finished, Launcher, Run, launchers

FDIFF = ("pcircle.tools.fdiff",)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 4], [3]), ids=str)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of others: needs root")


def run_fdiff(
    launcher: Launcher | None,
    *arguments: str | bytes,
    environment: Mapping[str, str] | None = None,
    cwd: bytes | None = None,
    prefix: Sequence[str] = (),
) -> Finished:
    """Run fdiff to its end."""
    run = Run(launcher, *arguments, cwd=cwd, environment=environment, prefix=prefix, program=FDIFF)
    with run:
        return run.finish()


def differing(launcher: Launcher | None, *arguments: str | bytes, code: int = 3) -> list[str]:
    """Return the lines that fdiff prints, sorted; it must end with `code`."""
    finished = run_fdiff(launcher, *arguments)
    assert finished.code == code, finished.said
    return sorted(finished.out.decode().splitlines())


def document(launcher: Launcher | None, *arguments: str | bytes, code: int = 3) -> dict[str, Any]:
    """Return fdiff's JSON document; it must end with `code`, and all entries add up."""
    finished = run_fdiff(launcher, "-q", "--json", "-", *arguments)
    assert finished.code == code, finished.said
    loaded = json.loads(finished.out)
    assert isinstance(loaded, dict)
    counts = loaded["counts"]
    ends = ("files", "directories", "links", "special", "failed")
    assert counts["found"] == sum(counts[end] for end in ends), counts
    return loaded


def twin(source: bytes, target: bytes) -> bytes:
    """Create a copy of a tree that no tool can distinguish from it."""
    subprocess.run(["cp", "-a", "--sparse=auto", "-T", source, target], check=True)
    return target


def rsync(a: bytes, b: bytes, *options: str) -> list[str]:
    """Return rsync's sorted lines about the changes that would make B equal to A."""
    command: list[str | bytes] = [
        required("rsync"),
        "-naHAXi",
        "--delete",
        "--modify-window=-1",
        *options,
        a + b"/",
        b + b"/",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return sorted(done.stdout.decode(errors="backslashreplace").splitlines())
