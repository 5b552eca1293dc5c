"""Ranks on several hosts: the targets of their requests for work, and their number of threads.

The hosts are namespaces with a network between them, see `tests.hosts`; the ranks are MPI's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pcircle.threads.thread_tuning import max_threads
from tests.conftest import Run
from tests.hosts import Hosts, environment_of_ranks, hosts_in
from tests.runtime.conftest import command
from tests.runtime.tasks import Told


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts_in(tmp_path_factory.mktemp("hosts"), 3) as hosts:
        yield hosts


def stealing_requests(folder: Path) -> list[tuple[int, int, bool, int | None]]:
    """Return all requests: from, to, whether to be passed on, and the thief."""
    rows = []
    for path in folder.glob("asked-*"):
        for line in path.read_text().splitlines():
            source, dest, onward, thief = line.split()
            rows.append(
                (int(source), int(dest), onward == "1", None if thief == "None" else int(thief))
            )
    return rows


@pytest.mark.parametrize("ranks", [(2, 2, 2), (3, 1, 2)], ids=str)
def test_requests_leave_a_host_through_its_leader_and_every_rank_works(
    ranks: tuple[int, ...], hosts: Hosts, run: Run, tmp_path: Path
) -> None:
    line = [*hosts.mpirun(ranks), *command(0, "watched", 4, 5, tmp_path)]
    done = run(line, env=environment_of_ranks(os.environ))
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode(done.stdout, type=Told)
    assert report.result == 2 * sum(4**level for level in range(6)) == sum(report.items)
    assert min(report.items) > 0
    nodes = report.nodes
    assert nodes == tuple(host for host, number in enumerate(ranks) for _ in range(number))

    leaders = [nodes.index(node) for node in range(3)]
    requests = stealing_requests(tmp_path)
    outward = [row for row in requests if nodes[row[0]] != nodes[row[1]]]
    assert {row[0] for row in outward} <= set(leaders)
    passed_on = [row for row in outward if row[3] is not None]
    assert passed_on, "no request was passed on"
    assert all(
        nodes[row[3]] == nodes[row[0]] != nodes[row[1]] for row in passed_on if row[3] is not None
    )
    to_pass_on = [row for row in requests if row[2]]
    assert all(row[1] == leaders[nodes[row[0]]] for row in to_pass_on)
    assert len(passed_on) <= len(to_pass_on)


def test_single_ranks_of_hosts_steal_from_each_other(
    hosts: Hosts, run: Run, tmp_path: Path
) -> None:
    line = [*hosts.mpirun((1, 1, 1)), *command(0, "watched", 4, 5, tmp_path)]
    done = run(line, env=environment_of_ranks(os.environ))
    report = msgspec.json.decode(done.stdout, type=Told)
    assert (report.result, report.nodes) == (sum(report.items), (0, 1, 2))
    requests = stealing_requests(tmp_path)
    assert not any(row[2] or row[3] is not None for row in requests)
    assert {row[:2] for row in requests} >= {(1, 0), (2, 0)}


@pytest.mark.parametrize(
    ("nodes", "most"),
    [
        ([0, 1, 2], [64, 64, 64]),
        ([0, 0, 1], [64, 64, 64]),
        ([0] * 8 + [1] * 2, [16] * 8 + [64] * 2),
        ([0] * 500, [1] * 500),
    ],
)
def test_ranks_share_the_threads_of_their_node(nodes: list[int], most: list[int]) -> None:
    assert [max_threads(nodes, rank) for rank in range(len(nodes))] == most
