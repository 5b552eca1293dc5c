"""Hosts for the tests: named network namespaces that a virtual switch connects.

MPI's launcher starts ranks on them as on the nodes of a cluster, through a remote shell; that
shell is a script that enters a namespace. Messages to a rank on another host travel over TCP
through the switch, and a host's cable can be pulled. All hosts see the same files, as on a parallel
file system.

The switch has a namespace of its own, so the network of the machine is not modified.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mpi import mpirun_prefix

NETWORK = "10.77.3."


def hosts_are_possible() -> str:
    """Return why hosts cannot be created here; empty if they can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    for program in ("ip", "unshare", "hostname"):
        if shutil.which(program) is None:
            return f"there is no {program}, which hosts are made with"
    trial = f"pcircle-trial-{os.getpid()}"
    made = _ip("netns", "add", trial, check=False)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    entered = subprocess.run(
        ["ip", "netns", "exec", trial, "unshare", "--uts", "--ipc", "true"],
        check=False,
        capture_output=True,
        text=True,
    )
    _ip("netns", "del", trial)
    return f"namespaces can't be entered: {entered.stderr.strip()}" if entered.returncode else ""


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


class Hosts:
    """A number of hosts, counted from 0."""

    def __init__(self, folder: Path, number: int) -> None:
        prefix = f"pcircle-{os.getpid()}"
        self._switch = f"{prefix}-switch"
        self.names = [f"{prefix}-{host}" for host in range(number)]
        self._shell = folder / "remote-shell"

    def build(self) -> None:
        """Create the namespaces, the network, and the script that enters them."""
        self._connect()
        cases = "\n".join(
            f"  {NETWORK}{number + 1}) name={name};;" for number, name in enumerate(self.names)
        )
        self._shell.write_text(
            "#!/bin/sh\n"
            "# What the launcher takes for a remote shell: [-x] ADDRESS COMMAND...\n"
            'while [ "$1" = -x ]; do shift; done\n'
            f'case $1 in\n{cases}\nesac\nshift\n{self._enter("$name")} "$*"\n'
        )
        self._shell.chmod(0o755)

    def _connect(self) -> None:
        """Create the namespaces and a switch that connects them."""
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        for number, name in enumerate(self.names):
            cable = f"cable{number}"
            _ip("netns", "add", name)
            ends = ("type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", self._switch, "link", "add", cable, *ends)
            _ip("-n", self._switch, "link", "set", cable, "master", "switch", "up")
            _ip("-n", name, "addr", "add", f"{NETWORK}{number + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    @staticmethod
    def _enter(name: str) -> str:
        """Return a command line that runs the text that follows on a host.

        Each host also has its own shared memory.
        """
        script = f'\'hostname "$0"; eval "$1"\' {name}'
        return f"exec ip netns exec {name} unshare --uts --ipc sh -c {script}"

    def mpirun(self, ranks: Sequence[int]) -> list[str]:
        """Return the command that starts the given number of ranks on each host.

        The command runs on the first host.
        """
        program = _hydra()
        places = ",".join(f"{NETWORK}{i + 1}:{number}" for i, number in enumerate(ranks) if number)
        line = 'shift; exec "$0" -launcher rsh -launcher-exec "$SHELL_OF_HOSTS" -iface eth0 "$@"'
        first = ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "--ipc", "env"]
        first += [f"SHELL_OF_HOSTS={self._shell}", "sh", "-c", f"hostname $1; {line}"]
        return [*first, program, self.names[0], "-hosts", places, "-n", str(sum(ranks))]

    def pull_cable(self, host: int) -> None:
        """Disconnect a host from the network."""
        _ip("-n", self._switch, "link", "set", f"cable{host}", "down")

    def plug_in(self, host: int) -> None:
        """Reconnect a host to the network."""
        _ip("-n", self._switch, "link", "set", f"cable{host}", "up")

    def sent_bytes(self) -> list[int]:
        """Return the number of bytes that each host has sent."""
        path = "/sys/class/net/eth0/statistics/tx_bytes"
        sent = []
        for name in self.names:
            done = subprocess.run(
                ["ip", "netns", "exec", name, "cat", path],
                check=True,
                capture_output=True,
            )
            sent.append(int(done.stdout))
        return sent

    def remove(self) -> None:
        """Remove the namespaces and everything in them."""
        for name in (*self.names, self._switch):
            _ip("netns", "del", name, check=False)


def _hydra() -> str:
    """Return the launcher of MPICH; skip the test under any other MPI."""
    program = mpirun_prefix()[0]
    said = subprocess.run([program, "--version"], check=False, capture_output=True, text=True)
    if "HYDRA" not in said.stdout:
        pytest.skip("hosts are made for Hydra, the launcher of MPICH")
    return program


def environment_of_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that make MPI use the network, the only connection between hosts."""
    return {**environment, "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}


@contextmanager
def hosts_in(folder: Path, number: int) -> Iterator[Hosts]:
    """Yield the given number of hosts; skip the test where hosts are not possible."""
    reason = hosts_are_possible()
    if reason:
        pytest.skip(reason)
    hosts = Hosts(folder, number)
    try:
        hosts.build()
        yield hosts
    finally:
        hosts.remove()
