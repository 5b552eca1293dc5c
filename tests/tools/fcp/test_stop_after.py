"""A copy that stops at a time limit: cleanly, and the next command continues it.

The source is on a file system on which the whole copy takes far longer than the limit.
"""

from __future__ import annotations

import os
import re
import shlex

import pytest

from ...fusefs.fixture import Mount
from ...fusefs.rules import Rule
from .judge import CONTENT, differences
from .running import ONE, TWO, Launcher, document, launchers, run_fcp
from .trees import build_flat_tree, build_small_tree

SLOW = Rule(ops=("open",), path="source/*/*", delay_s=0.5)


@pytest.mark.parametrize("launcher", launchers([1, 2], [2]))
def test_a_limit_stops_a_copy_that_continues_later(
    launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    """A hundred opens of half a second exceed a second. Then the printed command runs."""
    mounted = fuse()
    source = build_flat_tree(os.path.join(mounted.path, b"source"), 4, 25, 100)
    target, result = place + b"/copy", place + b"/result"
    mounted.rules(SLOW)
    common = ("--threads", "1", "--json", result, source, target)
    stopped = run_fcp(launcher, "--stop-after", "1", *common)
    assert stopped.code == 4, stopped.said
    assert "fcp: time limit reached (--stop-after 1.00s)\n" in stopped.said
    before = document(result)
    assert before["exit_code"] == 4
    assert before["entries"] < 100
    found = re.search(r"to continue, run: fcp (--resume .*)", stopped.said)
    assert found is not None
    mounted.rules()
    words = shlex.split(found[1])
    at = words.index("--stop-after")
    words[at + 1] = "1h"  # the limit may be reached again
    finished = run_fcp(None if launcher.jobs else launcher, *words)
    assert finished.code == 0, finished.said
    after = document(result)
    assert after["resumed"] <= before["entries"]
    assert after["entries"] == 105
    assert differences(source, target, CONTENT) == []
    assert [name for name in os.listdir(place) if name.startswith(b".fcp")] == []


def test_an_unreached_limit_prints_nothing(place: bytes) -> None:
    source = build_small_tree(place + b"/source")
    done = run_fcp(TWO, "--stop-at", "2199-01-01", source, place + b"/copy")
    assert done.code == 0, done.said
    assert "limit" not in done.said


def test_a_missing_checkpoint_is_reported(place: bytes, fuse: Mount) -> None:
    mounted = fuse()
    source = build_flat_tree(os.path.join(mounted.path, b"source"), 1, 50, 100)
    mounted.rules(SLOW)
    options = ("--threads", "1", "--no-checkpoint", "--stop-after", "500ms")
    stopped = run_fcp(TWO, *options, source, place + b"/copy")
    assert stopped.code == 4, stopped.said
    said = "fcp: no checkpoint was kept; to start over, run: fcp -j 2 --threads 1 --no-checkpoint "
    assert said in stopped.said


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_a_limit_may_be_months_away(launcher: Launcher, place: bytes) -> None:
    """The kernel waits for no more than 24 days at once."""
    source = build_flat_tree(place + b"/source", 3, 400, 10)
    limits = "--no-checkpoint", "--quiet", "--threads", "1", "--ops-limit", "2000"
    finished = run_fcp(launcher, *limits, "--stop-after", "60d", source, place + b"/copy")
    assert finished.code == 0, finished.said
