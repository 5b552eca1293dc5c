"""Run fls like a user does, under every launcher, and ls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.tools.fcp.running import Finished, Launcher, Run, launchers

FLS = ("pcircle.tools.fls",)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 4], [3]), ids=str)
# Starts would take most of the time, so many command lines run in one process.
_MANY = """
import json, os, sys
from pcircle.tools.fls.cli import main
for number, words in enumerate(json.loads(sys.argv[1])):
    fd = os.open(f"{sys.argv[2]}/{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(fd, 1)
    os.close(fd)
    code = main(words)
    if code:
        sys.exit(f"{words}: {code}")
"""


def run_fls(
    launcher: Launcher | None,
    *arguments: str | bytes,
    environment: Mapping[str, str] | None = None,
    cwd: bytes | None = None,
    prefix: Sequence[str] = (),
) -> Finished:
    """Run fls to its end."""
    run = Run(launcher, *arguments, cwd=cwd, environment=environment, prefix=prefix, program=FLS)
    with run:
        return run.finish()


def listed(launcher: Launcher | None, *arguments: str | bytes, code: int = 0) -> bytes:
    """Return fls's output; it must end with `code`."""
    finished = run_fls(launcher, *arguments)
    assert finished.code == code, finished.said
    return finished.out


def many(
    lines: Sequence[Sequence[str]], place: bytes, cwd: bytes, environment: Mapping[str, str] = {}
) -> list[bytes]:
    """Return fls's outputs for several command lines, all in one process."""
    outputs = os.path.join(place, b"outputs")
    os.mkdir(outputs)
    command: list[str | bytes] = [sys.executable, "-c", _MANY, json.dumps(lines), outputs]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, stderr=-1)
    assert done.returncode == 0, done.stderr.decode()
    texts = []
    for number in range(len(lines)):
        with open(b"%b/%d" % (outputs, number), "rb") as file:
            texts.append(file.read())
    return texts


def ls(*arguments: str | bytes, cwd: bytes, environment: Mapping[str, str] = {}) -> bytes:
    """Return ls's output in the C locale."""
    whole = {**os.environ, "LC_ALL": "C", **environment}
    return subprocess.run(
        ["ls", *arguments], cwd=cwd, env=whole, stdout=subprocess.PIPE, check=True
    ).stdout


def rows(launcher: Launcher | None, *arguments: str | bytes) -> list[dict[str, Any]]:
    """Return the rows that fls writes as JSON."""
    document = json.loads(listed(launcher, "--json", "-", *arguments))
    entries = document["entries"]
    assert isinstance(entries, list)
    return entries
