"""Copies by MPI ranks on several hosts, whose network can be cut.

The hosts are namespaces, see `tests.hosts`. They share a file system like the nodes of a cluster:
the tests cover communication between ranks, not parallel file systems.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.hosts import Hosts, environment_of_ranks, hosts_in

from .judge import CONTENT, differences
from .running import HANG_S, Finished, Run, document
from .test_hard_links import assert_same_links, build, overlay
from .trees import MIB, build_flat_tree, content, make_directory, write_file


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts_in(tmp_path_factory.mktemp("hosts"), 3) as hosts:
        yield hosts


def start(hosts: Hosts, ranks: Sequence[int], *arguments: str | bytes) -> Run:
    """Start a copy with the given number of ranks on each host."""
    line = [*hosts.mpirun(ranks), sys.executable, "-m", "pcircle.tools.fcp", *arguments]
    return Run(None, line=line, environment=environment_of_ranks({}))


def copy(hosts: Hosts, ranks: Sequence[int], *arguments: str | bytes) -> Finished:
    with start(hosts, ranks, *arguments) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    return finished


@pytest.mark.parametrize(
    ("ranks", "jobs"), [((2, 2, 1), 1), ((1, 1, 1), 1), ((1, 1, 1), 2), ((1, 2, 1), 3)], ids=str
)
def test_copies_are_identical(
    ranks: tuple[int, ...], jobs: int, hosts: Hosts, place: bytes
) -> None:
    """MPI starts one rank per host, with additional local ones."""
    source = build(place + b"/source")
    for number in range(3):
        write_file(source + b"/large%d" % number, content(number, 30 * MIB))
    result = place + b"/result"
    options = ("-a", "--chunksize", "4M", "-s", "--json", result, f"-j{jobs}")
    copy(hosts, ranks, *options, source, place + b"/copy")
    assert differences(source, place + b"/copy", CONTENT) == []
    assert_same_links(source, place + b"/copy")
    shares = document(result)["ranks"]
    nodes = [node for node, number in enumerate(ranks) for _ in range(number * jobs)]
    assert [rank["node"] for rank in shares] == nodes


def test_hard_links_that_hosts_number_differently_are_counted(
    hosts: Hosts, place: bytes, mount: Callable[..., bytes]
) -> None:
    """Files of overlayfs are on other devices than their directories; numbers differ by host."""
    result = place + b"/result"
    with overlay(place, [mount("tmpfs"), mount("tmpfs")]) as whole:
        copy(hosts, (1, 1), "-a", "--json", result, whole, place + b"/copy")
        assert differences(whole, place + b"/copy", CONTENT) == []
    assert document(result)["not_kept"] == {"hard links": 60}


def test_one_rank_a_host_with_many_threads(hosts: Hosts, place: bytes, fuse: Mount) -> None:
    """Hybrid ranks on a slow file system have dozens of operations in progress."""
    mounted = fuse()
    source = build_flat_tree(mounted.backing + b"/source", 60, 20, 1000)
    mounted.rules(Rule(delay_s=0.002))
    result = place + b"/result"
    arguments = ("-p", "--json", result, mounted.path + b"/source", mounted.path + b"/copy")
    copy(hosts, (1, 1, 1), *arguments)
    assert differences(source, mounted.backing + b"/copy") == []
    shares = document(result)["ranks"]
    assert all(rank["entries"] > 0 for rank in shares)
    tried = {int(number) for rank in shares for number in rank["work_per_s"].get("metadata", ())}
    assert max(tried) >= 8


@pytest.mark.parametrize(("ranks", "jobs"), [((2, 2, 1), 1), ((1, 1, 1), 3)], ids=str)
def test_an_unplugged_cable(ranks: tuple[int, ...], jobs: int, hosts: Hosts, place: bytes) -> None:
    """TCP repeats the lost packets; nothing is lost or done twice."""
    source = build_flat_tree(place + b"/source", 100, 50, 2000)
    target, result = place + b"/copy", place + b"/result"
    # Slow enough that the cable is unplugged during the copy.
    arguments = ("-p", "--ops-limit", "1500", "--json", result, "-T", source, target)
    with start(hosts, ranks, f"-j{jobs}", *arguments) as run:
        assert run.wait_for(target)
        try:
            hosts.pull_cable(1)
            time.sleep(1.0)
            assert run.process.poll() is None, "it was over before"
        finally:
            hosts.plug_in(1)
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert differences(source, target) == []
    assert document(result)["entries"] == 100 * 50 + 101


def test_interrupted_and_resumed_by_other_hosts(hosts: Hosts, place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 100, 50, 2000)
    target = place + b"/copy"
    arguments = ("-p", "--checkpoint-interval", "0.2", "-T", source, target)
    with start(hosts, (2, 2, 1), "--ops-limit", "1000", *arguments) as run:
        assert run.wait_for(target)
        time.sleep(0.6)
        run.kill()
        assert run.finish().code != 0
    with start(hosts, (1, 0, 2), "-j2", "--resume", *arguments) as run:
        finished = run.finish(2 * HANG_S)
    assert finished.code == 0, finished.said
    assert differences(source, target) == []


def test_a_program_for_each_host_is_one_job(hosts: Hosts, place: bytes) -> None:
    """A usage error is printed once, and all hosts end with its code."""
    make_directory(place, b"source")
    with start(hosts, (1, 1, 1), "--nonsense", place + b"/source", place + b"/copy") as run:
        finished = run.finish()
    assert finished.code == 2
    assert finished.said.count("--nonsense") == 1


def test_a_killed_rank_that_mpi_did_not_start_is_named(hosts: Hosts, place: bytes) -> None:
    """The job ends cleanly on all hosts, and can be resumed."""
    source = build_flat_tree(place + b"/source", 100, 50, 2000)
    target = place + b"/copy"
    arguments = ("-p", "-j3", "--checkpoint-interval", "0.2", "-T", source, target)
    with start(hosts, (1, 1, 1), "--ops-limit", "1000", *arguments) as run:
        assert run.wait_for(target)
        time.sleep(0.6)
        leaves = [pid for pid in run.processes() if _is_forked(pid)]
        assert len(leaves) == 6
        os.kill(leaves[-1], signal.SIGKILL)
        finished = run.finish()
        assert run.wait_until_gone() == []
    assert finished.code == 4, finished.said
    lost = re.search(r"rank (\d+) was lost: killed by SIGKILL \(pid (\d+)\)", finished.said)
    assert lost is not None, finished.said
    assert (int(lost[1]) % 3 > 0, int(lost[2])) == (True, leaves[-1])
    assert "the counts exclude the work of these processes" in finished.said
    with start(hosts, (1, 1, 1), "--resume", *arguments) as run:
        finished = run.finish(2 * HANG_S)
    assert finished.code == 0, finished.said
    assert differences(source, target) == []


def _is_forked(pid: int) -> bool:
    """Return whether a process runs the same command as its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        parent = stat.rpartition(")")[2].split()[1]
        lines = [Path(f"/proc/{process}/cmdline").read_bytes() for process in (pid, parent)]
    except OSError:
        return False
    return b"pcircle.tools.fcp" in lines[0] and lines[0] == lines[1] and b"mpirun" not in lines[0]
