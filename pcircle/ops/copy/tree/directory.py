"""The directories of a copy: open directories, targets in progress, and comparisons.

The attributes of each directory are set when it is complete. `DirectoryComparison` determines, for
a run and for a dry run, whether that changes an existing directory. Only counts and reports depend
on the answer.

`Sides` holds the open directories of both sides, by root and path, for one worker thread.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
import xxhash

from pcircle.core.errors import require
from pcircle.fs.attributes.metadata import SET_ID_BITS, PreservedAttributes
from pcircle.fs.attributes.xattrs import ACL, ExtendedAttributes, generation, kind_of
from pcircle.fs.directories import HOLDER, Lease
from pcircle.fs.entry_errors import error_context
from pcircle.fs.naming import sync_directory
from pcircle.fs.write_access import Obstacle
from pcircle.ops.checkpoint.previous_records import CompletedNames
from pcircle.ops.checkpoint.store import create_mark
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.overwrite import TimestampPrecision
from pcircle.ops.copy.tree.items import CopyPlan, is_in_copy, open_sides
from pcircle.walk.items import DirectoryIdentity

if TYPE_CHECKING:
    from pcircle.fs.directories import Directories


class TargetDirectory(msgspec.Struct, frozen=True):
    """The state of a target directory between its creation and its completion."""

    source: os.stat_result
    identity: tuple[int, int]
    created: bool
    held: ExtendedAttributes | None = None
    begun: bool = False  # contains unfinished files of an earlier run
    finished_ns: int = 0  # change time when an earlier run completed it
    layout: bytes | None = None  # layout that its new entries inherit
    partial: CompletedNames | None = None  # names that an earlier run completed
    bare: bool = False  # is new, and passes on no access control list
    due: bool = False  # needs more work after its entries are complete
    differs: bool = False  # existed, and its attributes change
    obstacle: Obstacle | None = None  # protections that must be restored
    quiet: bool = False  # existed, unchanged since the last complete run


class DirectoryComparison:
    """Compares directories for one thread, ignoring attributes that the user cannot set."""

    def __init__(self, keep: PreservedAttributes, extras: AttributeCopier) -> None:
        self._keep = keep
        self._extras = extras
        self._precision = TimestampPrecision(None)
        self._groups = None if not os.geteuid() else {os.getegid(), *os.getgroups()}

    def of(self, source: os.stat_result, held: ExtendedAttributes | None, lease: Lease) -> bool:
        """Return whether completing a directory would change the attributes of its open copy."""
        if self._of_status(source, lease.opened.status):
            return True
        if held is None or lease.searched:  # attributes cannot be read with O_PATH
            return False
        try:
            return self._of_extras(source, held, lease.fd)
        except OSError:
            return True  # a run would set them

    def _of_status(self, source: os.stat_result, old: os.stat_result) -> bool:
        """Return whether the owner, mode or modification time would change."""
        keep, source = self._keep, self._keep.status(source)
        mode = source.st_mode
        if keep.ownership:
            any_user = self._groups is None
            this_group = self._groups is None or source.st_gid in self._groups
            user, group = source.st_uid != old.st_uid, source.st_gid != old.st_gid
            if (user and any_user) or (group and this_group):
                return True
            if user or group:  # another owner remains, who must not get these bits
                mode &= ~SET_ID_BITS
        if keep.mode and stat.S_IMODE(mode) != stat.S_IMODE(old.st_mode):
            return True
        return keep.timestamps and not self._precision.is_kept(source.st_mtime_ns, old, -1)

    def _of_extras(self, source: os.stat_result, held: ExtendedAttributes, target_fd: int) -> bool:
        """Return whether extended attributes, access control lists or inode flags would change.

        Raises OSError.
        """
        expected = require(self._keep.extended_attributes(source, held))
        there = self._extras.read_directory(target_fd, alone=False) or ExtendedAttributes([])
        values, given = dict(there.values), dict(expected.values)
        # Attributes that the source lacks stay; access control lists are removed if `alone` is
        # true.
        gone = [name for name in values if name not in given and kind_of(name) == ACL]
        if (expected.alone and gone) or any(
            values.get(name) != value for name, value in given.items()
        ):
            return True
        return expected.flags not in (0, there.flags)


class Sides:
    """The open directories of the sources and targets of all roots."""

    sources: Directories
    targets: Directories

    def __init__(
        self,
        plan: CopyPlan,
        opened: Callable[[int, os.stat_result], None] | None,
        *,
        is_first: bool,
    ) -> None:
        """Open the directories; see `open_sides`."""
        self._plan = plan
        self.sources, self.targets = open_sides(plan, opened, is_first)

    @contextmanager
    def leases(
        self, root: int, path: bytes, place: DirectoryIdentity | None = None
    ) -> Iterator[tuple[Lease, Lease]]:
        """Lease a source directory and its copy; errors name the operation "reach" by default."""
        source, target = (None, None) if place is None else (place.source, place.target)
        with (
            error_context("reach"),
            self.sources.lease(root, path, source) as source_lease,
            self.targets.lease(root, path, target) as target_lease,
        ):
            yield source_lease, target_lease

    def close(self) -> None:
        """Close all directories."""
        self.sources.close()
        self.targets.close()

    def copy_mark(self, root: int, path: bytes) -> int:
        """Return a 63-bit hash that identifies the copy of a directory, or 0 if there is none."""
        try:
            with self.targets.lease(root, path) as lease:
                inode = struct.pack("<QQ", lease.identity[1], generation(lease.fd))
        except OSError:
            return 0
        return xxhash.xxh3_64_intdigest(inode) >> 1

    def copy_status(
        self, root: int, path: bytes, identity: tuple[int, int] | None = None
    ) -> os.stat_result | None:
        """Return the status of a directory's copy, or None if it is missing or replaced."""
        try:
            with self.targets.lease(root, path, identity) as lease:
                return os.fstat(lease.fd)
        except OSError:
            return None

    def target_is(self, root: int, path: bytes, kind: int) -> bool:
        """Return whether the copy of a path exists and has this file type."""
        base = self._plan.roots[root]
        above, _, name = path.rpartition(b"/") if path else (HOLDER, b"", base.target_name)
        try:
            with self.targets.lease(root, above) as lease:
                status = os.stat(name or b".", dir_fd=lease.fd, follow_symlinks=not name)
        except OSError:
            return False
        return stat.S_IFMT(status.st_mode) == kind

    def target_name(self, root: int, path: bytes, name: bytes) -> bytes:
        """Return the name of an entry's copy, which may differ if the entry is a root."""
        return self._plan.roots[root].target_name if path == HOLDER else name

    def leave_mark(self, root: int) -> None:
        """Mark the target of a root before the first record about it."""
        journal = self._plan.journal
        if journal is not None:
            path = b"" if is_in_copy(self._plan.roots) else HOLDER
            with suppress(OSError), self.targets.lease(root, path) as lease:
                create_mark(journal.mark, lease.fd)

    def sync_holder(self, path: bytes, lease: Lease) -> None:
        """Sync the name of a root if --fsync is given; other names are synced per directory."""
        if path == HOLDER and self._plan.existing.sync:
            with error_context("flush the name of the copy of"):
                sync_directory(lease.fd, searched=lease.searched)
