"""`--remove-source-files`: removes entries from the source whose copies are complete.

This job runs after the copy. It is a dry run of a mirror, except that it removes entries. First it
flushes the target to disk. Then it compares each entry as if it were mirrored again, and files byte
by byte. Entries that differ in a preserved attribute stay, and so do entries that are changing.

Before anything in a directory is removed, a test proves that the directory and its copy are
distinct. A union file system, for example, may show the source itself as the copy. Each entry is
renamed before its removal, because another process may replace it at any moment. If the renamed
entry turns out to be a different one, it gets its name back. As a result, an entry that was
replaced after the comparison is not removed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.fs.directories import Lease, join_path
from pcircle.fs.entry_errors import SAME_FILE, Changed, EntryError, error_context, tried
from pcircle.fs.naming import give_free_name
from pcircle.fs.scan import Block, blocks, rewound
from pcircle.ops.checkpoint.file_system_sync import FileSystemSync
from pcircle.ops.compare.content import ContentComparer
from pcircle.ops.compare.statuses import open_files
from pcircle.ops.copy.tree.dry_run import DryVisitor
from pcircle.ops.copy.tree.items import Item
from pcircle.runtime import Context
from pcircle.tools.fmirror.work.dry import DryMirrorTask, DryMirrorVisitor
from pcircle.tools.fmirror.work.itemize import count
from pcircle.tools.fmirror.work.listing import DirectoryProbe
from pcircle.walk.open_directory import Open
from pcircle.walk.visitor import Where

if TYPE_CHECKING:
    from pcircle.tools.fmirror.plan import MirrorPlan

_CHANGED = "it changed during the comparison"


class ClearVisitor(DryMirrorVisitor):
    """Removes entries whose copies are complete.

    If `keep_directories` is false, it also removes directories that have become empty.
    """

    keep_directories = True

    def _begin_run(self, plan: MirrorPlan) -> None:
        self._contents = ContentComparer()
        self._prefix = b".fcp-%b-" % plan.token
        self._taken = 0
        self._probe = DirectoryProbe(self._prefix)

    def enter(self, opened: Open[None], source: Lease, holder: Open[None] | None) -> Lease | None:
        lease = DryVisitor.enter(self, opened, source, holder)
        opened.own = lease is not None
        return lease

    def leave(self, opened: Open[None], context: Context[Item]) -> None:
        if self._remove_if_empty(opened, context):
            self.counters.directories += 1

    def _remove_if_empty(self, opened: Open[None], context: Context[Item]) -> bool:
        """Remove a directory if it is empty and may be removed.

        Report a failure and return False if its removal may be unsafe.
        """
        if self.keep_directories or not opened.path or not opened.own:
            return True
        above, _, name = opened.path.rpartition(b"/")
        try:
            with error_context("remove directory"):
                if not self._is_empty(opened):
                    return True
        except OSError as error:
            self.counters.failed += 1
            doing = tried(error, "remove directory")
            self._tell_failure(opened.root, opened.path, error, context, doing)
            return False
        with suppress(OSError), self._sources.lease(opened.root, above) as holder:
            os.rmdir(name, dir_fd=holder.fd)  # fails if an entry has been created meanwhile
        return True

    def _is_empty(self, opened: Open[None]) -> bool:
        """Return whether a directory is empty, and if so, prove that it is distinct from its copy.

        Raise OSError if they are the same directory or cannot be read.
        """
        where = opened.root, opened.path
        with self._sources.lease(*where) as source, self._targets.lease(*where) as target:
            if next(blocks(rewound(source.fd)), Block()):
                return False
            self._probe.prove((source.fd, target.fd))
            return True

    def _entry(
        self, where: Where, name: bytes, source_fd: int, target_fd: int, context: Context[Item]
    ) -> None:
        root, path, fds = where.root, join_path(where.path, name), (source_fd, target_fd)
        if self._limits is not None:
            self._limits.operations(2)
        status: os.stat_result | None = None
        try:
            if not name.startswith(self._prefix):  # otherwise another thread is removing it
                with error_context("remove"):
                    status = self._removed(where, name, fds)
        except OSError as error:
            self._fail(root, path, error, context)
            return
        self.counters.sized += 1
        if status is None:
            self.counters.skipped += 1
        else:
            count(self.counters, status.st_mode, 0)

    def _removed(self, where: Where, name: bytes, fds: tuple[int, int]) -> os.stat_result | None:
        """Remove an entry if its copy is complete, and return its status.

        Return None if its copy is not complete. Raise OSError on failure.
        """
        source, old, different = self._itemizer.entry(where.root, where.path, name, fds)
        if old is None or different:
            return None
        _refuse_same(source, old, fds)
        if stat.S_ISREG(source.st_mode):
            with open_files(name, fds) as (files, statuses):
                if statuses[0].st_size != statuses[1].st_size:
                    return None
                os.fsync(files[1])
                # Drop the cached pages of the copy, so that the comparison reads it from disk.
                os.posix_fadvise(files[1], 0, 0, os.POSIX_FADV_DONTNEED)
                if not self._contents.same(files, 0, statuses[0].st_size):
                    return None
                now = os.stat(name, dir_fd=fds[1], follow_symlinks=False)
                if not _is_same(now, statuses[1]):
                    raise Changed("its copy was replaced during the comparison")
                self._remove(name, fds, statuses[0])
                return source
        self._remove(name, fds, source)
        return source

    def _remove(self, name: bytes, fds: tuple[int, int], status: os.stat_result) -> None:
        """Remove an entry if it is unchanged.

        Raise Changed if it has changed, and OSError on other failures.
        """
        self._probe.prove(fds)
        directory_fd = fds[0]
        now = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if not _is_same(now, status):
            raise Changed(_CHANGED)
        self._taken += 1
        aside = b"%b%d-%d" % (self._prefix, os.getpid(), self._taken)
        os.rename(name, aside, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
        now = os.stat(aside, dir_fd=directory_fd, follow_symlinks=False)
        if _content(now) != _content(status):
            give_free_name(aside, name, directory_fd)
            raise Changed(_CHANGED)
        os.unlink(aside, dir_fd=directory_fd)


def _refuse_same(source: os.stat_result, copy: os.stat_result, fds: tuple[int, int]) -> None:
    """Raise EntryError if an entry and its copy are the same file, for example in two mounts.

    The device numbers of the mounts may differ, but the inode numbers and change times are equal.
    """
    here, there = map(os.fstat, fds)
    one_directory = (here.st_ino, here.st_ctime_ns) == (there.st_ino, there.st_ctime_ns)
    one_file = (source.st_ino, source.st_ctime_ns) == (copy.st_ino, copy.st_ctime_ns)
    if one_directory or (one_file and source.st_nlink == 1):
        raise EntryError(SAME_FILE, "the source and its copy are the same file")


def _is_same(now: os.stat_result, before: os.stat_result) -> bool:
    """Return whether an entry is unchanged, apart from other hard links to it."""
    alone = before.st_nlink == 1
    same_change = now.st_ctime_ns == before.st_ctime_ns
    return _content(now) == _content(before) and (same_change or not alone)


def _content(status: os.stat_result) -> tuple[int, ...]:
    """Return the fields that identify a file and its content.

    The change time is not among them, because a rename changes it.
    """
    return status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns


class ClearTask(DryMirrorTask):
    """The removal of copied entries on one rank."""

    is_flushed: bool = False
    visitor_type: ClassVar[type[ClearVisitor]] = ClearVisitor

    def process(self, item: Item, context: Context[Item]) -> Any:
        if not self.is_flushed:  # flush this node's writes before any removal
            self.is_flushed = True
            disk = FileSystemSync()
            try:
                with self._targets.lease(0, b"") as target:
                    disk.add_directory(target.fd, target.opened.status)
                disk.sync()
            finally:
                disk.close()
        return super().process(item, context)


class MoveAwayVisitor(ClearVisitor):
    """A `ClearVisitor` that also removes directories that have become empty."""

    keep_directories = False


class MoveAwayTask(ClearTask):
    """The removal of copied entries and empty directories on one rank, for `--move`."""

    visitor_type: ClassVar[type[MoveAwayVisitor]] = MoveAwayVisitor
