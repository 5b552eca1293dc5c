"""One flush of a file system for all ranks of a node, as far as one can do for several.

The idea: the kernel flushes a file system as a whole, whoever asks. So a rank need not, if another
one of its job has begun to after this one wanted it, and has ended. The ranks of a node count their
flushes in a file in memory, under a lock: who waits for the lock finds mostly that the one before
was begun late enough. Ranks are sealed at about the same time, so the first one waits for the
others a little while, and flushes for all.

A rank that dies lets the lock go, and what it had begun never counts as ended. A flush that failed
does not either: the rank that has it stops the job.

The file has no name, so nothing is left of it whatever happens. Who makes it has a socket with a
name of the job's, in no file system either; the kernel tells the others whose process that is, and
they open the file as that process has it. If it is another user's, they flush for themselves.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from pcircle.writing import write_at

if TYPE_CHECKING:
    import socket

_FORM = struct.Struct("=QQQ")
_PEER = struct.Struct("=iII")  # process, user, group
# So late may an idle rank hear that it is sealed.
_GATHER_S = 0.025
# The socket is looked for so often; its owner may be about to begin or to end.
_TRIES = 50
_TRY_AGAIN_S = 0.002
_MOST_RANKS = 4096


class Syncs(NamedTuple):
    """How many flushes were begun, one after the other, and the number of the last that ended.

    `ranks` have come to share them.
    """

    begun: int = 0
    ended: int = 0
    ranks: int = 0

    def cover(self, seen: int) -> bool:
        """Whether one has ended that was not yet begun when `seen` were."""
        return self.ended > seen

    def began(self) -> Syncs:
        """One more has begun."""
        return self._replace(begun=self.begun + 1)

    def done(self) -> Syncs:
        """It has ended."""
        return self._replace(ended=self.begun)


class SharedSync:
    """The flushes of one file system; `token` is the job's own."""

    def __init__(self, token: bytes, device: int) -> None:
        """OSError if nothing can be shared."""
        # Only who sees the same mounts may rely on device numbers being the same.
        mounts = os.stat("/proc/self/ns/mnt").st_ino
        self._socket: socket.socket | None = None
        self._fd = self._join(f"pcircle-{token.decode()}-{mounts:x}-{device:x}")
        with self._locked() as syncs:
            self._write(syncs._replace(ranks=syncs.ranks + 1))

    def sync(self, flush: Callable[[], None]) -> None:
        """What was written before this call is on disk after it: `flush` does that, if need be."""
        seen = self._read().begun
        with self._locked() as syncs:
            if syncs.cover(seen):
                return
            if syncs.ranks > 1:
                time.sleep(_GATHER_S)
            self._write(syncs.began())
            flush()
            self._write(syncs.began().done())

    def close(self) -> None:
        """Let go."""
        if self._socket is not None:
            self._socket.close()
        os.close(self._fd)

    def _join(self, name: str) -> int:
        """The file of that name, which the first one makes."""
        import socket

        address = f"\0{name}"
        for _ in range(_TRIES):
            with suppress(OSError):
                return _opened_by(address, name)
            fd = os.memfd_create(name)
            write_at(fd, _FORM.pack(*Syncs()), 0)
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

    @contextmanager
    def _locked(self) -> Iterator[Syncs]:
        import fcntl

        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield self._read()
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _read(self) -> Syncs:
        return Syncs(*_FORM.unpack(os.pread(self._fd, _FORM.size, 0)))

    def _write(self, syncs: Syncs) -> None:
        write_at(self._fd, _FORM.pack(*syncs), 0)


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
