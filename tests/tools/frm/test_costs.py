"""The costs of a removal: calls for each directory, and memory for many entries."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests import counts, strace
from tests.conftest import SOAK
from tests.tools.fcp.running import ONE, TWO, Launcher

from .running import removed

MAX_RANK_BYTES = 100 << 20


def calls(place: bytes, directories: int) -> int:
    """Return the number of calls of a removal of directories with four files."""
    for number in range(directories):
        os.makedirs(place + b"/tree/%d" % number)
        for name in b"abcd":
            os.mknod(place + b"/tree/%d/%c" % (number, name))
    command: list[str | bytes] = [*counts.steady("frm"), "-q", "-j1", "-r", place + b"/tree"]
    return counts.total(counts.by_name(strace.trace(command, place + b"/calls")))


@pytest.mark.counts
def test_calls_for_a_directory_of_four_files(place: bytes) -> None:
    """One removal has a hundred directories more than the other."""
    counts.check(
        "frm (directories of four files)",
        lambda: {
            "calls for 100 directories": counts.growth(
                lambda: calls(place, 20), lambda: calls(place, 120)
            )
        },
    )


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
    """An entry needs less memory than its name."""
    make(vast_place + b"/tree")
    report = removed(launcher, "-r", vast_place + b"/tree")
    assert report["counts"]["files"] >= 1_000_000
    assert max(rank["peak_rss_bytes"] for rank in report["ranks"]) < MAX_RANK_BYTES
