"""Numbers that the ranks of a node have in common, and change one at a time.

They lie in a file in memory, under a lock, which a rank that dies lets go. The file has no name, so
nothing is left of it whatever happens. Who makes it has a socket with a name of the job's, in no
file system either; the kernel tells the others whose process that is, and they open the file as
that process has it. If it is another user's, or can't be reached, each of them does without.
"""

from __future__ import annotations

import errno
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


class Numbers:
    """The numbers in an open file."""

    def __init__(self, fd: int, form: struct.Struct) -> None:
        self._fd = fd
        self._form = form

    def read(self) -> list[int]:
        """Them, as they are just now."""
        return list(self._form.unpack(os.pread(self._fd, self._form.size, 0)))

    def write(self, numbers: Sequence[int]) -> None:
        """Have others read these, at once. Only of who has them locked."""
        write_at(self._fd, self._form.pack(*numbers), 0)


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
    def locked(self) -> Iterator[Numbers]:
        """The numbers, which nobody else may write meanwhile. OSError."""
        import fcntl

        # Of its own: who waits for the lock may still do so when the board is closed.
        fd = os.dup(self._fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                self._let_in()
                yield Numbers(fd, self._form)
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)

    def read(self) -> list[int]:
        """The numbers, as they are just now."""
        return Numbers(self._fd, self._form).read()

    def close(self) -> None:
        """Let go."""
        if self._socket is not None:
            self._socket.close()
        os.close(self._fd)

    @property
    def address(self) -> bytes | None:
        """That of the socket, if this rank has made the file."""
        return None if self._socket is None else bytes(self._socket.getsockname())

    def _let_in(self) -> None:
        """Take those from the queue who have asked: it may hold few, and they know all by now."""
        if self._socket is not None:
            with suppress(OSError):
                while True:
                    self._socket.accept()[0].close()

    def _join(self, name: str) -> int:
        """The file of that name, which the first one makes."""
        address = f"\0{name}"
        for _ in range(_TRIES):
            with suppress(ConnectionError, BlockingIOError, FileNotFoundError, ProcessLookupError):
                return _opened_by(address, name)
            fd = _made(name, self._form.size)
            try:
                self._socket = _listening(address)
            except OSError:  # somebody else was sooner
                os.close(fd)
                time.sleep(_TRY_AGAIN_S)
            else:
                return fd
        raise FileExistsError(name)


def _made(name: str, size: int) -> int:
    """A file in memory. OSError where the C library that Python was built with is too old."""
    create = getattr(os, "memfd_create", None)
    if create is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fd: int = create(name)
    write_at(fd, bytes(size), 0)
    return fd


def _listening(address: str) -> socket.socket:
    """A socket with that address. OSError if it is taken."""
    import socket

    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        own.bind(address)
        own.listen(_MOST_RANKS)
    except OSError:
        own.close()
        raise
    return own


def _opened_by(address: str, name: str) -> int:
    """A file without a name that the process has open which listens at the address. OSError."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        asking.connect(address)
        told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, user, _ = _PEER.unpack(told)
    if user != os.geteuid():
        raise PermissionError(name)
    opened, called = f"/proc/{pid}/fd", f"/memfd:{name} (deleted)"
    for number in os.listdir(opened):
        with suppress(FileNotFoundError):  # it was closed meanwhile
            if os.readlink(f"{opened}/{number}") == called:
                fd = os.open(f"{opened}/{number}", os.O_RDWR | os.O_CLOEXEC)
                # Or its number was given to another file.
                if os.readlink(f"/proc/self/fd/{fd}") == called:
                    return fd
                os.close(fd)
    raise FileNotFoundError(name)
