"""The settings of a copy that all copiers share."""

# This module evaluates annotations when it is imported, because msgspec would otherwise compile
# each of them on every rank.
import os
from typing import TypeAlias

import msgspec

from pcircle.core.units import Timestamp, timestamp
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.data import When
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.ops.copy.entry.overwrite import OverwriteOptions

_JOURNAL_BITS = (1 << 63) - 1  # limits times in ns to 63 bits, as journals require

Identity: TypeAlias = "tuple[int, int]"
"""Device and inode."""


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity and version of a file at one moment.

    `device` is as in `CopySettings.identify`. Change times are included because inode numbers are
    reused and modification times can be set.
    """

    device: int
    inode: int
    size: int
    modified: Timestamp
    changed: Timestamp

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode, which are unique while the file exists."""
        return self.device, self.inode

    @property
    def version(self) -> tuple[int, int, int, int]:
        """The part that journals store, which is the same on all nodes and after a remount."""
        times = self.modified.ns & _JOURNAL_BITS, self.changed.ns & _JOURNAL_BITS
        return self.inode, self.size, *times


class FileRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A range of a file that is copied into a temporary file.

    `source` and `target` are the identities of the two files (`CopySettings.identify`). `sparse`
    means that the file may have holes, which must be detected, and `weight` is the range's share of
    the total work.
    """

    name: bytes
    temporary: bytes
    source: tuple[int, int]
    target: tuple[int, int]
    offset: int
    length: int
    weight: float
    sparse: bool


class Striping(msgspec.Struct, frozen=True, array_like=True):
    """The treatment of Lustre layouts; see `pcircle.ops.copy.entry.attributes`.

    `source` and `target` are true if that side is on Lustre. New files are created with `layout`,
    or, if `keep` is true, with the layout of their source. With `keep`, directories also receive
    the layout of their source, unless it is one of the default layouts of the file systems,
    `defaults`.
    """

    source: bool = False
    target: bool = False
    keep: bool = False
    layout: bytes = b""
    defaults: tuple[bytes, ...] = ()

    @property
    def gives(self) -> bool:
        """True if layouts are set on new files."""
        return self.keep or bool(self.layout)


class CopySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for copying entries, which are the same on all ranks.

    Files larger than `large_bytes` are copied in chunks. `umask` is that of the user, `token` is
    part of the temporary names of this job, and `one_node` means that all ranks share a node.
    `reflink` and `sparse` are described in `pcircle.fs.data`. `existing` determines how existing
    entries are treated, except those that changed after `since_ns`, because a previous run of the
    same copy created them. `follow` means that the targets of symbolic links are copied instead of
    the links. `noatime` means that reading must not change access times. `striping` applies to
    Lustre.
    """

    keep: PreservedAttributes
    large_bytes: int
    token: bytes
    umask: int
    one_node: bool = True
    reflink: When = "auto"
    sparse: When = "auto"
    existing: OverwriteOptions = OverwriteOptions()
    since_ns: int | None = None
    follow: bool = False
    noatime: bool = False
    striping: Striping = Striping()

    @property
    def source_flags(self) -> int:
        """The flags for opening a source file; they follow a symbolic link only if requested."""
        return OPEN_FILE & ~os.O_NOFOLLOW if self.follow else OPEN_FILE

    def is_ours(self, old: os.stat_result) -> bool:
        """Return whether a target entry counts as created by a previous run of this copy.

        Such an entry changed after that run started. It may be incomplete or not on disk, so no
        option leaves it in place.
        """
        return self.since_ns is not None and old.st_ctime_ns >= self.since_ns

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """Return the device and inode that identify a file on all ranks.

        Device numbers of network file systems differ between nodes, so on several nodes the device
        is always 0.
        """
        return (status.st_dev if self.one_node else 0), status.st_ino

    def stamp(self, status: os.stat_result) -> Stamp:
        """Return the identity and version of a file for all ranks."""
        times = map(timestamp, (status.st_mtime_ns, status.st_ctime_ns))
        return Stamp(*self.identify(status), status.st_size, *times)
