"""Runs a rank's body on the chosen transport; a job of one rank needs no other module.

A transport's module is imported only when it is needed: a job without a launcher requires no MPI
library, and `--help` loads no transport.

`-j 1` runs the same engine on the same interface, so it needs no separate code path. Its transport,
`_SingleTransport`, delivers the rank's messages to itself. Messages are stored in a list, so a poll
that finds one usually makes no system call.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from pcircle.core.errors import UsageError
from pcircle.transport._exit import flush_standard_streams, print_error
from pcircle.transport._wake import Wakeup
from pcircle.transport.contract import Delivery, LostRank
from pcircle.transport.launch import forget_closed, launched, missing_library, mpi_is_loaded

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pcircle.transport._hybrid import NodeProcesses
    from pcircle.transport.contract import Body
    from pcircle.transport.launch import Choice, Launch


class _SingleTransport:
    """Rank 0 of 1; implements `contract.Transport`."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self.nodes: tuple[int, ...] = (0,)
        self._own: list[Delivery | LostRank] = []
        self._wakeup = Wakeup()

    def send(self, dest: int, payload: bytes) -> None:
        if dest != 0:
            raise ValueError(f"no rank {dest} in a job of one")
        self._own.append(Delivery(0, payload))

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        wakeup = self._wakeup
        waits = not self._own and (timeout_s is None or timeout_s > 0)
        if wakeup.is_set() or (waits and wakeup.wait(timeout_s)):
            wakeup.clear()
        arrivals, self._own = self._own, []
        return arrivals

    def wake(self) -> None:
        self._wakeup.set()

    def close(self) -> None:
        self._wakeup.close()

    def abort(self, exit_code: int) -> NoReturn:
        flush_standard_streams()
        os._exit(exit_code & 0xFF)


def is_importable(main: ModuleType) -> bool:
    """Return whether another process could import the definitions in *main*."""
    return getattr(main, "__spec__", None) is not None or bool(getattr(main, "__file__", None))


@cache
def warn_stale_launcher(name: str) -> None:
    """Warn once if the environment names a launcher that did not start this process."""
    if stale := launched().stale:
        print_error(f"using local processes: the environment refers to {stale}", name)


def start(
    choice: Choice,
    body: Body,
    pickled: Callable[[], bytes] | None = None,
    *,
    again: bool = False,
) -> int:
    """Run *body* on the chosen transport; return this process's exit code.

    Returns in rank 0 of a local job (the children exit without returning), and in every process of
    a launcher. Local ranks are forked, unless there are other Python threads and *pickled* is
    given: then they are new interpreters, which unpickle the body. Set *again* if this process may
    start further jobs.

    Raises UsageError if the transport is not available. Under a launcher only rank 0 raises it; the
    other ranks return its exit code without a message.
    """
    spawning = sys.modules.get("pcircle.transport._spawn")
    if spawning is not None and spawning.importing_main.is_set():
        raise UsageError(spawning.UNGUARDED)
    if choice.kind == "single":
        transport = _SingleTransport()
        try:
            return body(transport)
        finally:
            transport.close()
    if choice.kind == "local" and pickled is not None and len(sys._current_frames()) > 1:
        # A lock that another thread holds would stay locked in a forked child.
        from pcircle.transport._spawn import launch_spawned

        return launch_spawned(choice.size, body, pickled())
    if choice.kind == "local":
        from pcircle.transport._fork import launch_local

        return launch_local(choice.size, body)
    try:
        return _start_mpi(choice, body, pickled, again)
    except UsageError as error:
        if choice.launch.rank:
            return error.exit_code
        raise


def _start_mpi(choice: Choice, body: Body, pickled: Callable[[], bytes] | None, again: bool) -> int:
    forget_closed(os.environ)
    if choice.processes == 1:
        return _launch_mpi(choice.launch, body, again)
    from pcircle.transport._hybrid import node_processes, warn_if_bound

    if not choice.launch.rank:
        warn_if_bound(choice.processes)
    started = node_processes(choice.processes, body, pickled, may_fork=_may_fork())
    with started as processes:  # before MPI is initialised
        return _launch_mpi(choice.launch, body, again, processes)


def _may_fork() -> bool:
    """Return whether this is the only Python thread, and MPI is not initialised."""
    if len(sys._current_frames()) > 1:
        return False
    if not mpi_is_loaded():
        return True
    from pcircle.transport._mpi import is_initialized  # would load the library

    return not is_initialized()


def _launch_mpi(
    launch: Launch, body: Body, again: bool, processes: NodeProcesses | None = None
) -> int:
    try:
        from pcircle.transport._mpi import launch_mpi
    except (ImportError, RuntimeError) as error:  # RuntimeError if mpi4py finds no library
        raise missing_library(launch, error) from error
    return launch_mpi(launch, body, again=again, processes=processes)
