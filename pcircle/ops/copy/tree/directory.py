"""Directories of the target while they are filled, and whether existing ones change.

A copy sets the attributes of each directory when it is complete. Only the counts depend on whether
that changes an existing directory; `DirectoryComparison` determines it for a run and for a dry run.
"""

from __future__ import annotations

import os
import stat

import msgspec

from pcircle.core.guards import require
from pcircle.fs.attributes.metadata import SET_ID_BITS, Keep
from pcircle.fs.attributes.xattrs import ACL, ExtendedAttributes, kind_of
from pcircle.fs.directories import Lease
from pcircle.fs.write_access import Obstacle
from pcircle.ops.checkpoint.previous_records import CompletedNames
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.precision import TimestampPrecision


class TargetDirectory(msgspec.Struct, frozen=True):
    """A directory between its creation and its completion."""

    source: os.stat_result
    identity: tuple[int, int]
    created: bool
    held: ExtendedAttributes | None = None
    begun: bool = False  # has unfinished files of an earlier run
    finished_ns: int = 0  # change time after an earlier run completed it
    layout: bytes | None = None  # for its new entries
    partial: CompletedNames | None = None  # names that an earlier run completed
    bare: bool = False  # new, and passes on no access control list
    due: bool = False  # has further work after its entries are complete
    differs: bool = False  # existed with other attributes
    obstacle: Obstacle | None = None  # protections of an existing directory, for restoration
    quiet: bool = False  # existed, and is unchanged since the last complete run


class DirectoryComparison:
    """Compares directories for one thread, ignoring attributes that this user cannot set."""

    def __init__(self, keep: Keep, extras: AttributeCopier) -> None:
        self._keep = keep
        self._extras = extras
        self._precision = TimestampPrecision(None)
        self._groups = None if not os.geteuid() else {os.getegid(), *os.getgroups()}

    def of(self, source: os.stat_result, held: ExtendedAttributes | None, lease: Lease) -> bool:
        """Return whether the attributes of an open, unchanged copy would change."""
        if self._of_status(source, lease.opened.status):
            return True
        if held is None or lease.searched:  # attributes cannot be read with O_PATH
            return False
        try:
            return self._of_extras(source, held, lease.fd)
        except OSError:
            return True  # a run sets them, which may succeed

    def _of_status(self, source: os.stat_result, old: os.stat_result) -> bool:
        """Return whether owner, mode or time would change."""
        keep, source = self._keep, self._keep.status(source)
        mode = source.st_mode
        if keep.ownership:
            any_user = self._groups is None
            this_group = self._groups is None or source.st_gid in self._groups
            user, group = source.st_uid != old.st_uid, source.st_gid != old.st_gid
            if (user and any_user) or (group and this_group):
                return True
            if user or group:  # it keeps another owner, who must not get these bits
                mode &= ~SET_ID_BITS
        if keep.mode and stat.S_IMODE(mode) != stat.S_IMODE(old.st_mode):
            return True
        return keep.timestamps and not self._precision.is_kept(source.st_mtime_ns, old, -1)

    def _of_extras(self, source: os.stat_result, held: ExtendedAttributes, target_fd: int) -> bool:
        """Return whether attributes, lists or flags would change. OSError."""
        wanted = require(self._keep.held(source, held))
        there = self._extras.read_directory(target_fd, alone=False) or ExtendedAttributes([])
        values, given = dict(there.values), dict(wanted.values)
        # Attributes that the source lacks are left unchanged; lists are removed with `alone`.
        gone = [name for name in values if name not in given and kind_of(name) == ACL]
        if (wanted.alone and gone) or any(
            values.get(name) != value for name, value in given.items()
        ):
            return True
        return wanted.flags not in (0, there.flags)
