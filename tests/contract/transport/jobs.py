"""The transports of the contract suite, and jobs on them.

``BINDINGS`` lists all transports. A binding has a name, the possible numbers of ranks, and a
function that runs a body (``bodies``) on that many ranks and returns their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from pcircle.transport._sim import Conditions, Network
from tests.conftest import Run
from tests.contract.transport.bodies import Steps
from tests.contract.transport.running import command, results

Body = Callable[..., Steps]


class Binding(NamedTuple):
    """One transport, from the suite's point of view.

    *run* takes the test's request (for fixtures), the number of ranks, the body and its arguments;
    it returns the ranks' results, in order, and raises if the job failed. *is_real*: time passes by
    itself and ranks are processes, with threads and signals.
    """

    name: str
    sizes: tuple[int, ...]
    is_real: bool
    run: Callable[[pytest.FixtureRequest, int, Body, tuple[Any, ...]], list[Any]]


class Job(NamedTuple):
    """A number of ranks on one transport, for one test."""

    binding: Binding
    size: int
    request: pytest.FixtureRequest

    def run(self, body: Body, *arguments: Any) -> list[Any]:
        """Run *body* on all ranks; return their results, in order."""
        return self.binding.run(self.request, self.size, body, arguments)


def _run_processes(kind: str) -> Callable[..., list[Any]]:
    def run_body(
        request: pytest.FixtureRequest, size: int, body: Body, arguments: tuple[Any, ...]
    ) -> list[Any]:
        run: Run = request.getfixturevalue("run")
        folder: Path = request.getfixturevalue("tmp_path")
        started = command(kind, size, body, folder, arguments)
        if kind == "mpi":
            started = [*request.getfixturevalue("mpirun")(size), *started]
        done = run(started)
        assert done.returncode == 0, done.stderr.decode()
        return results(size, folder)

    return run_body


# The number of ranks of each MPI process, by the total number.
_SHAPES = {
    2: (2,),
    3: (2, 1),
    4: (1, 2, 1),
    5: (2, 3),
    6: (2, 2, 2),
    7: (3, 1, 3),
    8: (3, 2, 3),
}


def hybrid_command(
    mpirun: Callable[[int], list[str]],
    shape: Sequence[int],
    body: Body,
    folder: Path,
    arguments: tuple[Any, ...],
) -> list[str]:
    """Return the command of a job of MPI processes with these numbers of ranks."""
    first, *more_commands = (command("hybrid", size, body, folder, arguments) for size in shape)
    started = [*mpirun(1), *first]
    for other in more_commands:
        started += [":", "-np", "1", *other]
    return started


def _run_hybrid(
    request: pytest.FixtureRequest, size: int, body: Body, arguments: tuple[Any, ...]
) -> list[Any]:
    run: Run = request.getfixturevalue("run")
    folder: Path = request.getfixturevalue("tmp_path")
    mpirun = request.getfixturevalue("mpirun")
    done = run(hybrid_command(mpirun, _SHAPES[size], body, folder, arguments))
    assert done.returncode == 0, done.stderr.decode()
    return results(size, folder)


def _run_simulated(
    request: pytest.FixtureRequest, size: int, body: Body, arguments: tuple[Any, ...]
) -> list[Any]:
    # Two ranks on each node, and delays that permute everything that may be permuted.
    nodes = [rank // 2 for rank in range(size)]
    conditions = Conditions(jitter=20.0, tail=0.2, tail_s=0.1, lame=0.2)
    network = Network(nodes, Random(request.node.name), conditions)
    return network.run([lambda t: body(t, *arguments)] * size)


BINDINGS = {
    binding.name: binding
    for binding in (
        Binding("single", (1,), True, _run_processes("single")),
        Binding("local", tuple(range(1, 33)), True, _run_processes("local")),
        Binding("mpi", (1, 2, 4, 8), True, _run_processes("mpi")),
        Binding("hybrid", tuple(_SHAPES), True, _run_hybrid),
        Binding("sim", tuple(range(1, 33)), False, _run_simulated),
    )
}


def on_every(*sizes: int) -> pytest.MarkDecorator:
    """Run a test with each of these numbers of ranks on each transport that supports them."""
    return _on(list(BINDINGS.values()), sizes)


def on_real(*sizes: int) -> pytest.MarkDecorator:
    """Run a test like ``on_every``, but only on transports whose ranks are processes."""
    return _on([binding for binding in BINDINGS.values() if binding.is_real], sizes)


def _on(bindings: list[Binding], sizes: tuple[int, ...]) -> pytest.MarkDecorator:
    jobs = [
        pytest.param(
            (binding.name, size),
            id=f"{binding.name}-{size}",
            marks=[pytest.mark.mpi] if binding.name in ("mpi", "hybrid") else [],
        )
        for binding in bindings
        for size in sizes
        if size in binding.sizes
    ]
    return pytest.mark.parametrize("job", jobs, indirect=True)
