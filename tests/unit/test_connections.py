"""The connection to a launcher: evidence that it is closed, and lack of evidence."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.transport.launch import UNKNOWN, Launch, detect, find_pmi, find_pmix
from tests.unit.test_launch import EXPECTED, environment

WITHOUT_CONNECTION = {"srun-none", "srun-cray"}
# The Slurm step that started the launcher's daemons may also have started this process; a step with
# one task, a shell, is not a launch.
IN_A_STEP = {"mpich-in-sbatch": "srun", "mpich-in-srun-pty": ""}


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port without a listener."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_launcher_that_has_ended_did_not_start_this(name: str, port: int) -> None:
    """In the recorded environments the servers of the launchers do not run here."""
    recorded = environment(name)
    for variable, value in recorded.items():
        if variable.startswith("PMIX_SERVER_URI"):
            recorded[variable] = f"{value.rpartition(':')[0]}:{port}"
        elif variable == "PMI_FD":
            recorded[variable] = "1023"
    found = detect(recorded, find_pmi(recorded), find_pmix(recorded))
    expected = EXPECTED[name]
    if name in IN_A_STEP:
        assert (found.launcher, found.stale) == (IN_A_STEP[name], "")
    elif expected.kind == "none" or name in WITHOUT_CONNECTION:
        assert found._replace(closed=()) == expected
    else:
        assert found.kind == "none"
        assert found.stale.startswith(f"{expected.launcher}, which cannot be reached (PMI")


@pytest.mark.parametrize("kind", ["file", "pipe", "absent", "hung-up"])
def test_other_descriptors_than_connected_sockets(kind: str, tmp_path: Path) -> None:
    fds: list[int] = []
    if kind == "file":
        fds = [os.open(tmp_path, os.O_RDONLY)]
    elif kind == "pipe":
        fds = list(os.pipe())
    elif kind == "hung-up":
        near, far = socket.socketpair()
        far.close()
        fds = [near.detach()]
    try:
        found = find_pmi({"PMI_FD": str(fds[0] if fds else 1023), "PMI_RANK": "0"})
    finally:
        for fd in fds:
            os.close(fd)
    assert found.state == "closed"
    assert found.variables == ("PMI_FD", "PMI_RANK")


@pytest.mark.parametrize("value", ["", "abc", "-1", "-9", "9.5", "²", "9" * 40])
def test_invalid_descriptors(value: str) -> None:
    assert find_pmi({"PMI_FD": value}).state == "closed"


def test_a_connected_socket_is_left_alone() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"cmd=response_to_init\n")
        assert find_pmi({"PMI_FD": str(near.fileno())}).state == "open"
        assert near.recv(99) == b"cmd=response_to_init\n"
        near.setblocking(False)
        far.setblocking(False)
        with pytest.raises(BlockingIOError):
            far.recv(1)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("form", ["x.0;tcp4://127.0.0.1:{}", "1.0;tcp://127.0.0.1,127.0.0.2:{}"])
def test_a_listener_is_not_connected_to(host: str, form: str) -> None:
    """A listening launcher might count the connection as one of its ranks."""
    with socket.create_server((host, 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        uris = {
            "PMIX_SERVER_URI2": "x.0;tcp4://127.0.0.1:1",
            "PMIX_SERVER_URI41": form.format(port),
        }
        assert find_pmix({"PMIX_NAMESPACE": "x", **uris}).state == "open"
        assert find_pmi({"PMI_PORT": f"127.0.0.1:{port}"}).state == "open"
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("form", ["x:7:{}", "x.0;{}", "x.0;usock:{}", "{}"])
def test_a_socket_of_unix_is_found_by_its_path(form: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    environ = {"PMIX_NAMESPACE": "x", "PMIX_RANK": "0", "PMIX_SERVER_URI": form.format(path)}
    assert find_pmix(environ).reason.endswith("does not exist")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        assert find_pmix(environ).reason.endswith("does not answer")
        server.listen()
        assert find_pmix(environ).state == "open"
    assert find_pmix(environ).state == "closed"


@pytest.mark.parametrize("uri", ["", "x", "x.0;tcp4://127.0.0.1:0", "x.0;tcp4://127.0.0.1:99999"])
def test_invalid_addresses(uri: str) -> None:
    environ = {"PMIX_NAMESPACE": "x", "PMIX_RANK": "0", "PMIX_SERVER_URI3": uri}
    assert find_pmix(environ).state == "closed"
    assert find_pmix(environ).variables == ("PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI3")


@pytest.mark.parametrize(
    "uri",
    [
        "x.0;ucx://lid-7",  # of an unknown kind
        "x.0;tcp4://192.0.2.1:35199",  # of another machine
        "x.0;tcp4://name.invalid:35199",
    ],
)
def test_unexaminable_descriptors_count_as_a_launch(uri: str) -> None:
    environ = {"PMIX_NAMESPACE": "x", "PMIX_RANK": "1", "PMIX_SERVER_URI41": uri}
    assert find_pmix(environ) == UNKNOWN
    assert detect(environ, pmix=find_pmix(environ)) == Launch("mpi", "a PMIx launcher", None, 1)


def test_the_launcher_that_can_be_reached_started_this(port: int) -> None:
    """MPICH's mpirun may run in a shell that a rank of Open MPI left, and vice versa."""
    openmpi = environment("openmpi5")
    for name in openmpi:
        if name.startswith("PMIX_SERVER_URI"):
            openmpi[name] = f"x.0;tcp4://127.0.0.1:{port}"
    near, far = socket.socketpair()
    with near, far:
        both = {**openmpi, **environment("mpich"), "PMI_FD": str(near.fileno())}
        found = detect(both, find_pmi(both), find_pmix(both))
        assert found[:4] == EXPECTED["mpich"][:4]
        assert "PMIX_NAMESPACE" in found.closed
        with socket.create_server(("127.0.0.1", 0)) as server:
            uri = f"x.0;tcp4://127.0.0.1:{server.getsockname()[1]}"
            both = {**both, "PMI_FD": "1023", "PMIX_SERVER_URI41": uri}
            found = detect(both, find_pmi(both), find_pmix(both))
            assert found[:4] == EXPECTED["openmpi5"][:4]
            assert set(found.closed) == {"PMI_FD", "PMI_RANK", "PMI_SIZE"}


def test_a_closed_socket_proves_nothing_under_a_launcher_without_sockets() -> None:
    """A launcher that does not set PMI_FD may run in the shell of another launcher."""
    left = {"PMI_FD": "1023"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = f"127.0.0.1:{server.getsockname()[1]}"
        found = find_pmi({**left, "PMI_PORT": port, "PMI_ID": "0"})
        assert (found.state, found.variables) == ("open", ("PMI_FD",))
    assert find_pmi({**left, "PMI_PORT": "192.0.2.1:5", "PMI_ID": "0"}).state == "unknown"
    cray = {**environment("srun-cray"), **left}
    assert detect(cray, find_pmi(cray), find_pmix(cray)) == EXPECTED["srun-cray"]
