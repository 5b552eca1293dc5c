"""Several worker threads per rank: the profile is the same, and their number adapts.

Each worker adds up separately, and the results are merged like those of ranks; files with several
names are tracked per rank.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import ONE, TWO, Launcher, Run, document
from tests.tools.fcp.trees import build_flat_tree, make_directory

from .running import FPROF, profiled, run_fprof, some_launchers

ALL = ("--by", "age,depth,dirsize,ext,group,owner", "--top", "20", "--blocks", "4k,1M", "--sparse")


def report_of(launcher: Launcher, *arguments: str | bytes) -> dict[str, Any]:
    """Return the report without values that depend on the run."""
    found = profiled(launcher, *ALL, *arguments)
    return {
        name: value
        for name, value in found.items()
        if name not in ("ranks", "elapsed_s", "entries_per_s", "taken", "taken_s", "balance")
    }


def with_links(place: bytes) -> bytes:
    """Create a tree in which most files have two names, in different directories."""
    tree = build_flat_tree(place + b"/flat", 60, 20, 3000)
    for number in range(60):
        other = make_directory(tree, b"%06d" % number, b"more")
        for name in range(15):
            inner = b"/%06d/%07d" % ((number * 7 + name) % 60, name)
            os.link(tree + inner, other + b"/%d" % name)
    return tree


@some_launchers
def test_profiles_are_the_same(launcher: Launcher, odd_tree: bytes, place: bytes) -> None:
    for tree in (odd_tree, with_links(place)):
        once = report_of(launcher, "--threads", "1", tree)
        assert once["counts"]["files"]["number"] > 0
        for threads in ("7", "64"):
            assert report_of(launcher, "--threads", threads, tree) == once


@pytest.mark.parametrize(
    ("directories", "files"), [(40, 50), (300, 4)], ids=["few and large", "many and small"]
)
@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_waiting_overlaps_on_a_slow_file_system(
    launcher: Launcher, directories: int, files: int, place: bytes, fuse: Mount
) -> None:
    """No option is needed; the number of waiting requests in the file system is checked."""
    mounted = fuse()
    build_flat_tree(mounted.backing + b"/source", directories, files, 10)
    mounted.rules(Rule(delay_s=0.002))
    result = place + b"/result"
    with Run(launcher, "-q", "--json", result, mounted.path, program=FPROF) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert document(result)["counts"]["files"]["number"] == directories * files
    assert mounted.state().max_delayed >= 8


@pytest.mark.parametrize("launcher", [ONE, TWO, Launcher(jobs=8)], ids=str)
def test_a_fast_file_system_gets_one(launcher: Launcher, place: bytes) -> None:
    tree = build_flat_tree(place + b"/flat", 2000, 25, 0)
    ranks = profiled(launcher, tree)["ranks"]
    assert {rank["threads"] for rank in ranks} == {1}


def test_few_descriptors_are_enough(place: bytes) -> None:
    tree = build_flat_tree(place + b"/flat", 200, 10, 10)
    prefix = ("sh", "-c", 'ulimit -n 128; exec "$@"', "sh")
    options = ("-q", "--json", place + b"/result")
    finished = run_fprof(ONE, *options, "--threads", "64", tree, prefix=prefix)
    assert (finished.code, finished.said) == (0, "")
    few = document(place + b"/result")
    assert run_fprof(ONE, *options, "--threads", "1", tree).code == 0
    assert few["counts"] == document(place + b"/result")["counts"]
    assert few["counts"]["files"]["number"] == 2000
