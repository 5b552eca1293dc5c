"""Broadcasts to hosts: network namespaces with names of their own, on which MPI starts the ranks.

They share a file system, so `{host}` in DST makes the directories of the nodes, and the source can
be watched to find which host opens it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

import pytest

from tests.hosts import Hosts, environment_of_ranks, hosts_in
from tests.tools.fcp.judge import differences
from tests.tools.fcp.running import Finished, Run
from tests.tools.fcp.trees import MIB, content, make_directory, write_file


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts_in(tmp_path_factory.mktemp("hosts"), 3) as hosts:
        yield hosts


def run_on(hosts: Hosts, ranks: Sequence[int], place: bytes, *arguments: str | bytes) -> Finished:
    line = [*hosts.mpirun(ranks), sys.executable, "-m", "pcircle.tools.fbcast"]
    arguments = ("--record-dir", place + b"/records", *arguments)
    with Run(None, line=[*line, *arguments], environment=environment_of_ranks({})) as run:
        return run.finish()


def build(place: bytes) -> bytes:
    tree = make_directory(place, b"tree")
    write_file(tree + b"/large", content(1, 5 * MIB))
    for number in range(100):
        write_file(make_directory(tree, b"%d" % number) + b"/file", content(number, 1000))
    return tree


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [(1, 1, 1), (3, 1, 2)], ids=str)
def test_one_rank_of_each_host_acts(hosts: Hosts, place: bytes, ranks: tuple[int, ...]) -> None:
    tree = build(place)
    folders = [make_directory(place, os.fsencode(name)) for name in hosts.names]
    finished = run_on(hosts, ranks, place, "-v", tree, place + b"/{host}")
    assert finished.code == 0, finished.said
    assert "on 3 nodes in" in finished.said
    assert all(f"node {name}: done" in finished.said for name in hosts.names)
    assert [differences(tree, folder + b"/tree") for folder in folders] == [[]] * 3
    finished = run_on(hosts, ranks, place, "--check", tree, place + b"/{host}")
    assert finished.code == 0, finished.said
    with open(folders[1] + b"/tree/7/file", "r+b") as file:
        file.write(b"!")
    finished = run_on(hosts, ranks, place, "--check", tree, place + b"/{host}")
    assert finished.code == 3, finished.said
    assert f"node {hosts.names[1]}: differs from the source" in finished.said


@pytest.mark.mpi
def test_a_directory_of_records_of_each_host_is_refused(hosts: Hosts, place: bytes) -> None:
    """The record is useless unless all hosts share it."""
    tree = build(place)
    folders = [make_directory(place, os.fsencode(name)) for name in hosts.names]
    program = place + b"/program"
    write_file(
        program,
        b"#!/bin/sh\nmkdir -p %b/own\nmount -t tmpfs none %b/own\n" % (place, place)
        + b'exec %b -m pcircle.tools.fbcast "$@"\n' % os.fsencode(sys.executable),
        0o755,
    )
    line: list[str | bytes] = [*hosts.mpirun((1, 1, 1)), "unshare", "--mount", program]
    line += ["--record-dir", place + b"/own", tree, place + b"/{host}"]
    with Run(None, line=line, environment=environment_of_ranks({})) as run:
        finished = run.finish()
    assert finished.code == 2, finished.said
    assert "/own is not shared by all nodes; specify another with --record-dir" in finished.said
    assert [os.listdir(folder) for folder in folders] == [[]] * 3


@pytest.mark.mpi
def test_one_directory_for_all_hosts_is_refused(hosts: Hosts, place: bytes) -> None:
    tree = build(place)
    shared = make_directory(place, b"shared")
    finished = run_on(hosts, (1, 1, 1), place, tree, shared)
    assert finished.code == 2, finished.said
    assert "other nodes use the same directory; use {host} in its name" in finished.said
    assert os.listdir(shared) == []
