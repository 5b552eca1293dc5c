"""Local processes next to a process that a launcher started, as ranks of the same job.

A process must not fork after it has initialised MPI. So the other processes are forked before that,
with a socket between each pair, as in a local job. They do not use MPI: they wait for the first
process, which initialises MPI, to send them their ranks.

If this process has other threads, or has initialised MPI, the other processes are new interpreters.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pcircle.core.errors import UsageError
from pcircle.transport._exit import print_error
from pcircle.transport._fork import fork, start_children
from pcircle.transport._hybrid import NodeProcesses, connect_leaf
from pcircle.transport.launch import mpi_is_loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pcircle.transport._local import LocalTransport
    from pcircle.transport.contract import Body, Transport


@contextmanager
def node_processes(
    size: int, body: Body, pickled: Callable[[], bytes] | None
) -> Iterator[NodeProcesses]:
    """Start the other *size* - 1 processes of this node; each waits for its rank, then runs *body*.

    If they cannot be forked, they are new interpreters, which unpickle what *pickled* returns.
    """
    processes = NodeProcesses(size)
    try:
        if _may_fork():
            processes.ends = start_children(
                size, processes.children, lambda ends: fork(ends, body, _forked)
            )
        elif pickled is None:
            raise UsageError("local processes cannot be forked after MPI has begun")
        else:
            from pcircle.transport._spawn import start_spawned

            make_transport = f"{connect_leaf.__module__}:{connect_leaf.__name__}"
            processes.ends = start_spawned(size, processes.children, pickled(), make_transport)
    except UsageError as error:
        processes.trouble = str(error)
    try:
        yield processes
    finally:
        processes.disband()


def warn_if_bound(size: int) -> None:
    """Warn if the launcher has bound *size* processes to fewer cores than they could use."""
    cores = len(os.sched_getaffinity(0))
    if cores < min(size, os.cpu_count() or 1):
        on = "1 core" if cores == 1 else f"{cores} cores"
        cure = f"srun --cpus-per-task={size} or mpirun --bind-to none"
        print_error(
            f"warning: -j {size}, but the launcher binds these processes to {on}; use {cure}"
        )


def _may_fork() -> bool:
    """Return whether this is the only Python thread, and MPI is not initialised."""
    if len(sys._current_frames()) > 1:
        return False
    if not mpi_is_loaded():
        return True
    from pcircle.transport._mpi import is_initialized  # would load the library

    return not is_initialized()


def _forked(local: LocalTransport) -> Transport:
    """Return the transport of a forked process, and close its copy of the launcher's connection.

    An open copy would hide the end of the process that owns the connection.
    """
    with suppress(KeyError, ValueError, OSError):
        os.close(int(os.environ["PMI_FD"]))
    return connect_leaf(local)
