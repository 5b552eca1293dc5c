"""What a removal costs: calls for each directory, and memory for many entries."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from tests.conftest import SOAK, Run
from tests.fcp.running import ONE, TWO, Launcher

from .running import removed

# Opened, listed (by a second descriptor, as Python lists what is open) and removed.
EACH = Counter(
    openat2=1, fcntl=3, fstat=1, getdents64=2, lseek=1, close=2, unlinkat=4 + 1
)  # fmt: skip
# A clock on which nothing is slow, whatever else the machine does.
STEADY = """
import itertools, sys, types
from pcircle.walk import walker
ticks = itertools.count()
walker.time = types.SimpleNamespace(monotonic=lambda: next(ticks) * 1e-6)
from pcircle.frm.cli import main
sys.exit(main())
"""
MAX_RANK_BYTES = 100 << 20


def calls(run: Run, place: bytes, directories: int) -> Counter[str]:
    """How often each call is made by a removal of so many directories of four files."""
    for number in range(directories):
        os.makedirs(place + b"/tree/%d" % number)
        for name in b"abcd":
            os.mknod(place + b"/tree/%d/%c" % (number, name))
    strace: list[str | bytes] = ["strace", "-f", "-o", place + b"/calls", "-e", "signal=none"]
    command = [sys.executable, "-c", STEADY, "-q", "-j1", "-r"]
    done = run([*strace, *command, place + b"/tree"])
    assert done.returncode == 0, done.stderr
    with open(place + b"/calls", "rb") as lines:
        text = lines.read().decode(errors="replace")
    text = re.sub(r"\bnewfstatat\((\d+), \"\"", r"fstat(\1", text)
    return Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))


def test_calls_for_a_directory_of_four_files(run: Run, place: bytes) -> None:
    """Of the hundred directories that one of two removals has more."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    few, many = calls(run, place, 20), calls(run, place, 120)
    for name in ("stat", "lstat", "newfstatat", "statx", "access", "openat"):
        assert many[name] <= few[name] + 50, name
    for name, count in EACH.items():
        assert many[name] - few[name] <= 100 * count + 50, name
    assert many["unlinkat"] - few["unlinkat"] == 100 * EACH["unlinkat"]


def make_flat(top: bytes) -> None:
    os.mkdir(top)
    fd = os.open(top, os.O_RDONLY)
    try:
        os.mknod(b"first", dir_fd=fd)
        for number in range(1_000_000):
            os.mknod(b"a name of some length, %d" % number, dir_fd=fd)
    finally:
        os.close(fd)


def make_wide(top: bytes) -> None:
    for number in range(2000):
        inner = top + b"/%d/%d" % (number % 13, number)
        os.makedirs(inner)
        fd = os.open(inner, os.O_RDONLY)
        try:
            for name in range(500):
                os.mknod(b"%d" % name, dir_fd=fd)
        finally:
            os.close(fd)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "launcher"),
    [(make_flat, TWO), (make_wide, ONE), *([(make_flat, ONE), (make_wide, TWO)] if SOAK else [])],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_memory_for_a_million_entries(
    vast_place: bytes, launcher: Launcher, make: Callable[[bytes], None]
) -> None:
    """Less than a name's length for each name."""
    make(vast_place + b"/tree")
    report = removed(launcher, "-r", vast_place + b"/tree")
    assert report["counts"]["files"] >= 1_000_000
    assert max(rank["peak_rss_bytes"] for rank in report["ranks"]) < MAX_RANK_BYTES
