"""The local processes beside a process that a launcher started, which are ranks of its job as well.

The idea: MPI must not be forked once it has begun, so the others are forked before, with sockets
between each two of them, as in a local job.  They wait for the first of them, which MPI starts
meanwhile, to say who they are in the job, and need no MPI.

In a process with threads, or where MPI has begun, they are interpreters of their own.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pcircle.errors import UsageError
from pcircle.transport._exit import say
from pcircle.transport._fork import begin, fork
from pcircle.transport._hybrid import Party, leaf_of
from pcircle.transport.launch import mpi_is_loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pcircle.transport._local import LocalTransport
    from pcircle.transport.contract import Body, Transport

__all__ = ["party_of", "remark"]


@contextmanager
def party_of(size: int, body: Body, pickled: Callable[[], bytes] | None) -> Iterator[Party]:
    """*size* processes of which this one is the first; the others wait to run *body*.

    They get it as *pickled* has it where they can't be forked.
    """
    party = Party(size)
    try:
        if _may_fork():
            party.ends = begin(size, party.children, lambda ends: fork(ends, body, _forked))
        elif pickled is None:
            raise UsageError("local processes can't be forked after MPI has begun")
        else:
            from pcircle.transport._fresh import begin_fresh

            given = f"{leaf_of.__module__}:{leaf_of.__name__}"
            party.ends = begin_fresh(size, party.children, pickled(), given)
    except UsageError as error:
        party.trouble = str(error)
    try:
        yield party
    finally:
        party.disband()


def remark(size: int) -> None:
    """Say it, if the launcher has bound *size* processes to fewer cores than there are."""
    cores = len(os.sched_getaffinity(0))
    if cores < min(size, os.cpu_count() or 1):
        on = "1 core" if cores == 1 else f"{cores} cores"
        cure = f"srun --cpus-per-task={size}, mpirun --bind-to none"
        say(f"-j {size}: the launcher has bound these processes to {on} ({cure})")


def _may_fork() -> bool:
    """Whether this is the only thread of Python's, and MPI has not begun."""
    if len(sys._current_frames()) > 1:
        return False
    if not mpi_is_loaded():
        return True
    from pcircle.transport._mpi import has_begun  # loads the library, were it not there

    return not has_begun()


def _forked(local: LocalTransport) -> Transport:
    """The transport of a forked process, which lets go of the launcher's connection.

    Held open here, it would hide the end of the process that it belongs to.
    """
    with suppress(KeyError, ValueError, OSError):
        os.close(int(os.environ["PMI_FD"]))
    return leaf_of(local)
