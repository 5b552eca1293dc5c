"""A commit that a rank executes late, when the others have ended the job."""

from __future__ import annotations

import os

import pytest

from .judge import differences
from .running import FCP, HYBRID, OF_CHECKPOINTS, Launcher, Run, command
from .trees import build_flat_tree

# The first commit of a rank waits until its work is finished, and then some time longer.
LATE = """
import sys, threading, time
from pcircle.ops.copy.tree.task import JournaledCopy as task
commit, finish = task.commit, task.finish
finished = threading.Event()
def late(self, epoch):
    if self._worker.rank:
        finished.wait(20)
        time.sleep(0.3)
    commit(self, epoch)
def noted(self):
    finish(self)
    finished.set()
task.commit, task.finish = late, noted
from pcircle.tools.fcp.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "launcher",
    [
        Launcher(jobs=3),
        pytest.param(Launcher(ranks=3), marks=pytest.mark.mpi),
        pytest.param(HYBRID, marks=pytest.mark.mpi),
    ],
    ids=str,
)
def test_a_late_commit_fails_nothing(launcher: Launcher, place: bytes) -> None:
    """The checkpoint has been removed by then."""
    source = build_flat_tree(place + b"/source", 40, 20, 500)
    arguments = ("-p", "--checkpoint-interval", "0.05", "--ops-limit", "2000")
    fcp = command(launcher, [*arguments, source, place + b"/copy"])
    at = fcp.index("-m")
    fcp[at : at + 1 + len(FCP)] = ["-c", LATE]
    with Run(None, line=fcp) as run:
        finished = run.finish()
    assert (finished.code, finished.said) == (0, "")
    assert differences(source, place + b"/copy") == []
    assert not [name for name in os.listdir(place) if name.startswith(OF_CHECKPOINTS)]


# The commit of rank 1 fails when it has reported its work, while rank 0 still prepares its report.
FAILING = """
import sys, threading, time
from pcircle.core.errors import NoSpace
from pcircle.ops.copy.tree.task import JournaledCopy as task
from pcircle.runtime.loop import Rank as loop
report, reported = loop._report, threading.Event()
def failing(self, epoch):
    if self._worker.rank:
        reported.wait(20)
        time.sleep(0.2)
        raise NoSpace("cannot write the checkpoint: No space left on device")
def noted(self):
    found = report(self)
    reported.set()
    time.sleep(0 if self._transport.rank else 1.5)
    return found
task.commit, loop._report = failing, noted
from pcircle.tools.fcp.cli import main
sys.exit(main())
"""


def test_a_commit_that_fails_after_the_end_is_not_reported(place: bytes) -> None:
    """A resumed copy repeats the work of that commit; the way to resume comes last."""
    source = build_flat_tree(place + b"/source", 40, 20, 500)
    limits = ("--checkpoint-interval", "0.05", "--ops-limit", "500", "--stop-after", "0.5")
    fcp = command(Launcher(jobs=2), ["-p", *limits, source, place + b"/copy"])
    at = fcp.index("-m")
    fcp[at : at + 1 + len(FCP)] = ["-c", FAILING]
    with Run(None, line=fcp) as run:
        finished = run.finish()
    assert finished.code == 4, finished.said
    assert "cannot write the checkpoint" not in finished.said
    assert finished.said.splitlines()[-1].startswith("fcp: to continue, ")
