"""The lock of a checkpoint, which makes a second job on the same checkpoint fail.

The lock is an flock where the file system supports it across nodes, and a heartbeat where it does
not: the owner rewrites a record regularly, and a competitor waits for it to change.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

import msgspec

from pcircle.core.errors import StoppedEarly
from pcircle.fs.directories import close_open
from pcircle.ops.checkpoint.store import Checkpoint, CheckpointError, RefusalReason

_HEARTBEAT_S = 5.0
_EXPIRY_S = 3 * _HEARTBEAT_S


class LockRecord(msgspec.Struct, frozen=True):
    """The record of the lock's owner: host, boot ID, process, job token and heartbeat counter."""

    host: str
    boot: str
    process: int
    token: bytes
    beat: int


class CheckpointLock:
    """A file lock plus a heartbeat for file systems without locks.

    `lost` becomes true when another job has taken over the lock.
    """

    def __init__(self, checkpoint: Checkpoint, token: bytes) -> None:
        self._checkpoint = checkpoint
        self._token = token
        self._heartbeat = 0
        self._fd: int | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost = False

    def acquire(self) -> None:
        """Acquire the lock. CheckpointError if a live job has it."""
        import fcntl

        checkpoint = self._checkpoint
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(b"guard", flags, 0o600, dir_fd=checkpoint.fd)
        locked = False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            self._close()
            raise CheckpointError(RefusalReason.BUSY, checkpoint.path) from None
        except OSError:
            pass  # no file locks: rely on the heartbeat
        lock = self._read()
        if lock is not None and not _is_local(lock):
            if checkpoint.age_s(b"lock") < _EXPIRY_S:
                self._await_heartbeat(lock)
        elif lock is not None and not locked and _is_alive(lock):
            raise CheckpointError(RefusalReason.BUSY, checkpoint.path, f"by process {lock.process}")
        self._write()

    def _await_heartbeat(self, lock: LockRecord) -> None:
        """Wait for a heartbeat of a job on another host; CheckpointError if one comes."""
        until_s = time.monotonic() + _EXPIRY_S
        while time.monotonic() < until_s:
            time.sleep(_HEARTBEAT_S / 10)
            current = self._read()
            if current is not None and current != lock:
                raise CheckpointError(
                    RefusalReason.BUSY, self._checkpoint.path, f"on {current.host}"
                )

    def start_heartbeat(self) -> None:
        """Start the heartbeat."""
        self._thread = threading.Thread(target=self._run_heartbeat, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeat and close the lock file before the checkpoint is removed."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_HEARTBEAT_S)
        self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            close_open(fd)

    def release(self) -> None:
        """Release the lock."""
        self.stop()
        if not self.lost:
            with suppress(OSError):
                os.unlink(b"lock", dir_fd=self._checkpoint.fd)

    def _run_heartbeat(self) -> None:
        while not self._ended.wait(_HEARTBEAT_S):
            current = self._read()
            if current is not None and current.token != self._token:
                self.lost = True
                return
            with suppress(OSError):  # for example a full disk, which the journals report
                self._write()

    def _read(self) -> LockRecord | None:
        data = self._checkpoint.read(b"lock")
        try:
            return msgspec.json.decode(data, type=LockRecord)
        except msgspec.DecodeError:
            return None

    def _write(self) -> None:
        self._heartbeat += 1
        lock = LockRecord(_host(), _boot(), os.getpid(), self._token, self._heartbeat)
        self._checkpoint.write(b"lock", [msgspec.json.encode(lock)])

    def check(self) -> None:
        """Raise StoppedEarly if another job has taken over the checkpoint."""
        if self.lost:
            raise StoppedEarly("another job has taken over the checkpoint")


def _host() -> str:
    return os.uname().nodename  # socket.gethostname() without the import of socket


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _is_local(lock: LockRecord) -> bool:
    """Return whether the owner is a process of this host; containers may share a host name."""
    return lock.host == _host() and lock.boot == _boot()


def _is_alive(lock: LockRecord) -> bool:
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
