"""What a search costs: calls for each entry and directory, and memory for many entries."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from tests.conftest import Run
from tests.fcp.running import ONE, Launcher
from tests.frm.test_costs import MAX_RANK_BYTES, make_flat, make_wide

from .running import run_ffind

# A clock on which nothing is slow, whatever else the machine does.
STEADY = """
import itertools, sys, types
from pcircle.walk import walker
ticks = itertools.count()
walker.time = types.SimpleNamespace(monotonic=lambda: next(ticks) * 1e-6)
from pcircle.ffind.cli import main
sys.exit(main())
"""
LOOKS = ("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink")


def make(top: bytes, directories: int) -> None:
    for number in range(directories):
        os.makedirs(top + b"/tree/%d" % number)
        for name in b"abcd":
            os.mknod(top + b"/tree/%d/%c" % (number, name))


def calls(run: Run, top: bytes, *words: str) -> Counter[str]:
    """How often each call is made by a search."""
    strace: list[str | bytes] = ["strace", "-f", "-o", top + b"/calls", "-e", "signal=none"]
    done = run(
        [*strace, sys.executable, "-c", STEADY, "-j1", "--threads", "1", top + b"/tree", *words]
    )
    assert done.returncode == 0, done.stderr
    with open(top + b"/calls", "rb") as lines:
        text = lines.read().decode(errors="replace")
    text = re.sub(r"\bnewfstatat\((\d+), \"\"", r"fstat(\1", text)
    return Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))


def test_calls_for_a_directory_of_four_files(run: Run, place: bytes) -> None:
    """Of the hundred directories that one of two trees has more: nothing is looked up for names
    and kinds, and all else once."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    for number, size in (("few", 20), ("many", 120)):
        os.mkdir(place + b"/" + number.encode())
        make(place + b"/" + number.encode(), size)
    calls(run, place + b"/few", "-size", "1", "-name", "a")  # whatever is compiled is so by now
    for words, looked_up in (
        (("-name", "a*", "-type", "f"), 0),
        (("-type", "d", "-print0", "-o", "-name", "*b", "-prune"), 0),
        (("-type", "f", "-size", "+1"), 400),
        (("-type", "f", "-name", "a", "-size", "+1"), 100),
    ):
        few, many = (calls(run, place + b"/" + name, *words) for name in (b"few", b"many"))
        assert sum(many[name] - few[name] for name in LOOKS) == pytest.approx(looked_up, abs=30)
        assert many["openat"] - few["openat"] <= 100 + 10
        assert many["getdents64"] - few["getdents64"] <= 200 + 10
        assert many["close"] - few["close"] <= 200 + 10


@pytest.mark.slow
@pytest.mark.parametrize("make_tree", [make_flat, make_wide], ids=["flat", "wide"])
def test_memory_for_a_million_entries(
    vast_place: bytes, make_tree: Callable[[bytes], None]
) -> None:
    """Less than a name's length for each name, also where all are put in order."""
    make_tree(vast_place + b"/tree")
    for launcher, words in (
        (ONE, ("-print0",)),
        (Launcher(jobs=2), ("-name", "*7", "-printf", "%p %i\\n")),
        (Launcher(jobs=2), ("-type", "f", "-size", "0", "-print0")),
        (Launcher(jobs=2), ("--sort", "-print0")),
    ):
        json_path = vast_place + b"/json"
        arguments = (vast_place + b"/tree", *words, "--json", json_path)
        finished = run_ffind(launcher, *arguments)
        assert finished.code == 0, finished.said
        with open(json_path, "rb") as document:
            report = json.load(document)
        assert report["counts"]["files"] >= 1_000_000
        assert max(rank["peak_rss_bytes"] for rank in report["ranks"]) < MAX_RANK_BYTES, words
