"""Run fbcast like a user does, with a directory for each rank that acts as a node."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.tools.fcp.running import Finished, Launcher, Run, launchers
from tests.tools.fcp.trees import make_directory

FBCAST = ("pcircle.tools.fbcast",)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 5], [1, 3], True), ids=str)


def targets(place: bytes, number: int) -> list[bytes]:
    """Create directories that represent those of the nodes."""
    return [make_directory(place, b"node%d" % rank) for rank in range(number)]


def target(place: bytes) -> bytes:
    """Return the pattern of all node directories, for DST."""
    return place + b"/node{rank}"


def start(
    launcher: Launcher | None,
    place: bytes,
    *arguments: str | bytes,
    environment: Mapping[str, str] | None = None,
    program: tuple[str, ...] = FBCAST,
) -> Run:
    """Start a run with its records in `place`."""
    records: tuple[str | bytes, ...] = ("--record-dir", place + b"/records")
    return Run(launcher, *records, *arguments, environment=environment, program=program)


def run_fbcast(launcher: Launcher | None, place: bytes, *arguments: str | bytes) -> Finished:
    """Run it to its end."""
    with start(launcher, place, *arguments) as run:
        return run.finish()


def broadcast(launcher: Launcher | None, place: bytes, *arguments: str | bytes) -> Finished:
    """Run it, and require success."""
    finished = run_fbcast(launcher, place, *arguments)
    assert finished.code == 0, finished.said
    return finished


def left_over(place: bytes) -> list[bytes]:
    """Return temporary files in the nodes' directories, and records."""
    found = []
    for name in os.listdir(place):
        if name.startswith(b"node"):
            inside = os.listdir(os.path.join(place, name))
            found += [child for child in inside if child.startswith(b".")]
    records = os.path.join(place, b"records")
    return found + (os.listdir(records) if os.path.isdir(records) else [])
