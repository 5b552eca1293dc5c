"""The directory of a checkpoint: its files, the mark of its target, and its lock.

By default, the directory is a sibling of the target. Its name contains a hash of the sources and
the destination, so the same command finds it again. It contains these files:

    header              the copies and their options, the secret for hashing names, the target's
                        mark and the tokens of temporary names; rewritten by each run
    guard               an empty file that the running job locks
    lock                the job that is running; rewritten as a heartbeat
    journal-RUN-RANK    the work of the ranks of a node, see `pcircle.ops.checkpoint.journal`
    index               records of previous runs by key, see `pcircle.ops.checkpoint.index`

A resumed job is a new run with its own journals and any number of ranks. If the parent of the
target is not writable, the checkpoint is created inside the target. The checkpoint is removed when
the job is complete, or if the job ends before it has begun any work.

The records determine which entries are not copied again. Therefore a checkpoint must belong to the
user who runs the job and must not be writable by other users.

The mark identifies the target. A resumed run must be certain that the target is the same directory
that the previous run wrote to. Inode numbers are not sufficient, because file systems assign their
first inodes deterministically, so a recreated target may have the same number. File system IDs are
unsuitable too: some change at each remount, some survive mkfs, and NFS has none. Therefore a run
with a checkpoint creates an empty file in the target. Its name consists of `.fcp-mark-`, the hash
of the checkpoint and 16 random hexadecimal digits. The header of the checkpoint stores the name.
The mark is visible from every node and exists only in that target.

If a single directory is copied, the mark is in the copy; otherwise it is in the directory that
receives the copies. The mark is removed together with the checkpoint. If the mark cannot be
created, a later run starts from the beginning.

The lock prevents a second job from using the same checkpoint. It is an flock, which some file
systems do not support across nodes. Therefore the owner also rewrites a record regularly, and a
competitor on another host waits to see whether the record changes.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum, auto

import msgspec

from pcircle.core.errors import StoppedEarly
from pcircle.core.writing import write_all
from pcircle.fs.attributes.xattrs import FORBIDDING, give_flags, read_flags
from pcircle.fs.directories import close_open, closing_fd
from pcircle.fs.open_flags import CREATE_FILE, OPEN_DIRECTORY, OPEN_DIRECTORY_FOLLOW
from pcircle.fs.scan import rewound
from pcircle.ops.checkpoint.hashes import blake2b
from pcircle.ops.checkpoint.journal import NamedCounts

VERSION = 6
PREFIX = b".fcp-checkpoint-"
_MAGIC = b"fcp checkpoint\n"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RefusalReason(Enum):
    """The reason why a checkpoint cannot be used or created."""

    UNREACHABLE = auto()
    """The checkpoint cannot be opened; `detail` is the system's reason."""
    NOT_TRUSTED = auto()
    """The checkpoint belongs to another user, or other users may write to it."""
    NEWER = auto()
    """A newer version created the checkpoint."""
    JUST_CREATED = auto()
    """Another process has just created the checkpoint."""
    BUSY = auto()
    """Another job has the lock; `detail` names the job if it is known."""
    CREATION_FAILED = auto()
    """The checkpoint cannot be created; `detail` is the system's reason."""
    UNWRITABLE = auto()
    """The checkpoint cannot be written to; `detail` is the system's reason."""
    INTERRUPTED = auto()
    """A checkpoint with the progress `counts` exists, and no resume or restart was requested."""
    DAMAGED = auto()
    """A checkpoint without a readable header exists, and no resume or restart was requested."""
    OTHER_SOURCE = auto()
    """The checkpoint belongs to another source."""
    OTHER_SOURCES = auto()
    """The checkpoint belongs to a different number of sources."""
    OTHER_OPTIONS = auto()
    """The checkpoint was created with another value of the option `detail`."""


