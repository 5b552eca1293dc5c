"""The checkpoint of a copy: where it lies, whose it is, and what may be done with it.

It is a directory beside the copy, named by a hash of the sources and the
destination, so that the same command finds it again:

    header              what is copied and how, the secret that names are hashed
                        with, the target's mark and those of temporary names;
                        rewritten by each run
    lock                who is at work on it; rewritten as a heartbeat
    journal-RUN-RANK    what was done, see `pcircle.fcp.journal`
    index               the journals of earlier runs, in order, see `pcircle.fcp.resumed`

A resumed copy is a further run, with journals of its own, by whatever number
of ranks. Where the copy's parent can't be written the checkpoint is inside the
copy. It is removed when the copy has ended, and when nothing was committed.

It is trusted with what was done, so it must belong to who runs fcp and be
writable by nobody else.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b

import msgspec

from pcircle.errors import StoppedEarly, UsageError
from pcircle.fcp.mark import remove_from
from pcircle.fcp.plan import DIRECTORY, Plan, Root
from pcircle.ui.names import show
from pcircle.writing import write_all

VERSION = 3
_MAGIC = b"fcp checkpoint\n"
_BEAT_S = 5.0
_DEAD_AFTER_S = 3 * _BEAT_S
_OWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Identity(msgspec.Struct, frozen=True):
    """What a checkpoint is of: a source's path and inode, and where its copy goes."""

    source: bytes
    inode: int
    target: bytes


class Header(msgspec.Struct, frozen=True):
    """What is known of a checkpoint. `begun_ns` is the file system's time of its beginning.

    `options` are those that decide what the copy comes to; `tokens` mark the
    temporary names of all runs, the last one's last. Files above
    `large_bytes` are begun under such names; what is begun so must be ended so. `mark` is the
    name of the target's mark; checkpoints before version 3 had none.
    """

    version: int
    secret: bytes
    begun_ns: int
    copies: tuple[Identity, ...]
    options: dict[str, bytes]
    tokens: tuple[bytes, ...]
    large_bytes: int
    mark: bytes = b""


class Lock(msgspec.Struct, frozen=True):
    """Who is at work: a host, the boot of it, a process there, and a number that grows."""

    host: str
    boot: str
    process: int
    token: bytes
    beat: int


def copies(roots: Sequence[Root], here: bytes) -> tuple[Identity, ...]:
    """What a copy of these roots is a copy of. OSError if a source is gone."""
    found = []
    for root in roots:
        source = os.path.join(here, root.source_holder, root.source_name)
        target = os.path.join(os.path.realpath(os.path.join(here, root.target_holder)), b"")
        inode = os.stat(source, follow_symlinks=root.kind == DIRECTORY).st_ino
        # Once it exists a root may be its own holder, with no name of its own.
        path = (target + root.target_name).rstrip(b"/") or b"/"
        found.append(Identity(_lexical(source), inode, path))
    return tuple(found)


def _lexical(path: bytes) -> bytes:
    holder, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(holder), name)


def options_of(plan: Plan) -> dict[str, bytes]:
    """The options that another run must have as well, each by its name, encoded."""
    encode = msgspec.msgpack.encode
    return {
        "what is preserved": encode(plan.keep),
        "existing files": encode(plan.existing),
        "filters": encode(plan.rules),
        "-L": encode(plan.follow),
        "-x": encode(plan.one_file_system),
        "--sparse": encode(plan.sparse),
        "--stripe": encode((plan.striping.keep, plan.striping.layout)),
        "--verify": encode(plan.verify),
        "--signature": encode(plan.sign),
        "the list of what to copy": encode(plan.listed),
    }


def place(identities: Sequence[Identity], directory: bytes | None) -> tuple[bytes, bytes]:
    """Where the checkpoint is, and where it is if it can't be made there."""
    whole = b"\0".join(part for each in identities for part in (each.source, each.target))
    name = b".fcp-checkpoint-" + blake2b(whole, digest_size=8).hexdigest().encode()
    copy = identities[0].target
    beside = directory if directory is not None else os.path.dirname(copy)
    return os.path.join(beside, name), os.path.join(copy, name)


