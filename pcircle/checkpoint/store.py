"""A checkpoint: where it lies, whose it is, and what is in it.

It is a directory beside the target, named by a hash of the sources and the
destination, so that the same command finds it again:

    header              what is copied and how, the secret that names are hashed
                        with, the target's mark and those of temporary names;
                        rewritten by each run
    lock                who is running this copy; rewritten as a heartbeat
    journal-RUN-RANK    what a rank and others of its node did, see `pcircle.checkpoint.journal`
    index               the journals of earlier runs, in order, see `pcircle.checkpoint.index`

A resumed job is a further run, with journals of its own, by whatever number
of ranks. Where the target's parent can't be written the checkpoint is inside the
target. It is removed when the job has ended, and when nothing was committed.

It is trusted with what was done, so it must belong to who runs the job and be
writable by nobody else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto

import msgspec

from pcircle.checkpoint.blake import blake2b
from pcircle.checkpoint.journal import Named
from pcircle.checkpoint.mark import remove_from
from pcircle.fs.directories import close_open
from pcircle.fs.scan import rewound
from pcircle.writing import write_all

VERSION = 5
PREFIX = b".fcp-checkpoint-"
_MAGIC = b"fcp checkpoint\n"
_OWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Why(Enum):
    """Why a checkpoint can't be used, or made; what more is known of it is the `detail`."""

    UNREACHABLE = auto()
    """The system's reason."""
    NOT_OURS = auto()
    """It belongs to somebody else, or others may write to it."""
    NEWER = auto()
    """A newer version has made it."""
    JUST_MADE = auto()
    """Somebody else was faster."""
    BUSY = auto()
    """Another job has the lock: who that is, if it is known."""
    UNMAKEABLE = auto()
    """The system's reason."""
    UNWRITABLE = auto()
    """The system's reason."""
    INTERRUPTED = auto()
    """There is one, and it was not said what to do with it. `counts` are how far it got."""
    DAMAGED = auto()
    """The same, and its header can't be read."""
    OTHER_SOURCE = auto()
    """It is not of this source."""
    OTHER_SOURCES = auto()
    """It is of more sources, or of fewer."""
    OTHER_OPTIONS = auto()
    """It was made with another value of this option."""


class Unusable(Exception):
    """The checkpoint at `path` can't be used, or made. No text: the tool words it."""

    def __init__(
        self, why: Why, path: bytes, detail: str = "", counts: Named | None = None
    ) -> None:
        super().__init__(why, path, detail, counts)
        self.why = why
        self.path = path
        self.detail = detail
        self.counts = counts or {}


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
    name of the target's mark; checkpoints before version 3 had none. `now_ns` is what durations of
    filters are counted from.
    """

    version: int
    secret: bytes
    begun_ns: int
    copies: tuple[Identity, ...]
    options: dict[str, bytes]
    tokens: tuple[bytes, ...]
    large_bytes: int
    mark: bytes = b""
    now_ns: int = 0


def place(identities: Sequence[Identity], directory: bytes | None) -> tuple[bytes, bytes]:
    """Where the checkpoint is, and where it is if it can't be made there."""
    whole = b"\0".join(part for each in identities for part in (each.source, each.target))
    name = PREFIX + blake2b(whole, digest_size=8).hexdigest().encode()
    copy = identities[0].target
    beside = directory if directory is not None else os.path.dirname(copy)
    return os.path.join(beside, name), os.path.join(copy, name)


class Checkpoint:
    """An open checkpoint, as rank 0 has it. `path` is absolute. What is wrong is Unusable."""

    def __init__(self, path: bytes, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.header: Header | None = None

    @classmethod
    def find(cls, path: bytes) -> Checkpoint | None:
        """The checkpoint that is there; None if there is none."""
        try:
            fd = os.open(path, _OWN)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise Unusable(Why.UNREACHABLE, path, error.strerror or "") from None
        found = cls(path, fd)
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            os.close(fd)
            raise Unusable(Why.NOT_OURS, path)
        found.header = found._read_header()
        return found

    @classmethod
    def make(cls, path: bytes) -> Checkpoint:
        """Make an empty one. OSError if it can't be."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            raise Unusable(Why.JUST_MADE, path) from None
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
            raise Unusable(Why.NEWER, self.path)
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
        try:
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read(64 << 20)
        finally:
            close_open(fd)

    def now_ns(self) -> int:
        """The time as the checkpoint's file system has it."""
        probe = b"now.new"
        with suppress(FileNotFoundError):
            os.unlink(probe, dir_fd=self.fd)
        close_open(os.open(probe, _WRITE, 0o600, dir_fd=self.fd))
        status = os.stat(probe, dir_fd=self.fd)
        os.unlink(probe, dir_fd=self.fd)
        return status.st_ctime_ns

    def age_s(self, name: bytes) -> float:
        """How long ago a file of the checkpoint was written. OSError."""
        written_ns = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mtime_ns
        return (self.now_ns() - written_ns) / 1e9

    def remove(self, *, keep_times: bool = False) -> None:
        """Remove it; `keep_times` of the directory that it is in. OSError if that fails."""
        for name in os.listdir(rewound(self.fd)):
            os.unlink(name, dir_fd=self.fd)
        holder = os.path.dirname(self.path)
        remove_from(holder, lambda: os.rmdir(self.path), keep_times=keep_times)

    def has_journals(self) -> bool:
        """Whether a run has recorded anything."""
        return any(name.startswith("journal-") for name in os.listdir(rewound(self.fd)))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def writable(error: OSError) -> bool:
    """Whether a checkpoint might be made elsewhere, where it could not be made here."""
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)


def refuse_other(header: Header, wanted: Header, path: bytes) -> None:
    """Unusable unless the checkpoint is of these copies, made with these options."""
    for was, now in zip(header.copies, wanted.copies, strict=False):
        if was != now:
            raise Unusable(Why.OTHER_SOURCE, path, os.fsdecode(now.source))
    if len(header.copies) != len(wanted.copies):
        raise Unusable(Why.OTHER_SOURCES, path)
    for name in sorted(header.options.keys() | wanted.options.keys()):
        if header.options.get(name) != wanted.options.get(name):
            raise Unusable(Why.OTHER_OPTIONS, path, name)
