"""The open directories of both sides of a copy, by root and path, for one worker thread."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from contextlib import suppress

import xxhash

from pcircle.fs.attributes.xattrs import generation
from pcircle.fs.directories import HOLDER, Lease
from pcircle.fs.entry_errors import error_context
from pcircle.fs.naming import sync_directory
from pcircle.ops.checkpoint.target_mark import create_mark
from pcircle.ops.copy.tree.plan import CopyPlan, is_in_copy, open_sides


class Sides:
    """The directories of the sources and targets of all roots."""

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

    def close(self) -> None:
        """Release all directories."""
        self.sources.close()
        self.targets.close()

    def copy_mark(self, root: int, path: bytes) -> int:
        """Return the identity of a directory's copy, 63 bits of its inode; 0 without a copy."""
        try:
            with self.targets.lease(root, path) as lease:
                inode = struct.pack("<QQ", lease.identity[1], generation(lease.fd))
        except OSError:
            return 0
        return xxhash.xxh3_64_intdigest(inode) >> 1

    def copy_status(
        self, root: int, path: bytes, identity: tuple[int, int] | None = None
    ) -> os.stat_result | None:
        """Return the status of a directory's copy, with this identity if given; or None."""
        try:
            with self.targets.lease(root, path, identity) as lease:
                return os.fstat(lease.fd)
        except OSError:
            return None

    def target_is(self, root: int, path: bytes, kind: int) -> bool:
        """Return whether the copy of a path exists with this kind of `st_mode`."""
        base = self._plan.roots[root]
        above, _, name = path.rpartition(b"/") if path else (HOLDER, b"", base.target_name)
        try:
            with self.targets.lease(root, above) as lease:
                status = os.stat(name or b".", dir_fd=lease.fd, follow_symlinks=not name)
        except OSError:
            return False
        return stat.S_IFMT(status.st_mode) == kind

    def target_name(self, root: int, path: bytes, name: bytes) -> bytes:
        """Return the name of an entry's copy, which may differ for a root that is a file."""
        return self._plan.roots[root].target_name if path == HOLDER else name

    def leave_mark(self, root: int) -> None:
        """Mark the target of a root before the first record about it."""
        journal = self._plan.journal
        if journal is not None:
            path = b"" if is_in_copy(self._plan.roots) else HOLDER
            with suppress(OSError), self.targets.lease(root, path) as lease:
                create_mark(journal.mark, lease.fd)

    def sync_holder(self, path: bytes, lease: Lease) -> None:
        """With --fsync, sync the name of a root; directories sync their entries."""
        if path == HOLDER and self._plan.existing.sync:
            with error_context("flush the name of the copy of"):
                sync_directory(lease.fd, searched=lease.searched)