class Checkpoint:
    """An open checkpoint, as rank 0 has it. `path` is absolute."""

    def __init__(self, path: bytes, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.header: Header | None = None

    @classmethod
    def find(cls, path: bytes) -> Checkpoint | None:
        """The checkpoint that is there; None if there is none. UsageError if it can't be used."""
        try:
            fd = os.open(path, _OWN)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise UsageError(f"the checkpoint '{show(path)}': {error.strerror}") from None
        found = cls(path, fd)
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            os.close(fd)
            raise UsageError(f"the checkpoint '{show(path)}' is not yours alone to write")
        found.header = found._read_header()
        return found

    @classmethod
    def make(cls, path: bytes) -> Checkpoint:
        """Make an empty one. OSError if it can't be, UsageError if somebody has just made one."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            raise UsageError(
                f"another fcp is at work on it: '{show(path)}' was just made"
            ) from None
        return cls(path, os.open(path, _OWN))

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)

    def _read_header(self) -> Header | None:
        """The header; None if the run that was to write it came to nothing, or it is damaged."""
        data = self.read(b"header")
        body = data[len(_MAGIC) + 16 :]
        if data[: len(_MAGIC)] != _MAGIC or _digest(body) != data[len(_MAGIC) : -len(body) or None]:
            return None
        try:
            header = msgspec.msgpack.decode(body, type=Header)
        except msgspec.DecodeError:
            return None
        if header.version > VERSION:
            raise UsageError(f"the checkpoint '{show(self.path)}' is of a newer version of fcp")
        return header if len(header.secret) == 8 else None

    def write_header(self, header: Header) -> None:
        """Set the header. OSError."""
        body = msgspec.msgpack.encode(header)
        self.write(b"header", [_MAGIC, _digest(body), body])
        self.header = header

    def write(self, name: bytes, parts: Iterable[bytes]) -> None:
        """Replace a file of the checkpoint, whole or not at all. OSError."""
        with suppress(FileNotFoundError):
            os.unlink(name + b".new", dir_fd=self.fd)
        fd = os.open(name + b".new", _WRITE, 0o600, dir_fd=self.fd)
        try:
            for part in parts:
                write_all(fd, part)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(name + b".new", name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def read(self, name: bytes) -> bytes:
        """A file's content; nothing if it can't be read."""
        try:
            fd = os.open(name, _READ, dir_fd=self.fd)
        except OSError:
            return b""
        with os.fdopen(fd, "rb") as file:
            return file.read(64 << 20)

    def now_ns(self) -> int:
        """The time as the checkpoint's file system has it."""
        probe = b"now.new"
        with suppress(FileNotFoundError):
            os.unlink(probe, dir_fd=self.fd)
        os.close(os.open(probe, _WRITE, 0o600, dir_fd=self.fd))
        status = os.stat(probe, dir_fd=self.fd)
        os.unlink(probe, dir_fd=self.fd)
        return status.st_ctime_ns

    def age_s(self, name: bytes) -> float:
        """How long ago a file of the checkpoint was written. OSError."""
        written_ns = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mtime_ns
        return (self.now_ns() - written_ns) / 1e9

    def remove(self, *, keep_times: bool = False) -> None:
        """Remove it; `keep_times` of the directory that it is in. OSError if that fails."""
        for name in os.listdir(self.fd):
            os.unlink(name, dir_fd=self.fd)
        holder = os.path.dirname(self.path)
        remove_from(holder, lambda: os.rmdir(self.path), keep_times=keep_times)

    def has_journals(self) -> bool:
        """Whether a run has recorded anything."""
        return any(name.startswith("journal-") for name in os.listdir(self.fd))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


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
        """Take the lock. UsageError if a living job has it."""
        import fcntl

        checkpoint = self._checkpoint
        busy = f"another fcp is at work on it: the checkpoint '{show(checkpoint.path)}' is locked"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(b"guard", flags, 0o600, dir_fd=checkpoint.fd)
        locked = False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            os.close(self._fd)
            self._fd = None
            raise UsageError(busy) from None
        except OSError:
            pass  # a file system without locks: the heartbeat must do
        lock = self._read()
        if lock is not None and not _is_of_this_host(lock):
            if checkpoint.age_s(b"lock") < _DEAD_AFTER_S:
                self._watch(lock, busy)
        elif lock is not None and not locked and _is_alive(lock):
            raise UsageError(f"{busy} by process {lock.process}")
        self._write()

    def _watch(self, lock: Lock, busy: str) -> None:
        """Wait for a beat of a job on what may be another host."""
        until_s = time.monotonic() + _DEAD_AFTER_S
        while time.monotonic() < until_s:
            time.sleep(_BEAT_S / 10)
            now = self._read()
            if now is not None and now != lock:
                raise UsageError(f"{busy} on {now.host}")

    def begin(self) -> None:
        """Beat from now on."""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Beat no more, and have no file of the checkpoint open: it is about to be removed."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_BEAT_S)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

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
        lock = Lock(socket.gethostname(), _boot(), os.getpid(), self._token, self._beat)
        self._checkpoint.write(b"lock", [msgspec.json.encode(lock)])

    def check(self) -> None:
        """StoppedEarly if another job has taken the checkpoint."""
        if self.taken:
            raise StoppedEarly("another fcp has taken over the checkpoint")


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _is_of_this_host(lock: Lock) -> bool:
    """Whether the lock's process would be one of ours: containers may share a name."""
    return lock.host == socket.gethostname() and lock.boot == _boot()


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


def refuse_other(header: Header, wanted: Header, path: bytes) -> None:
    """UsageError unless the checkpoint is of this copy, with these options."""
    what = f"the checkpoint '{show(path)}'"
    cure = "--restart discards it"
    for was, now in zip(header.copies, wanted.copies, strict=False):
        if was != now:
            raise UsageError(f"{what} is of another source than '{show(now.source)}'; {cure}")
    if len(header.copies) != len(wanted.copies):
        raise UsageError(f"{what} is of other sources; {cure}")
    for name in sorted(header.options.keys() | wanted.options.keys()):
        if header.options.get(name) != wanted.options.get(name):
            raise UsageError(f"{what} was made with other options ({name}); {cure}")


def writable(error: OSError) -> bool:
    """Whether a checkpoint might be made elsewhere, where it could not be made here."""
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
