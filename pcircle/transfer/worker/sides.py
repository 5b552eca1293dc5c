"""The directories of both sides of a copy, by root and path, as one worker thread has them open.

What is asked of a target directory beside what is copied into it: whether it is there, how it is
known again, and that its name is on disk.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from contextlib import suppress

import xxhash

from pcircle.checkpoint.target_mark import create_mark
from pcircle.fs.directories import HOLDER, Lease
from pcircle.fs.naming import sync_directory
from pcircle.fs.trouble import trying
from pcircle.fs.xattrs import generation
from pcircle.transfer.plan import Plan, is_in_copy, open_sides


class Sides:
    """The sources' directories, `sources`, and the targets', `targets`."""

    def __init__(
        self,
        plan: Plan,
        opened: Callable[[int, os.stat_result], None] | None,
        *,
        is_first: bool,
    ) -> None:
        """As of `open_sides`."""
        self._plan = plan
        self.sources, self.targets = open_sides(plan, opened, is_first)

    def close(self) -> None:
        """Let all directories go."""
        self.sources.close()
        self.targets.close()

    def copy_mark(self, root: int, path: bytes) -> int:
        """What a directory's copy is known again by: 63 bits of its inode; 0 if there is none."""
        try:
            with self.targets.lease(root, path) as lease:
                inode = struct.pack("<QQ", lease.identity[1], generation(lease.fd))
        except OSError:
            return 0
        return xxhash.xxh3_64_intdigest(inode) >> 1

    def copy_status(
        self, root: int, path: bytes, identity: tuple[int, int] | None = None
    ) -> os.stat_result | None:
        """The status of a directory's copy, of that very one if wanted; None if there is none."""
        try:
            with self.targets.lease(root, path, identity) as lease:
                return os.fstat(lease.fd)
        except OSError:
            return None

    def target_is(self, root: int, path: bytes, kind: int) -> bool:
        """Whether the copy of what has this path is there, and of this kind of `st_mode`."""
        base = self._plan.roots[root]
        above, _, name = path.rpartition(b"/") if path else (HOLDER, b"", base.target_name)
        try:
            with self.targets.lease(root, above) as lease:
                status = os.stat(name or b".", dir_fd=lease.fd, follow_symlinks=not name)
        except OSError:
            return False
        return stat.S_IFMT(status.st_mode) == kind

    def target_name(self, root: int, path: bytes, name: bytes) -> bytes:
        """The name of an entry's copy: only roots that are no directories may have another."""
        return self._plan.roots[root].target_name if path == HOLDER else name

    def leave_mark(self, root: int) -> None:
        """Before anything is recorded of a root, see to it that its target will be known again."""
        journal = self._plan.journal
        if journal is not None:
            path = b"" if is_in_copy(self._plan.roots) else HOLDER
            with suppress(OSError), self.targets.lease(root, path) as lease:
                create_mark(journal.mark, lease.fd)

    def sync_holder(self, path: bytes, lease: Lease) -> None:
        """With --fsync, bring to disk the name of a root; directories see to what is in them."""
        if path == HOLDER and self._plan.existing.sync:
            with trying("flush the name of the copy of"):
                sync_directory(lease.fd, searched=lease.searched)