class CheckpointError(Exception):
    """The checkpoint at `path` cannot be used or created.

    The exception contains no message, because the tools define the messages.
    """

    def __init__(
        self,
        reason: RefusalReason,
        path: bytes,
        detail: str = "",
        counts: NamedCounts | None = None,
    ) -> None:
        super().__init__(reason, path, detail, counts)
        self.reason = reason
        self.path = path
        self.detail = detail
        self.counts: NamedCounts = counts or {}


class CopyIdentity(msgspec.Struct, frozen=True):
    """One copy of a job: the path and inode of the source, and the path of the target."""

    source: bytes
    inode: int
    target: bytes


class CheckpointHeader(msgspec.Struct, frozen=True):
    """The header of a checkpoint.

    `begun_ns` is the time of its creation by the clock of its file system. `options` are those that
    affect the result of the copy. `tokens` are the tokens in the temporary names of all runs, in
    order. Files larger than `large_bytes` are written under temporary names; the limit is stored so
    that a resumed run treats a started file in the same way. `mark` is the name of the target's
    mark, or empty before version 3. `now_ns` is the reference time for durations in filters.
    """

    version: int
    secret: bytes
    begun_ns: int
    copies: tuple[CopyIdentity, ...]
    options: dict[str, bytes]
    tokens: tuple[bytes, ...]
    large_bytes: int
    mark: bytes = b""
    now_ns: int = 0


def checkpoint_paths(
    identities: Sequence[CopyIdentity], directory: bytes | None
) -> tuple[bytes, bytes]:
    """Return the preferred path of the checkpoint, and the path inside the target."""
    identity_text = b"\0".join(
        part for identity in identities for part in (identity.source, identity.target)
    )
    name = PREFIX + blake2b(identity_text, digest_size=8).hexdigest().encode()
    copy = identities[0].target
    parent = directory if directory is not None else os.path.dirname(copy)
    return os.path.join(parent, name), os.path.join(copy, name)


