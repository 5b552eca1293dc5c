"""Integers that the ranks of a node share and modify under a lock.

The integers are in a memory file, and the lock is an flock, which the kernel releases when a rank
dies. The file has no name, so nothing remains after any kind of exit. Its creator listens on a
socket in the abstract namespace, with a name that is derived from the job. Other ranks connect,
learn the ID of the creator's process from the kernel, and open the file through the descriptors of
that process in /proc. If the socket belongs to another user or the file cannot be opened, each rank
works alone.
"""

from __future__ import annotations

import _socket  # the module `socket` takes two milliseconds to import
import errno
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from pcircle.core.writing import write_at
from pcircle.fs.directories import closing_fd

_PEER = struct.Struct("=iII")  # process, user, group
# Attempts are repeated, because the owner of the socket may be starting or exiting.
_TRIES = 50
_RETRY_S = 0.002
_MAX_RANKS = 4096


class BoardValues:
    """Reads and writes the integers in an open file."""

    def __init__(self, fd: int, form: struct.Struct) -> None:
        self._fd = fd
        self._form = form

    def read(self) -> list[int]:
        """Return the current values."""
        return list(self._form.unpack(os.pread(self._fd, self._form.size, 0)))

    def write(self, numbers: Sequence[int]) -> None:
        """Store new values in one call. The caller must hold the lock."""
        write_at(self._fd, self._form.pack(*numbers), 0)


class SharedBoard:
    """A fixed number of shared integers, initially 0.

    `name` identifies the board within the job that has this `token`.

    Raises OSError if sharing is impossible.
    """

    def __init__(self, token: bytes, name: str, numbers: int) -> None:
        # Device numbers identify the same file system only within one mount namespace.
        mounts = os.stat("/proc/self/ns/mnt").st_ino
        self._socket: _socket.socket | None = None
        self._form = struct.Struct(f"={numbers}Q")
        self._fd = self._join(f"pcircle-{token.decode()}-{mounts:x}-{name}")

    @contextmanager
    def locked(self) -> Iterator[BoardValues]:
        """Lock the board and yield its integers. Raises OSError."""
        import fcntl

        # A separate descriptor is used, because another thread may still be waiting for the lock
        # when the board is closed.
        with closing_fd(os.dup(self._fd)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                self._drain_listen_queue()
                yield BoardValues(fd, self._form)
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def read(self) -> list[int]:
        """Return the current values without taking the lock."""
        return BoardValues(self._fd, self._form).read()

    def close(self) -> None:
        """Close the socket and the memory file."""
        if self._socket is not None:
            self._socket.close()
        os.close(self._fd)

    @property
    def address(self) -> bytes | None:
        """The address of the socket if this rank created the file, otherwise None."""
        return None if self._socket is None else bytes(self._socket.getsockname())

    def _drain_listen_queue(self) -> None:
        """Empty the listen queue, which may be short; the waiting ranks need no reply."""
        listener: Any = self._socket  # the type stubs lack `_accept`
        if listener is not None:
            with suppress(OSError):
                while True:
                    os.close(listener._accept()[0])

    def _join(self, address_name: str) -> int:
        """Open the memory file, or create it if no other rank has created it."""
        address = f"\0{address_name}"
        for _ in range(_TRIES):
            with suppress(ConnectionError, BlockingIOError, FileNotFoundError, ProcessLookupError):
                return _open_from_listener(address, address_name)
            fd = _create_memory_file(address_name, self._form.size)
            try:
                self._socket = _listen(address)
            except OSError:  # another rank was faster
                os.close(fd)
                time.sleep(_RETRY_S)
            else:
                return fd
        raise FileExistsError(address_name)


def _create_memory_file(address_name: str, size: int) -> int:
    """Create a memory file. Raises OSError if Python was built without memfd_create."""
    create = getattr(os, "memfd_create", None)
    if create is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fd: int = create(address_name)
    write_at(fd, bytes(size), 0)
    return fd


def _listen(address: str) -> _socket.socket:
    """Return a socket that listens at this address. Raises OSError if the address is in use."""
    listener = _unix_socket()
    try:
        listener.bind(address)
        listener.listen(_MAX_RANKS)
    except OSError:
        listener.close()
        raise
    return listener


def _unix_socket() -> _socket.socket:
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)


def _open_from_listener(address: str, address_name: str) -> int:
    """Open the memory file of the process that listens on `address`. Raises OSError."""
    with closing(_unix_socket()) as peer:
        peer.connect(address)
        credentials = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _PEER.size)
    pid, user, _ = _PEER.unpack(credentials)
    if user != os.geteuid():
        raise PermissionError(address_name)
    folder, expected = f"/proc/{pid}/fd", f"/memfd:{address_name} (deleted)"
    for number in os.listdir(folder):
        with suppress(FileNotFoundError):  # the descriptor was just closed
            if os.readlink(f"{folder}/{number}") == expected:
                fd = os.open(f"{folder}/{number}", os.O_RDWR | os.O_CLOEXEC)
                # The descriptor may have been reused for another file.
                if os.readlink(f"/proc/self/fd/{fd}") == expected:
                    return fd
                os.close(fd)
    raise FileNotFoundError(address_name)
