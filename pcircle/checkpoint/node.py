"""Numbers that the ranks of a node have in common, and change one at a time.

They lie in a file in memory, under a lock, which a rank that dies lets go. The file has no name, so
nothing is left of it whatever happens. Who makes it has a socket with a name of the job's, in no
file system either; the kernel tells the others whose process that is, and they open the file as
that process has it. If it is another user's, or can't be reached, each of them does without.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pcircle.writing import write_at

if TYPE_CHECKING:
    import socket

_PEER = struct.Struct("=iII")  # process, user, group
# The socket is looked for so often; its owner may be about to begin or to end.
_TRIES = 50
_TRY_AGAIN_S = 0.002
_MOST_RANKS = 4096


class Board:
    """So many `numbers`, all 0 at first; `token` is the job's own, `what` tells them from others.

    OSError if there is nothing to be had in common.
    """

    def __init__(self, token: bytes, what: str, numbers: int) -> None:
        # Only who sees the same mounts may take the same numbers for the same file system.
        mounts = os.stat("/proc/self/ns/mnt").st_ino
        self._socket: socket.socket | None = None
        self._form = struct.Struct(f"={numbers}Q")
        self._fd = self._join(f"pcircle-{token.decode()}-{mounts:x}-{what}")

    @contextmanager
    def locked(self) -> Iterator[list[int]]:
        """The numbers, which nobody else may `write` meanwhile."""
        import fcntl

        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield self.read()
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def read(self) -> list[int]:
        """The numbers, as they are just now."""
        return list(self._form.unpack(os.pread(self._fd, self._form.size, 0)))

    def write(self, numbers: Sequence[int]) -> None:
        """Have others read these, at once. Only of who has them locked."""
        write_at(self._fd, self._form.pack(*numbers), 0)

    def close(self) -> None:
        """Let go."""
        if self._socket is not None:
            self._socket.close()
        os.close(self._fd)

    @property
    def address(self) -> bytes | None:
        """That of the socket, if this rank has made the file."""
        return None if self._socket is None else bytes(self._socket.getsockname())

    def _join(self, name: str) -> int:
        """The file of that name, which the first one makes."""
        import socket

        address = f"\0{name}"
        for _ in range(_TRIES):
            with suppress(OSError):
                return _opened_by(address, name)
            fd = os.memfd_create(name)
            write_at(fd, bytes(self._form.size), 0)
            own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                own.bind(address)
                own.listen(_MOST_RANKS)
            except OSError:  # somebody else was sooner
                own.close()
                os.close(fd)
                time.sleep(_TRY_AGAIN_S)
            else:
                self._socket = own
                return fd
        raise FileExistsError(name)


def _opened_by(address: str, name: str) -> int:
    """A file without a name that the process has open which listens at the address. OSError."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        asking.connect(address)
        told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, user, _ = _PEER.unpack(told)
    if user != os.geteuid():
        raise PermissionError(name)
    opened = f"/proc/{pid}/fd"
    for fd in os.listdir(opened):
        if os.readlink(f"{opened}/{fd}") == f"/memfd:{name} (deleted)":
            return os.open(f"{opened}/{fd}", os.O_RDWR | os.O_CLOEXEC)
    raise FileNotFoundError(name)