class Checkpoint:
    """An open checkpoint on rank 0, with an absolute `path`. Raises CheckpointError."""

    def __init__(self, path: bytes, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.header: CheckpointHeader | None = None

    @classmethod
    def find(cls, path: bytes) -> Checkpoint | None:
        """Open an existing checkpoint, or return None if there is none."""
        try:
            fd = os.open(path, OPEN_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise CheckpointError(RefusalReason.UNREACHABLE, path, error.strerror or "") from None
        found = cls(path, fd)
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            os.close(fd)
            raise CheckpointError(RefusalReason.NOT_TRUSTED, path)
        found.header = found._read_header()
        return found

    @classmethod
    def create(cls, path: bytes) -> Checkpoint:
        """Create an empty checkpoint. Raises OSError."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            raise CheckpointError(RefusalReason.JUST_CREATED, path) from None
        return cls(path, os.open(path, OPEN_DIRECTORY))

    def close(self) -> None:
        """Close the directory of the checkpoint."""
        os.close(self.fd)

    def _read_header(self) -> CheckpointHeader | None:
        """Return the header, or None if it is incomplete or damaged."""
        data = self.read(b"header")
        body = data[len(_MAGIC) + 16 :]
        if data[: len(_MAGIC)] != _MAGIC or _digest(body) != data[len(_MAGIC) : -len(body) or None]:
            return None
        try:
            header = msgspec.msgpack.decode(body, type=CheckpointHeader)
        except msgspec.DecodeError:
            return None
        if header.version > VERSION:
            raise CheckpointError(RefusalReason.NEWER, self.path)
        return header if len(header.secret) == 8 else None

    def write_header(self, header: CheckpointHeader) -> None:
        """Write the header. Raises OSError."""
        body = msgspec.msgpack.encode(header)
        self.write(b"header", [_MAGIC, _digest(body), body])
        self.header = header

    def write(self, name: bytes, parts: Iterable[bytes]) -> None:
        """Replace a file of the checkpoint atomically. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(name + b".new", dir_fd=self.fd)
        with closing_fd(os.open(name + b".new", CREATE_FILE, 0o600, dir_fd=self.fd)) as fd:
            for part in parts:
                write_all(fd, part)
            os.fsync(fd)
        os.rename(name + b".new", name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def read(self, name: bytes) -> bytes:
        """Return the contents of a file, or no bytes if it is unreadable."""
        try:
            fd = os.open(name, _READ, dir_fd=self.fd)
        except OSError:
            return b""
        try:
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read(64 << 20)
        finally:
            close_open(fd)

    def now_ns(self) -> int:
        """Return the current time of the checkpoint's file system."""
        probe = b"now.new"
        with suppress(FileNotFoundError):
            os.unlink(probe, dir_fd=self.fd)
        close_open(os.open(probe, CREATE_FILE, 0o600, dir_fd=self.fd))
        status = os.stat(probe, dir_fd=self.fd)
        os.unlink(probe, dir_fd=self.fd)
        return status.st_ctime_ns

    def age_s(self, name: bytes) -> float:
        """Return how many seconds ago a file of the checkpoint was written. Raises OSError."""
        written_ns = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mtime_ns
        return (self.now_ns() - written_ns) / 1e9

    def remove(self, *, keep_times: bool = False) -> None:
        """Remove the checkpoint; `keep_times` preserves the times of its parent. Raises OSError."""
        for name in os.listdir(rewound(self.fd)):
            os.unlink(name, dir_fd=self.fd)
        holder = os.path.dirname(self.path)
        remove_from(holder, lambda: os.rmdir(self.path), keep_times=keep_times)

    def has_journals(self) -> bool:
        """Return whether any run has created a journal."""
        return any(name.startswith("journal-") for name in os.listdir(rewound(self.fd)))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def is_place_error(error: OSError) -> bool:
    """Return whether an error is specific to a directory, so that another one may work."""
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)


def require_same_job(header: CheckpointHeader, expected: CheckpointHeader, path: bytes) -> None:
    """Raise CheckpointError unless the checkpoint has the same copies and options."""
    for old, new in zip(header.copies, expected.copies, strict=False):
        if old != new:
            raise CheckpointError(RefusalReason.OTHER_SOURCE, path, os.fsdecode(new.source))
    if len(header.copies) != len(expected.copies):
        raise CheckpointError(RefusalReason.OTHER_SOURCES, path)
    for name in sorted(header.options.keys() | expected.options.keys()):
        if header.options.get(name) != expected.options.get(name):
            raise CheckpointError(RefusalReason.OTHER_OPTIONS, path, name)


# ---- mark of the target --------------------------------------------------------------------------


def new_mark(checkpoint: bytes) -> bytes:
    """Return a unique name for the mark of the checkpoint at this path."""
    return _prefix(checkpoint) + os.urandom(8).hex().encode()


def _prefix(checkpoint: bytes) -> bytes:
    return b".fcp-mark-" + checkpoint.rpartition(b"-")[2] + b"-"


def create_mark(name: bytes, directory_fd: int) -> None:
    """Create a mark in a directory unless it exists."""
    with suppress(OSError):  # without a mark the records are ignored
        os.close(os.open(name, CREATE_FILE, 0o600, dir_fd=directory_fd))


class TargetMark(msgspec.Struct, frozen=True):
    """A mark and the absolute path of the directory that should contain it."""

    directory: bytes
    name: bytes

    def exists(self) -> bool:
        """Return whether the directory contains the mark."""
        return bool(self.name) and os.path.lexists(os.path.join(self.directory, self.name))

    def remove(self) -> None:
        """Remove the mark if it exists. Raises OSError if that fails."""
        path = os.path.join(self.directory, self.name)
        # The mode of the directory may prevent a check for the mark, so removal is always tried.
        with suppress(FileNotFoundError, NotADirectoryError):
            if self.name:
                remove_from(self.directory, lambda: os.unlink(path), keep_times=True)

    @classmethod
    def remove_all(cls, directory: bytes, checkpoint: bytes) -> None:
        """Remove all marks of a checkpoint whose header is unreadable.

        Raises OSError if that fails.
        """
        with suppress(FileNotFoundError):
            for name in os.listdir(directory):
                if name.startswith(_prefix(checkpoint)):
                    cls(directory, name).remove()


def remove_from(directory: bytes, remove: Callable[[], None], *, keep_times: bool) -> None:
    """Call `remove`, which changes a directory that may already have its final attributes.

    The mode and inode flags of the directory may forbid the removal. They are changed temporarily
    if necessary, and if `keep_times` is true, the times are restored too. Raises OSError.
    """
    before = os.stat(directory)
    try:
        remove()
    except PermissionError:
        with _temporarily_writable(directory, before):
            remove()
            if keep_times:
                _set_times(directory, before)
        return
    if keep_times:
        _set_times(directory, before)


def _set_times(directory: bytes, before: os.stat_result) -> None:
    with suppress(PermissionError):  # the directory belongs to another user
        os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def _temporarily_writable(directory: bytes, before: os.stat_result) -> Iterator[None]:
    """Temporarily grant the owner all permissions and clear inode flags that forbid changes."""
    fd, mode = -1, stat.S_IMODE(before.st_mode)
    with ExitStack() as stack:
        with suppress(PermissionError):  # this job sets no flags on unreadable directories
            fd = stack.enter_context(closing_fd(os.open(directory, OPEN_DIRECTORY_FOLLOW)))
        flags = read_flags(fd) if fd >= 0 else 0
        if flags & FORBIDDING and give_flags(fd, flags & ~FORBIDDING):
            stack.callback(give_flags, fd, flags)
        os.chmod(directory, mode | stat.S_IRWXU)
        stack.callback(os.chmod, directory, mode)
        yield


# ---- lock ----------------------------------------------------------------------------------------

_HEARTBEAT_S = 5.0
_EXPIRY_S = 3 * _HEARTBEAT_S


class LockRecord(msgspec.Struct, frozen=True):
    """The owner of a lock; `beat` counts its heartbeats."""

    host: str
    boot: str
    process: int
    token: bytes
    beat: int


class CheckpointLock:
    """A file lock, and a heartbeat for file systems on which file locks do not work.

    `lost` becomes true when another job takes over the lock.
    """

    def __init__(self, checkpoint: Checkpoint, token: bytes) -> None:
        self._checkpoint = checkpoint
        self._token = token
        self._heartbeat = 0
        self._fd: int | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost: bool = False

    def acquire(self) -> None:
        """Acquire the lock. Raises CheckpointError if another running job holds it."""
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
            pass  # file locks are not supported: rely on the heartbeat
        lock = self._read()
        if lock is not None and not _is_local(lock):
            if checkpoint.age_s(b"lock") < _EXPIRY_S:
                self._await_heartbeat(lock)
        elif lock is not None and not locked and _is_alive(lock):
            raise CheckpointError(RefusalReason.BUSY, checkpoint.path, f"by process {lock.process}")
        self._write()

    def _await_heartbeat(self, lock: LockRecord) -> None:
        """Wait for a heartbeat of a job on another host. Raises CheckpointError if there is one."""
        until_s = time.monotonic() + _EXPIRY_S
        while time.monotonic() < until_s:
            time.sleep(_HEARTBEAT_S / 10)
            current = self._read()
            if current is not None and current != lock:
                raise CheckpointError(
                    RefusalReason.BUSY, self._checkpoint.path, f"on {current.host}"
                )

    def start_heartbeat(self) -> None:
        """Start the thread that rewrites the record of the lock."""
        self._thread = threading.Thread(target=self._run_heartbeat, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeat and close the lock file, so that the checkpoint can be removed."""
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
            with suppress(OSError):  # for example if the disk is full, which the journals report
                self._write()

    def _read(self) -> LockRecord | None:
        try:
            return msgspec.json.decode(self._checkpoint.read(b"lock"), type=LockRecord)
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
    return os.uname().nodename  # like socket.gethostname(), but without importing socket


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _is_local(lock: LockRecord) -> bool:
    """Return whether the owner is on this host.

    The boot is compared too, because containers may share a host name.
    """
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
