"""The cost of small files and directories in system calls, counted by strace.

A test cannot assert wall time; it can assert the number of calls, which determines the time on a
parallel file system. The count is the difference between two copies, one with more files than the
other, for all calls of all threads, so that start-up cancels out. Durations are not measured.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable

import pytest

from tests import counts, strace

from .running import ONE, Launcher, clean_environment, command
from .trees import build_deep_tree, build_flat_tree

DATA = {"read", "write"}


def calls_of(
    place: bytes,
    source: bytes,
    target: bytes,
    options: list[str],
    launcher: Launcher = ONE,
    umask: int = 0o022,
) -> Counter[str]:
    """Return how often a copy makes each system call, by name."""
    # Under strace a call takes so long that more threads would pay, which add calls of their own.
    fcp = command(launcher, ["-q", "--threads", "1", *options, source, target])
    return counts.by_name(strace.trace(fcp, place + b"/log", env=clean_environment(), umask=umask))


@pytest.fixture
def new(place: bytes) -> Callable[[], bytes]:
    """Return a new path each time, for a copy."""
    numbers = itertools.count()
    return lambda: place + b"/copy %d" % next(numbers)


@pytest.mark.counts
@pytest.mark.parametrize("options", [[], ["-p"], ["-a"]], ids=["plain", "-p", "-a"])
def test_calls_per_small_file(place: bytes, new: Callable[[], bytes], options: list[str]) -> None:
    few, many = (build_flat_tree(place + b"/%d" % files, 1, files, 4096) for files in (200, 700))

    def calls(tree: bytes) -> int:
        return counts.total(calls_of(place, tree, new(), options), counts.SYNCHRONIZATION - DATA)

    counts.check(
        " ".join(["fcp", *options, "(small files)"]),
        lambda: {"calls for 500 files": counts.growth(lambda: calls(few), lambda: calls(many))},
    )


@pytest.mark.counts
@pytest.mark.parametrize("options", [[], ["-p"]], ids=["plain", "-p"])
def test_calls_per_small_directory(
    place: bytes, new: Callable[[], bytes], options: list[str]
) -> None:
    """The directories have four empty files, which are copied in place."""
    few, many = (
        build_flat_tree(place + b"/%d" % directories, directories, 4, 0)
        for directories in (50, 150)
    )

    def calls(tree: bytes) -> int:
        return counts.total(calls_of(place, tree, new(), options))

    counts.check(
        " ".join(["fcp", *options, "(directories of four files)"]),
        lambda: {
            "calls for 100 directories": counts.growth(lambda: calls(few), lambda: calls(many))
        },
    )


def test_threads_rarely_synchronize(place: bytes) -> None:
    """Less than ten times per file on any machine: once it was thirty times."""
    source = build_flat_tree(place + b"/source", 200, 4, 0)
    assert calls_of(place, source, place + b"/copy", ["-p"])["futex"] < 10 * 200 * 4


def test_names_of_hard_links_are_not_items(place: bytes) -> None:
    """2,000 names of 1,000 files: threads used to synchronize twelve times for each."""
    source = place + b"/source"
    for number in range(20):
        first, second = source + b"/a%d" % number, source + b"/b%d" % number
        os.makedirs(first)
        os.makedirs(second)
        for name in range(50):
            with open(first + b"/%d" % name, "wb"):
                pass
            os.link(first + b"/%d" % name, second + b"/%d" % name)
    calls = calls_of(place, source, place + b"/copy", ["-a"])
    assert os.stat(place + b"/copy/b19/49").st_nlink == 2
    assert calls["futex"] < 6 * 2000


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_deep_tree_is_not_opened_from_the_top_for_each_level(place: bytes, jobs: int) -> None:
    """Each level costs a few calls down and back, and some paths start at the top: one costs 600.

    Only the first thread of a process keeps many directories open.
    """
    source = build_deep_tree(place + b"/source", 600)
    options = ["-a", "--threads", "3"]
    calls = calls_of(place, source, place + b"/copy", options, Launcher(jobs=jobs, ranks=0))
    assert calls["openat"] < 600 * 600 / 4
