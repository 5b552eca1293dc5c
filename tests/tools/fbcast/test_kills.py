"""Processes that are killed, and stop signals: all surviving nodes show the data or none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.tools.fcp.judge import differences
from tests.tools.fcp.running import Finished, Launcher, launchers
from tests.tools.fcp.trees import MIB, content, make_directory, write_file

from .running import broadcast, left_over, run_fbcast, start, target, targets

DYING = ("tests.tools.fbcast.dying",)
LAST_STEP = 40


def _tree(place: bytes) -> bytes:
    tree = make_directory(place, b"tree")
    write_file(tree + b"/large", content(1, 2 * MIB + MIB // 2))
    for number in range(10):
        write_file(tree + b"/%d" % number, content(number, 1000))
    return tree


def _die(
    launcher: Launcher, place: bytes, victim: int, step: int, *arguments: str | bytes
) -> Finished:
    program = (*DYING, str(victim), str(step))
    with start(launcher, place, *arguments, program=program) as run:
        finished = run.finish()
        assert run.wait_until_gone() == []
    return finished


def _shown(nodes: list[bytes]) -> list[bool]:
    return [os.path.exists(node + b"/tree") for node in nodes]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("victim", [0, 1, 3])
def test_a_node_may_die_at_any_step(place: bytes, victim: int) -> None:
    """A step is each call of its disk and its records: each chunk, the vote, the decision, the end.

    For the first and last node of the chain every third step is enough, except in a soak.
    """
    tree = _tree(place)
    launcher = Launcher(jobs=4)
    seen = set()
    for step in range(1, LAST_STEP, 1 if SOAK or victim == 1 else 3):
        here = make_directory(place, b"%d" % step)
        nodes = targets(here, 4)
        finished = _die(launcher, here, victim, step, tree, target(here))
        shown = _shown(nodes)
        survivors = {state for rank, state in enumerate(shown) if rank != victim}
        assert len(survivors) == 1, (step, shown, finished.said)
        seen |= survivors
        if finished.code == 0:
            assert shown == [True] * 4
            break
        if victim:
            assert finished.code == 4, finished.said
            # It is named by number alone if its host is unknown; in the end the parent names it.
            said = finished.said.replace("): the process was lost", ": killed")
            assert f"rank {victim}: " in said, (step, said)
        again = run_fbcast(launcher, here, "--update", tree, target(here))
        assert again.code == 0, (step, again.said)
        assert [differences(tree, node + b"/tree") for node in nodes] == [[]] * 4
        assert [name for name in left_over(here) if name.startswith(b".")] == []
    else:
        pytest.fail("it died at every step")
    assert step > 12
    assert seen == {True, False}


@pytest.mark.faults
def test_a_rerun_completes_an_earlier_decision(place: bytes) -> None:
    """Nothing is sent for it, and a message reports it."""
    tree = _tree(place)
    nodes = targets(place, 3)
    launcher = Launcher(jobs=3)
    for step in range(12, LAST_STEP):
        finished = _die(launcher, place, 2, step, tree, target(place))
        if _shown(nodes) == [True, True, False]:
            break
        broadcast(launcher, place, "--remove", tree, target(place))
    assert finished.code == 4
    again = broadcast(launcher, place, tree, target(place))
    assert "completed the work of an earlier run on 3 nodes; nothing was sent" in again.said
    assert [differences(tree, node + b"/tree") for node in nodes] == [[]] * 3


@pytest.mark.faults
def test_remaining_nodes_continue_without_a_lost_one(place: bytes) -> None:
    tree = _tree(place)
    nodes = targets(place, 4)
    finished = _die(Launcher(jobs=4), place, 1, 7, "--partial", tree, target(place))
    # The local launcher names the killed rank, whatever the other ranks did.
    assert finished.code in (1, 4), finished.said
    assert "(rank 1): the process was lost: killed by SIGKILL" in finished.said
    assert _shown(nodes) == [True, False, True, True]
    for rank in (0, 2, 3):
        assert differences(tree, nodes[rank] + b"/tree") == []


@pytest.mark.mpi
@pytest.mark.faults
@pytest.mark.parametrize("step", [1, 6, 8, 13, 15, 17])
def test_under_mpi_the_next_run_finishes_or_removes(place: bytes, step: int) -> None:
    """The launcher ends all ranks together with the killed one."""
    tree = _tree(place)
    nodes = targets(place, 3)
    launcher = Launcher(ranks=3)
    assert _die(launcher, place, 1, step, tree, target(place)).code != 0
    finished = run_fbcast(launcher, place, "--update", tree, target(place))
    assert finished.code == 0, finished.said
    assert [differences(tree, node + b"/tree") for node in nodes] == [[]] * 3
    assert [name for name in left_over(place) if name.startswith(b".")] == []


@pytest.mark.parametrize("launcher", launchers([1, 3], [2]), ids=str)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_stop_signals(launcher: Launcher, number: signal.Signals, place: bytes) -> None:
    """Nothing is left, and the command to repeat the run is printed."""
    tree = _tree(place)
    nodes = targets(place, launcher.size)
    with start(launcher, place, "--bwlimit", "100k", tree, target(place)) as run:
        assert run.wait_for(nodes[-1])
        run.signal(number)
        finished = run.finish()
    if launcher.jobs:  # under MPI the launcher has its own exit code
        assert finished.code == 128 + number, finished.said
        assert "to try again, run: fbcast " in finished.said
    assert [os.listdir(node) for node in nodes] == [[]] * launcher.size


def test_thousands_of_small_files_are_one_stream(place: bytes) -> None:
    """The messages are counted: a chunk has hundreds of files."""
    tree = make_directory(place, b"tree")
    for folder in range(100):
        inner = make_directory(tree, b"%d" % folder)
        for number in range(200):
            with open(inner + b"/%d" % number, "wb") as file:
                file.write(b"%d" % number * 100)
    nodes = targets(place, 3)
    counts = place + b"/counts"
    environment = {"FBCAST_COUNTS": os.fsdecode(counts)}
    arguments = (tree, target(place))
    program = (*DYING, "0", "0")
    launcher = Launcher(jobs=3)
    with start(launcher, place, *arguments, environment=environment, program=program) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert "20,101 entries" in finished.said
    assert [differences(tree, node + b"/tree") for node in nodes] == [[]] * 3
    # A message for each file, or for each folder, would be thousands, or hundreds.
    sent = [int(Path(os.fsdecode(counts + b"-%d" % rank)).read_text()) for rank in range(3)]
    assert all(0 < sent_count < 100 for sent_count in sent), sent
