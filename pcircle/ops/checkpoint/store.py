"""A checkpoint as a directory: its place, its owner and its files.

The directory lies next to the target. Its name contains a hash of sources and destination, so the
same command finds it again:

    header              the copies and their options, the secret for hashing names, the target's
                        mark and the tokens of temporary names; rewritten by each run
    lock                the job that is running; rewritten as a heartbeat
    journal-RUN-RANK    the work of the ranks of a node, see `pcircle.ops.checkpoint.journal`
    index               records of previous runs by key, see `pcircle.ops.checkpoint.index`

A resumed job is a further run with its own journals and any number of ranks. If the target's parent
is not writable, the checkpoint is inside the target. It is removed when the job is complete, and
when nothing was committed.

The records decide what is not copied again, so a checkpoint must belong to the user who runs the
job and must not be writable by others.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto

import msgspec

from pcircle.core.writing import write_all
from pcircle.fs.directories import close_open
from pcircle.fs.open_flags import CREATE_FILE, OPEN_DIRECTORY
from pcircle.fs.scan import rewound
from pcircle.ops.checkpoint.hashes import blake2b
from pcircle.ops.checkpoint.journal import NamedCounts
from pcircle.ops.checkpoint.target_mark import remove_from

VERSION = 5
PREFIX = b".fcp-checkpoint-"
_MAGIC = b"fcp checkpoint\n"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class RefusalReason(Enum):
    """The reason why a checkpoint cannot be used or created; `detail` has more."""

    UNREACHABLE = auto()
    """It cannot be opened; `detail` is the system's reason."""
    NOT_TRUSTED = auto()
    """It belongs to another user, or other users may write to it."""
    NEWER = auto()
    """It was created by a newer version."""
    JUST_CREATED = auto()
    """Another process has just created it."""
    BUSY = auto()
    """Another job has the lock; `detail` names the job if it is known."""
    CREATION_FAILED = auto()
    """It cannot be created; `detail` is the system's reason."""
    UNWRITABLE = auto()
    """It cannot be written; `detail` is the system's reason."""
    INTERRUPTED = auto()
    """It exists, and neither resume nor restart was requested; `counts` is its progress."""
    DAMAGED = auto()
    """It exists, its header is unreadable, and neither resume nor restart was requested."""
    OTHER_SOURCE = auto()
    """It belongs to another source."""
    OTHER_SOURCES = auto()
    """It has a different number of sources."""
    OTHER_OPTIONS = auto()
    """It was created with another value of the option in `detail`."""


class CheckpointError(Exception):
    """The checkpoint at `path` cannot be used or created.

    The exception has no text because the tools have the messages.
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
        self.counts = counts or {}


class CopyIdentity(msgspec.Struct, frozen=True):
    """One copy of a checkpoint: path and inode of the source, and path of the target."""

    source: bytes
    inode: int
    target: bytes


class CheckpointHeader(msgspec.Struct, frozen=True):
    """The header of a checkpoint.

    `begun_ns` is the time of its creation on the clock of its file system. `options` affect the
    result of the copy. `tokens` are in the temporary names of all runs, in order. Files
    larger than `large_bytes` are written under temporary names; a file that was started this way
    must be finished this way. `mark` is the name of the target's mark (none before version 3).
    `now_ns` is the reference time for the durations in filters.
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
        """Open an existing checkpoint, or return None."""
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
        """Create an empty checkpoint. OSError."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            raise CheckpointError(RefusalReason.JUST_CREATED, path) from None
        return cls(path, os.open(path, OPEN_DIRECTORY))

    def close(self) -> None:
        """Close the directory."""
        os.close(self.fd)

    def _read_header(self) -> CheckpointHeader | None:
        """Return the header, or None if it was not written completely or is damaged."""
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
        """Write the header. OSError."""
        body = msgspec.msgpack.encode(header)
        self.write(b"header", [_MAGIC, _digest(body), body])
        self.header = header

    def write(self, name: bytes, parts: Iterable[bytes]) -> None:
        """Replace a file of the checkpoint atomically. OSError."""
        with suppress(FileNotFoundError):
            os.unlink(name + b".new", dir_fd=self.fd)
        fd = os.open(name + b".new", CREATE_FILE, 0o600, dir_fd=self.fd)
        try:
            for part in parts:
                write_all(fd, part)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(name + b".new", name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def read(self, name: bytes) -> bytes:
        """Return the contents of a file, or nothing if it is unreadable."""
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
        """Return the time since a file of the checkpoint was written. OSError."""
        written_ns = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mtime_ns
        return (self.now_ns() - written_ns) / 1e9

    def remove(self, *, keep_times: bool = False) -> None:
        """Remove the checkpoint; `keep_times` preserves the times of its parent. OSError."""
        for name in os.listdir(rewound(self.fd)):
            os.unlink(name, dir_fd=self.fd)
        holder = os.path.dirname(self.path)
        remove_from(holder, lambda: os.rmdir(self.path), keep_times=keep_times)

    def has_journals(self) -> bool:
        """Return whether a run has recorded anything."""
        return any(name.startswith("journal-") for name in os.listdir(rewound(self.fd)))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def is_place_error(error: OSError) -> bool:
    """Return whether the error may not occur in another directory."""
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)


def require_same_job(header: CheckpointHeader, wanted: CheckpointHeader, path: bytes) -> None:
    """Raise CheckpointError unless the checkpoint has the same copies and options."""
    for old, new in zip(header.copies, wanted.copies, strict=False):
        if old != new:
            raise CheckpointError(RefusalReason.OTHER_SOURCE, path, os.fsdecode(new.source))
    if len(header.copies) != len(wanted.copies):
        raise CheckpointError(RefusalReason.OTHER_SOURCES, path)
    for name in sorted(header.options.keys() | wanted.options.keys()):
        if header.options.get(name) != wanted.options.get(name):
            raise CheckpointError(RefusalReason.OTHER_OPTIONS, path, name)
