"""Run frm like a user does, under every launcher, and list the remaining entries."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.tools.fcp.running import Finished, Launcher, Run, launchers

FRM = ("pcircle.tools.frm",)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 4], [3]), ids=str)


def run_frm(
    launcher: Launcher | None,
    *arguments: str | bytes,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: bytes | None = None,
) -> Finished:
    """Run frm to its end."""
    run = Run(launcher, *arguments, cwd=cwd, prefix=prefix, environment=environment, program=FRM)
    with run:
        return run.finish()


def removed(
    launcher: Launcher | None, *arguments: str | bytes, code: int = 0, prefix: Sequence[str] = ()
) -> dict[str, Any]:
    """Return frm's JSON document; it must end with `code`, and all entries add up."""
    finished = run_frm(launcher, "-q", "--json", "-", *arguments, prefix=prefix)
    assert finished.code == code, finished.said
    loaded = json.loads(finished.out)
    assert isinstance(loaded, dict)
    counts = loaded["counts"]
    ends = ("files", "directories", "links", "special", "failed", "kept", "vanished")
    assert counts["found"] == sum(counts[end] for end in ends) or code == 4, counts
    return loaded


def left(path: bytes) -> list[bytes]:
    """Return the sorted paths below a directory, using only paths that the kernel accepts."""
    found: list[bytes] = []
    for _, directories, files, _ in os.fwalk(path):
        found += [*directories, *files]
    return sorted(found)


def paths(top: bytes) -> list[bytes]:
    """Return all entries below a directory, as relative paths."""
    found = []
    for directory, directories, files in os.walk(top):
        found += [os.path.join(directory, name) for name in (*directories, *files)]
    return sorted(os.path.relpath(path, top) for path in found)


def grow(top: bytes, tree: Sequence[str]) -> bytes:
    """Create a tree of paths: those that end with a slash are directories, others are files."""
    for path in tree:
        whole = os.path.join(top, os.fsencode(path))
        os.makedirs(whole if path.endswith("/") else os.path.dirname(whole), exist_ok=True)
        if not path.endswith("/"):
            with open(whole, "wb") as file:
                file.write(b"x" * 100)
    return top
