"""Settings of a copy, which all copiers share."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from typing import Protocol, TypeAlias

import msgspec

from pcircle.core.units import Timestamp, timestamp
from pcircle.fs.attributes.metadata import Keep
from pcircle.fs.data import When
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.ops.copy.entry.overwrite import OverwriteOptions

_JOURNAL_BITS = (1 << 63) - 1  # of a time in ns, which may have more bits

"""Chunks are multiples of this size, the block of the dataset signature."""

"""Flags for opening a source: links are not followed, and devices are not opened."""

Identity: TypeAlias = "tuple[int, int]"
"""Device and inode."""


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity and the version of a file at one moment.

    `device` is that of `CopySettings.identify`. Inode numbers are reused and modification times can
    be set, but change times cannot.
    """

    device: int
    inode: int
    size: int
    modified: Timestamp
    changed: Timestamp

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode, unique while the file exists."""
        return self.device, self.inode

    @property
    def version(self) -> tuple[int, int, int, int]:
        """The part that is equal on all nodes and after a remount, for journals."""
        times = self.modified.ns & _JOURNAL_BITS, self.changed.ns & _JOURNAL_BITS
        return self.inode, self.size, *times


class FileRange(Protocol):
    """A range of a file to be copied into a temporary file.

    `source` and `target` are identities of the two files (`CopySettings.identify`). `sparse` means
    that looking for holes is worthwhile; `weight` is the share of the total work.
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
    """Treatment of Lustre layouts; see `pcircle.ops.copy.entry.layouts`.

    `source` and `target` are true for sides on Lustre. New files get `layout`, or with `keep` that
    of their source. So do directories, unless it is in `defaults`, the layouts of whole file
    systems.
    """

    source: bool = False
    target: bool = False
    keep: bool = False
    layout: bytes = b""
    defaults: tuple[bytes, ...] = ()

    @property
    def gives(self) -> bool:
        """True if files are given layouts."""
        return self.keep or bool(self.layout)


class CopySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How entries are copied; equal on all ranks.

    Files larger than `large_bytes` are copied in chunks. `umask` is the user's, `token` is part of
    this job's temporary names, and `one_node` means that all ranks share a node. `pcircle.fs.data`
    describes `reflink` and `sparse`. `existing` decides about existing entries, except those
    changed after `since_ns`, which are the work of a previous run of the same copy. `follow` copies
    the targets of symbolic links. `striping` is for Lustre.
    """

    keep: Keep
    large_bytes: int
    token: bytes
    umask: int
    one_node: bool = True
    reflink: When = "auto"
    sparse: When = "auto"
    existing: OverwriteOptions = OverwriteOptions()
    since_ns: int | None = None
    follow: bool = False
    striping: Striping = Striping()

    @property
    def source_flags(self) -> int:
        """Flags for opening a source file, which follow a link only if requested."""
        return OPEN_FILE & ~os.O_NOFOLLOW if self.follow else OPEN_FILE

    def is_ours(self, old: os.stat_result) -> bool:
        """Return whether a target entry is the work of a previous run of this copy.

        It was changed since that run started. It may be incomplete or not on disk, so no option
        keeps it.
        """
        return self.since_ns is not None and old.st_ctime_ns >= self.since_ns

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """Return what identifies a file on all ranks: device and inode.

        Nodes number the devices of network file systems differently, so with several nodes only the
        inode is used.
        """
        return (status.st_dev if self.one_node else 0), status.st_ino

    def stamp(self, status: os.stat_result) -> Stamp:
        """Return the identity and version of a file for all ranks."""
        times = map(timestamp, (status.st_mtime_ns, status.st_ctime_ns))
        return Stamp(*self.identify(status), status.st_size, *times)
