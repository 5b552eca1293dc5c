"""The costs of a search: calls for each entry and directory, and memory for many entries."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from tests import counts, strace
from tests.tools.fcp.running import ONE, Launcher
from tests.tools.frm.test_costs import MAX_RANK_BYTES, make_flat, make_wide

from .running import run_ffind


def make(top: bytes, directories: int) -> None:
    for number in range(directories):
        os.makedirs(top + b"/tree/%d" % number)
        for name in b"abcd":
            os.mknod(top + b"/tree/%d/%c" % (number, name))


def calls(top: bytes, *words: str) -> int:
    """Return the number of calls of a search."""
    command: list[str | bytes] = [*counts.steady("ffind"), "-j1", "--threads=1"]
    command += [top + b"/tree", *words]
    return counts.total(counts.by_name(strace.trace(command, top + b"/calls")))


@pytest.mark.counts
@pytest.mark.parametrize(
    "expression",
    [
        "-name a* -type f",
        "-type d -print0 -o -name *b -prune",
        "-type f -size +1",
        "-type f -name a -size +1",
    ],
)
def test_calls_for_a_directory_of_four_files(place: bytes, expression: str) -> None:
    """One tree has a hundred directories more than the other.

    Names and types need no look-up, and any other test needs one.
    """
    for name, directories in (b"/few", 20), (b"/many", 120):
        os.mkdir(place + name)
        make(place + name, directories)

    def count() -> dict[str, int]:
        words = expression.split()
        more = counts.growth(
            lambda: calls(place + b"/few", *words), lambda: calls(place + b"/many", *words)
        )
        return {"calls for 100 directories": more}

    counts.check(f"ffind {expression} (directories of four files)", count)


@pytest.mark.slow
@pytest.mark.parametrize("make_tree", [make_flat, make_wide], ids=["flat", "wide"])
def test_memory_for_a_million_entries(
    vast_place: bytes, make_tree: Callable[[bytes], None]
) -> None:
    """An entry needs less memory than its name, even if all are sorted."""
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
