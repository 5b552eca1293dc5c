"""Ranks of a node share flushes of its file system: the number of syncs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.programs import required
from tests.strace import read_calls

from .judge import differences
from .running import FCP, Launcher, Run, command
from .trees import build_flat_tree

RANKS = 6
# Each rank records the epochs that are committed.
NOTING = """
import os, sys
from pcircle.ops.checkpoint.journal import Journal
notes = os.open(sys.argv.pop(), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
commit = Journal.commit
def noted(self, epoch, counts):
    os.write(notes, b"%d\\n" % epoch)
    commit(self, epoch, counts)
Journal.commit = noted
from pcircle.tools.fcp.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "launcher",
    [
        Launcher(jobs=RANKS),
        pytest.param(Launcher(ranks=RANKS), marks=pytest.mark.mpi),
        pytest.param(Launcher(jobs=4, ranks=2), marks=pytest.mark.mpi),
    ],
    ids=str,
)
def test_few_flushes_an_epoch(launcher: Launcher, place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 60, 20, 500)
    trace, notes, target = place + b"/trace", place + b"/notes", place + b"/copy"
    line: list[str | bytes] = [required("strace"), "-f", "-e", "trace=syncfs", "-o", trace]
    for ops_limit in ("2000", "500", "100"):
        arguments = ("-p", "--checkpoint-interval", "0.3", "--ops-limit", ops_limit, "-T")
        fcp = command(launcher, [*arguments, source, target, notes])
        at = fcp.index("-m")
        fcp[at : at + 1 + len(FCP)] = ["-c", NOTING]
        with Run(None, line=[*line, *fcp]) as run:
            finished = run.finish()
        assert finished.code == 0, finished.said
        assert differences(source, target) == []
        epochs = len(set(Path(notes.decode()).read_text().split()))
        if epochs > 2:
            break
        shutil.rmtree(target)  # a busy machine has copied everything in few epochs
        os.unlink(notes)
    assert epochs > 2
    # On an idle machine 1 to 2 per epoch.
    flushes = len(read_calls(trace))
    assert flushes <= 0.6 * launcher.size * epochs, f"{flushes} flushes in {epochs} epochs"
