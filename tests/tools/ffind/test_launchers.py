"""Every launcher finds the same entries, and in the same order if one is requested."""

from __future__ import annotations

import json
import os
import subprocess

from tests.tools.fcp.running import Launcher

from .running import by_find, every_launcher, run_ffind

SEARCHES = [
    (".",),
    (".", "-type", "f", "-size", "+1k", "-printf", "%s %p\\n"),
    (".", "-depth", "-not", "-name", "a*"),
    ("-L", ".", "-newer", "plain", "-o", "-links", "+1"),
    (".", "-type", "d", "-exec", "echo", "{}", "+"),
]


@every_launcher
def test_all_ranks_agree_with_find(tree: bytes, launcher: Launcher) -> None:
    for words in SEARCHES:
        finished = run_ffind(launcher, *words, cwd=tree)
        lines = finished.out.split(b"\n")[:-1]
        expected = by_find(*words, cwd=tree, code=finished.code)
        if "+" in words:
            lines, expected = (b" ".join(output).split() for output in (lines, expected))
        assert sorted(lines) == sorted(expected), words


@every_launcher
def test_sorted_as_sort_does(tree: bytes, launcher: Launcher) -> None:
    sort = "find . -print0 | LC_ALL=C sort -z"
    done = subprocess.run(sort, shell=True, cwd=tree, capture_output=True, check=True)
    assert run_ffind(launcher, ".", "-print0", "--sort", cwd=tree).out == done.stdout


@every_launcher
def test_the_account_adds_up(tree: bytes, launcher: Launcher) -> None:
    counted = run_ffind(
        launcher, ".", "--json", "-", "-name", "a*", "-fprint", "/dev/null", cwd=tree
    )
    counts = json.loads(counted.out)["counts"]
    ends = ("files", "directories", "links", "special", "failed", "kept", "vanished")
    assert counts["found"] == sum(counts[end] for end in ends)
    assert counts["found"] == len(by_find(".", "-printf", "%i\\n", cwd=tree))
    assert os.path.exists(tree)


@every_launcher
def test_limits_are_exact(tree: bytes, launcher: Launcher) -> None:
    limited = run_ffind(launcher, ".", "-type", "f", "-print0", "-limit", "7", cwd=tree)
    assert (limited.code, limited.out.count(b"\0")) == (0, 7)
    once = run_ffind(launcher, ".", "-name", "a*", "-print0", "-quit", cwd=tree)
    assert (once.code, once.out.count(b"\0")) == (0, 1)
    assert run_ffind(launcher, ".", "-name", "a*", "-exists", cwd=tree).code == 0
    assert run_ffind(launcher, ".", "-name", "no such", "-exists", cwd=tree).code == 3
    top = run_ffind(launcher, ".", "-type", "f", "-printf", "%s\\n", "--top", "3", cwd=tree)
    assert top.out.split() == [b"3145728", b"3145728", b"3145728"]
    count = run_ffind(launcher, ".", "-type", "l", "-count", cwd=tree)
    assert int(count.out) == len(by_find(".", "-type", "l", "-printf", "x\\n", cwd=tree))
