"""The tests' side of the file system: mount it, set faults, unmount it.

The server is a separate process, because a process that waits for a file of its own file system
waits for ever. When it ends, for whatever reason, the kernel answers all waiting processes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from . import libc
from .passing import Caching
from .rules import Rule

DEVICE = "/dev/fuse"
_NOSUID_NODEV = 6
_END_S = 20.0


class State(NamedTuple):
    """Counters of the server: requests by operation, uses of each rule, currently delayed requests.

    `max_delayed` is the maximum number of requests delayed at a time since the rules were set. It
    excludes releases of descriptors, for which no process waits.
    """

    counts: dict[str, int]
    hits: list[int]
    delayed: int
    max_delayed: int


class Mounted:
    """A mounted file system: `path` is its mount point, `backing` the directory behind it."""

    def __init__(self, path: bytes, backing: bytes, control: socket.socket) -> None:
        self.path = path
        self.backing = backing
        self._control = control

    def _say(self, order: dict[str, Any]) -> State:
        self._control.sendall(json.dumps(order).encode() + b"\n")
        heard = b""
        while not heard.endswith(b"\n"):
            part = self._control.recv(1 << 16)
            assert part, "the file system's server is gone"
            heard += part
        return State(**json.loads(heard))

    def rules(self, *rules: Rule) -> None:
        """Replace the rules; without arguments there are no faults."""
        self._say({"rules": [rule._asdict() for rule in rules]})

    def state(self) -> State:
        """Return the current counters."""
        return self._say({})

    def release(self) -> None:
        """Execute all delayed requests at once."""
        self._say({"release": True})


def missing() -> str:
    """Return why the file system can't be mounted here; empty if it can."""
    if not os.path.exists(DEVICE):
        return f"there is no {DEVICE}"
    if os.geteuid() != 0:
        return "only root can mount a FUSE file system for everybody"
    try:
        os.close(os.open(DEVICE, os.O_RDWR))
    except OSError as error:
        return f"{DEVICE} can't be opened: {error}"
    return ""


@contextmanager
def mounted(folder: bytes, backing: bytes, caching: Caching | None = None) -> Iterator[Mounted]:
    """Mount `backing` on the empty directory `folder`; unmounting keeps both.

    OSError if the kernel refuses, for example in a container without privileges.
    """
    ours, theirs = socket.socketpair()
    fuse_fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    with ours:
        try:
            options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
            libc.mount(b"fuse", folder, _NOSUID_NODEV, options % fuse_fd)
            try:
                process = _start(fuse_fd, theirs, (folder, backing), caching or Caching())
            except BaseException:
                libc.unmount(folder)
                raise
        finally:
            os.close(fuse_fd)
            theirs.close()
        try:
            yield Mounted(folder, backing, ours)
        finally:
            libc.unmount(folder)
            ours.shutdown(socket.SHUT_RDWR)
            _end(process)


def _start(
    fuse_fd: int, control: socket.socket, directories: tuple[bytes, bytes], caching: Caching
) -> subprocess.Popen[bytes]:
    home = Path(__file__).parents[2]
    descriptors = (fuse_fd, control.fileno())
    command = [sys.executable, "-m", "tests.fusefs.server", *map(str, descriptors)]
    return subprocess.Popen(
        [*command, *directories, *map(str, caching)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        cwd=home,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        code = process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    assert code == 0, f"the file system's server ended with {code}"
