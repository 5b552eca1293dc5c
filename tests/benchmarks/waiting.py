"""A file system on which each operation takes a while, for the benchmarks of what overlaps.

A FUSE file system of the tests' own, which adds the time to every operation and can serve
thousands of them at once, as a parallel one does. Needs root or fusermount.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from ..fusefs.mounting import missing, mounted
from ..fusefs.passing import Caching
from ..fusefs.rules import Rule


def options(benchmark: str) -> argparse.Namespace:
    """The command line: `rounds`, `delay_ms`. Exits where such a file system can't be mounted."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks.{benchmark}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=2.0)
    typed = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(reason)
    return typed


class Scratch:
    """Where it is mounted, and the directory behind it, in which nothing waits."""

    def __init__(self, folder: bytes) -> None:
        self.place, self.backing = folder + b"/mount", folder + b"/backing"
        os.mkdir(self.place)
        os.mkdir(self.backing)


@contextmanager
def scratch() -> Iterator[Scratch]:
    """The directories for one, before it is mounted, so that they can be filled."""
    with tempfile.TemporaryDirectory() as folder:
        yield Scratch(os.fsencode(folder))


@contextmanager
def slow(where: Scratch, delay_ms: float, *, direct: bool = False) -> Iterator[None]:
    """Mount it; `direct` so that no read is answered from memory."""
    with mounted(where.place, where.backing, Caching(direct=direct)) as served:
        served.rules(Rule(delay_s=delay_ms / 1000))
        yield
