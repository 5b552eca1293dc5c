"""How entries are copied: what all means of a copy go by."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from typing import Protocol, TypeAlias

import msgspec

from pcircle.copying.existing import Existing
from pcircle.fs.data import When
from pcircle.fs.metadata import Keep
from pcircle.timestamps import Timestamp, timestamp

_JOURNAL_BITS = (1 << 63) - 1  # of a time in ns, which may have more

CHUNK_UNIT_BYTES = 4 << 20
"""Chunks are multiples of this: the block of the dataset signature."""

SOURCE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How a source is opened that is no link to be followed: never a device."""

Identity: TypeAlias = "tuple[int, int]"
"""Device and inode."""


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which file a name stood for, and which version of it: one look at it.

    `device` as of `Settings.identify`, size in bytes. Inode numbers are given again when
    files are removed, and the modification time can be set; the change time can't.
    """

    device: int
    inode: int
    size: int
    modified: Timestamp
    changed: Timestamp

    @property
    def identity(self) -> tuple[int, int]:
        """Which file it is, for as long as it exists."""
        return self.device, self.inode

    @property
    def version(self) -> tuple[int, int, int, int]:
        """What is the same on all nodes and after a remount, as journals record it."""
        times = self.modified.ns & _JOURNAL_BITS, self.changed.ns & _JOURNAL_BITS
        return self.inode, self.size, *times


class Range(Protocol):
    """A range of a file, to be copied into the temporary file that stands for it.

    `source` and `target` are the two files' identities, as of `Settings.identify`. `sparse` tells
    that the file has holes, which are worth looking for; `weight` is its share of the work.
    """

    @property
    def name(self) -> bytes: ...
    @property
    def temporary(self) -> bytes: ...
    @property
    def source(self) -> Identity: ...
    @property
    def target(self) -> Identity: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def weight(self) -> float: ...
    @property
    def sparse(self) -> bool: ...


class Striping(msgspec.Struct, frozen=True, array_like=True):
    """What is done about Lustre layouts; see `pcircle.copying.layouts`.

    `source` and `target` tell which side is on Lustre. New files get `layout`,
    or with `keep` their source's, as directories do unless it is one of
    `defaults`, those of whole file systems.
    """

    source: bool = False
    target: bool = False
    keep: bool = False
    layout: bytes = b""
    defaults: tuple[bytes, ...] = ()

    @property
    def gives(self) -> bool:
        """Whether files are to be given layouts."""
        return self.keep or bool(self.layout)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How entries are copied, the same on every rank.

    `large_bytes` is the size above which files are copied in chunks. `umask` is the mask that was
    in force, `token` marks this job's temporary names; `one_node` tells that all ranks share a
    node. `reflink` and `sparse` are as of `pcircle.fs.data`. `existing` says what becomes of what
    is there already: but what was changed since `since_ns` is taken for the work of an earlier run
    of the same copy. `follow` tells to copy what symbolic links stand for. `striping` is about
    Lustre.
    """

    keep: Keep
    large_bytes: int
    token: bytes
    umask: int
    one_node: bool = True
    reflink: When = "auto"
    sparse: When = "auto"
    existing: Existing = Existing()
    since_ns: int | None = None
    follow: bool = False
    striping: Striping = Striping()

    @property
    def source_flags(self) -> int:
        """How a source file is opened: through a link only if that is asked for."""
        return SOURCE_FLAGS & ~os.O_NOFOLLOW if self.follow else SOURCE_FLAGS

    def is_ours(self, old: os.stat_result) -> bool:
        """Whether something in the target is taken for the work of an earlier run of this copy.

        It was changed since that began. It may not be whole, nor on disk, so no option keeps it.
        """
        return self.since_ns is not None and old.st_ctime_ns >= self.since_ns

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """What tells one file from another on all ranks: device and inode.

        Nodes number the same network file system's device each in their own
        way, so among several nodes the inode alone must do.
        """
        return (status.st_dev if self.one_node else 0), status.st_ino

    def stamp(self, status: os.stat_result) -> Stamp:
        """Which file this is, and which version of it, for all ranks."""
        times = map(timestamp, (status.st_mtime_ns, status.st_ctime_ns))
        return Stamp(*self.identify(status), status.st_size, *times)
