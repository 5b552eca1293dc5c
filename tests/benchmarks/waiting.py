"""A file system on which each operation takes a while, for benchmarks of overlapping operations.

A FUSE file system of the tests, which adds the time to every operation and can serve thousands of
them at once, like a parallel file system. Needs root or fusermount.
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
    """Parse the command line: `rounds`, `delay_ms`. Exit where FUSE can't be mounted."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks.{benchmark}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=2.0)
    args = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(reason)
    return args


class Scratch:
    """The mount point, and the directory behind it, in which nothing is delayed."""

    def __init__(self, folder: bytes) -> None:
        self.place, self.backing = folder + b"/mount", folder + b"/backing"
        os.mkdir(self.place)
        os.mkdir(self.backing)


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Create the directories for a mount, so that they can be filled before it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Scratch(os.fsencode(folder))


@contextmanager
def slow(where: Scratch, delay_ms: float, *, direct: bool = False) -> Iterator[None]:
    """Mount it; with `direct` no read is served from memory."""
    with mounted(where.place, where.backing, Caching(direct=direct)) as served:
        served.rules(Rule(delay_s=delay_ms / 1000))
        yield
