"""Ranks of a node flush its file system for each other: how often the kernel is asked to."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .judge import differences
from .running import HYBRID, Launcher, Run, command
from .trees import build_flat_tree

RANKS = 6


@pytest.mark.parametrize(
    "launcher",
    [
        Launcher(jobs=RANKS),
        pytest.param(Launcher(ranks=RANKS), marks=pytest.mark.mpi),
        pytest.param(HYBRID, marks=pytest.mark.mpi),
    ],
    ids=str,
)
def test_few_flushes_an_epoch(launcher: Launcher, place: bytes) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    source = build_flat_tree(place + b"/source", 60, 20, 500)
    trace = place + b"/trace"
    line: list[str | bytes] = [strace, "-f", "-e", "trace=syncfs,fdatasync", "-o", trace]
    arguments = ("-p", "--checkpoint-interval", "0.3", "--ops-limit", "2000", "-T")
    line += command(launcher, [*arguments, source, place + b"/copy"])
    with Run(None, line=line) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert differences(source, place + b"/copy") == []
    calls = Path(trace.decode()).read_text()
    flushes = len(re.findall(r"syncfs\(", calls))
    commits = len(re.findall(r"fdatasync\(", calls))  # of each rank in each epoch, and a few more
    epochs = commits / launcher.size
    assert epochs > 2
    # On a machine with nothing else to do 1 to 2 an epoch; one a rank would be as many as commits.
    assert flushes <= 0.6 * commits, f"{flushes} flushes in {epochs:.1f} epochs"
