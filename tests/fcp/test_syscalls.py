"""What small files and directories cost in system calls, counted by strace.

Wall time can't be asserted in a test; the number of calls can, and on a parallel file system it
is what the time is made of. Counted is the difference between copying 2,000 files and 1,000, all
calls of all threads, so that start-up falls out. Measures nothing about their duration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter

import pytest

from .running import ONE, Launcher, clean_environment, command
from .trees import build_deep_tree, build_flat_tree

# What threads say to each other, and what a copy without files reads and writes.
AMONG_THREADS = {"futex", "poll", "read", "write", "clock_nanosleep", "restart_syscall"}


def _count_calls(place: bytes, files: int, options: list[str]) -> int:
    source = build_flat_tree(place + b"/%d" % files, 1, files, 4096)
    return sum(calls_of(place, source, place + b"/copy %d" % files, options).values())


def calls_of(
    place: bytes,
    source: bytes,
    target: bytes,
    options: list[str],
    launcher: Launcher = ONE,
    umask: int = 0o022,
) -> Counter[str]:
    """How often a copy makes each system call, by name."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    log = place + b"/log"
    # Traced, a call takes so long that more threads would pay, which add calls of their own.
    fcp = command(launcher, ["-q", "--threads", "1", *options, source, target])
    finished = subprocess.run(
        [strace, "-f", "-c", "-o", log, *fcp],
        check=False,
        capture_output=True,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        umask=umask,
    )
    if b"ptrace" in finished.stderr and finished.returncode != 0:
        pytest.skip(f"strace may not trace here: {finished.stderr!r}")
    assert finished.returncode == 0, finished.stderr
    counted = Counter[str]()
    with open(log) as stream:
        for line in stream:
            # "99.00  0.123  1  calls [errors] name"
            words = line.split()
            if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
                counted[words[-1]] += int(words[3])
    return counted


@pytest.mark.parametrize(
    ("options", "most"), [([], 9), (["-p"], 10), (["-a"], 14)], ids=["plain", "-p", "-a"]
)
def test_calls_per_small_file(place: bytes, options: list[str], most: int) -> None:
    calls = _count_calls(place, 2000, options) - _count_calls(place, 1000, options)
    assert len(os.listdir(place + b"/copy 2000/000000")) == 2000
    assert calls / 1000 <= most


@pytest.mark.parametrize(("options", "most"), [([], 16), (["-p"], 20)], ids=["plain", "-p"])
def test_calls_per_small_directory(place: bytes, options: list[str], most: int) -> None:
    """Of a directory of four files, done in place, beside those of its files."""
    file = _count_files(place, options)
    few, many = (
        calls_of(
            place,
            build_flat_tree(place + b"/d%d" % directories, directories, 4, 0),
            place + b"/of d%d" % directories,
            options,
        )
        for directories in (100, 300)
    )
    more = sum((many - few)[name] for name in many if name not in AMONG_THREADS)
    assert round(more / 200 - 4 * file) <= most


def _count_files(place: bytes, options: list[str]) -> float:
    """The calls of an empty file."""
    few, many = (
        calls_of(
            place,
            build_flat_tree(place + b"/f%d" % files, 1, files, 0),
            place + b"/of f%d" % files,
            options,
        )
        for files in (100, 400)
    )
    return sum((many - few)[name] for name in many if name not in AMONG_THREADS) / 300


def test_threads_say_little_to_each_other(place: bytes) -> None:
    """Twice a file at most where time runs slowly: it was thirty times once."""
    source = build_flat_tree(place + b"/source", 600, 4, 0)
    assert calls_of(place, source, place + b"/copy", ["-p"])["futex"] < 4800


def test_names_of_hard_links_are_no_items(place: bytes) -> None:
    """2,000 names of 1,000 files: threads spoke to each other twelve times for each."""
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
    assert calls["futex"] < 2 * 2000


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_deep_tree_is_not_walked_from_the_top_for_each_level(place: bytes, jobs: int) -> None:
    """Eight for each level to go down and come back, and some ways from the top: one is 600.

    Threads that are not the first of a process keep few directories open.
    """
    source = build_deep_tree(place + b"/source", 600)
    options = ["-a", "--threads", "3"]
    calls = calls_of(place, source, place + b"/copy", options, Launcher(jobs=jobs, ranks=0))
    assert calls["openat"] < 30 * 600
