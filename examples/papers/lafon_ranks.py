"""Ranks that walk a tree with pcircle's engine: the processes of `examples.papers.lafon_real`.

    python -m examples.papers.lafon_ranks JOB

JOB is a `Job` as JSON. Each path of the tree is an item, as in LaFon et al. 2012: a rank calls
lstat and, if the path is a directory, reads it. These calls take microseconds in memory, so the
rank then sleeps for `Job.element_s`, as if it waited for a parallel file system. Ranks are local
processes that simulate nodes of `Job.per_node` ranks. A message to another node takes
`Job.delay_s`, and a message within a node a fifth of it (`examples.papers.delayed`). With
`Job.over_mpi`, mpirun starts this program once on each node, and no message is delayed here. The
program prints a `Run` as JSON.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Sequence

import msgspec

from examples.papers.delayed import Delay, Delayed
from pcircle.circle import ProgressSums
from pcircle.runtime import Context, Observer, Outcome, Program, RankReport, Task, run_program
from pcircle.runtime.job import run_on
from pcircle.transport._fork import launch_local
from pcircle.transport.contract import Transport

NEAR_PART = 0.2
"""The delay within a node as a part of that between nodes, as in `examples.papers.lafon_cost`."""


class Job(msgspec.Struct, frozen=True):
    """The walk of a tree; `policies` are in the form of the environment variable PCIRCLE_ENGINE."""

    root: str
    ranks: int
    per_node: int
    policies: str
    delay_s: float
    element_s: float
    over_mpi: bool = False


class Run(msgspec.Struct, frozen=True):
    """One walk, from the first item until the ranks agree that it has ended.

    `elements` and `busy_s` have a value for each rank. `pair_messages` and `pair_bytes` are
    [source][receiver].
    """

    time_s: float
    elements: list[int]
    busy_s: list[float]
    requests: int
    pair_messages: list[list[int]]
    pair_bytes: list[list[int]]

    @property
    def idle(self) -> float:
        """The fraction of the ranks' total time in which they had no element to visit."""
        return 1 - sum(self.busy_s) / (self.time_s * len(self.busy_s))


class Walk(Task[bytes, int]):
    """A walk that counts elements."""

    structured = False

    def __init__(self, root: bytes, element_s: float) -> None:
        self._root = root
        self._element_s = element_s
        self._busy_s = 0.0

    def seed(self) -> Sequence[bytes]:
        return [self._root]

    def process(self, item: bytes, context: Context[bytes]) -> int:
        begun_s = time.monotonic()
        if stat.S_ISDIR(os.lstat(item).st_mode):
            context.spawn([os.path.join(item, name) for name in os.listdir(item)])
        time.sleep(self._element_s)
        self._busy_s += time.monotonic() - begun_s
        return 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def measure(self) -> ProgressSums:
        return ProgressSums(ranks=1, counts=(round(self._busy_s * 1e6),))


class Measurement(Observer[int]):
    """Prints the `Run` at its end."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()

    def conclude(self, outcome: Outcome[int]) -> int:
        time_s = time.monotonic() - self._begun_s
        reports = outcome.reports
        if sum(report.items for report in reports) != outcome.result:
            raise RuntimeError(f"{outcome.result} elements, but other items were counted")
        run = Run(
            time_s=time_s,
            elements=[report.items for report in reports],
            busy_s=[report.counts[0] / 1e6 for report in reports],
            requests=sum(report.steals_asked for report in reports),
            pair_messages=_matrix(reports, 1),
            pair_bytes=_matrix(reports, 2),
        )
        print(msgspec.json.encode(run).decode())
        return super().conclude(outcome)


def _matrix(reports: Sequence[RankReport], column: int) -> list[list[int]]:
    matrix = [[0] * len(reports) for _ in reports]
    for report in reports:
        for sent in report.sent:
            matrix[report.rank][sent[0]] = sent[column]
    return matrix


class WalkProgram(Program):
    """A walk on all ranks."""

    def __init__(self, job: Job) -> None:
        self.policies = job.policies
        self._job = job

    def prepare(self, nodes: Sequence[int]) -> bytes:
        return b""

    def task(self, plan: bytes, rank: int, size: int) -> Walk:
        return Walk(os.fsencode(self._job.root), self._job.element_s)

    def observer(self, plan: bytes) -> Measurement:
        return Measurement()


def main(text: str) -> int:
    """Run the job of a JSON document."""
    job = msgspec.json.decode(text, type=Job)
    if job.over_mpi:
        return run_program(WalkProgram(job), job.per_node, "mpi")
    nodes = tuple(rank // job.per_node for rank in range(job.ranks))
    delay = Delay(0.0, job.delay_s, job.delay_s * NEAR_PART)

    def body(transport: Transport) -> int:
        delayed = Delayed(transport, delay, nodes=nodes)
        code = run_on(WalkProgram(job), delayed)
        delayed.close()
        return code

    return launch_local(job.ranks, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
