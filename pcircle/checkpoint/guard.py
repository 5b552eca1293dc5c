"""The lock of a checkpoint: a job that is at work on one refuses a second."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

import msgspec

from pcircle.checkpoint.store import Checkpoint, Unusable, Why
from pcircle.errors import StoppedEarly
from pcircle.fs.directories import close_open

_BEAT_S = 5.0
_DEAD_AFTER_S = 3 * _BEAT_S


class Lock(msgspec.Struct, frozen=True):
    """Who is at work: a host, the boot of it, a process there, and a number that grows."""

    host: str
    boot: str
    process: int
    token: bytes
    beat: int


class Guard:
    """The lock of a checkpoint: a lock of the file system, and a heartbeat for where there is none.

    `lost` is called, on a thread of its own, when another job has taken it.
    """

    def __init__(self, checkpoint: Checkpoint, token: bytes) -> None:
        self._checkpoint = checkpoint
        self._token = token
        self._beat = 0
        self._fd: int | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.taken = False

    def take(self) -> None:
        """Take the lock. Unusable if a living job has it."""
        import fcntl

        checkpoint = self._checkpoint
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(b"guard", flags, 0o600, dir_fd=checkpoint.fd)
        locked = False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            self._let_go()
            raise Unusable(Why.BUSY, checkpoint.path) from None
        except OSError:
            pass  # a file system without locks: the heartbeat must do
        lock = self._read()
        if lock is not None and not _is_of_this_host(lock):
            if checkpoint.age_s(b"lock") < _DEAD_AFTER_S:
                self._watch(lock)
        elif lock is not None and not locked and _is_alive(lock):
            raise Unusable(Why.BUSY, checkpoint.path, f"by process {lock.process}")
        self._write()

    def _watch(self, lock: Lock) -> None:
        """Wait for a beat of a job on what may be another host."""
        until_s = time.monotonic() + _DEAD_AFTER_S
        while time.monotonic() < until_s:
            time.sleep(_BEAT_S / 10)
            now = self._read()
            if now is not None and now != lock:
                raise Unusable(Why.BUSY, self._checkpoint.path, f"on {now.host}")

    def begin(self) -> None:
        """Beat from now on."""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Beat no more, and have no file of the checkpoint open: it is about to be removed."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_BEAT_S)
        self._let_go()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            close_open(fd)

    def end(self) -> None:
        """Give the lock up."""
        self.rest()
        if not self.taken:
            with suppress(OSError):
                os.unlink(b"lock", dir_fd=self._checkpoint.fd)

    def _run(self) -> None:
        while not self._ended.wait(_BEAT_S):
            now = self._read()
            if now is not None and now.token != self._token:
                self.taken = True
                return
            with suppress(OSError):  # a full disk, say: the journals will tell
                self._write()

    def _read(self) -> Lock | None:
        data = self._checkpoint.read(b"lock")
        try:
            return msgspec.json.decode(data, type=Lock)
        except msgspec.DecodeError:
            return None

    def _write(self) -> None:
        self._beat += 1
        lock = Lock(_host(), _boot(), os.getpid(), self._token, self._beat)
        self._checkpoint.write(b"lock", [msgspec.json.encode(lock)])

    def check(self) -> None:
        """StoppedEarly if another job has taken the checkpoint."""
        if self.taken:
            raise StoppedEarly("another job has taken over the checkpoint")


def _host() -> str:
    return os.uname().nodename  # as socket.gethostname(), without what socket imports


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _is_of_this_host(lock: Lock) -> bool:
    """Whether the lock's process would be one of ours: containers may share a name."""
    return lock.host == _host() and lock.boot == _boot()


def _is_alive(lock: Lock) -> bool:
    if lock.process == os.getpid():
        return False
    try:
        os.kill(lock.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{lock.process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return True
