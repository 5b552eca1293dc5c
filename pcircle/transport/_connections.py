"""Detects whether the launcher named in the environment can be reached from this process.

A shell, a container or a batch script may inherit the variables of a launcher that has ended, or
whose socket an intermediate program has closed. In this situation MPI_Init ends the process. Trying
MPI_Init is not an option either, because it consumes the connection of a real job. Therefore the
handles are examined: `PMI_FD` must be a connected socket of this process, and a server address must
have a listener.

A rank of a real job must never run as a separate job, so a connection counts as *closed* only on
proof that MPI_Init would fail. If its state cannot be determined, it is *unknown*.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


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


UNKNOWN = Connection("unknown")


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
        fd = int(text) if text.isascii() and text.isdecimal() else -1
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

    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
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
