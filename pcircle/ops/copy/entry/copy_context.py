"""The context that all copies of one thread share, and skipping of entries that are left."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from pcircle.fs.data import Recalls
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.counts import HARD_LINKS, CopyCounts
from pcircle.ops.copy.entry.observers import CopyObserver, ObserverSet
from pcircle.ops.copy.entry.settings import CopySettings


class SourceModifiedError(Changed):
    """Only the change time of the source has changed.

    A process may have written to it and reset its modification time, or only changed its mode or
    added a name. Copying it again decides.
    """

    def __init__(self) -> None:
        super().__init__("it changed while it was copied")


class CopyContext:
    """Settings, counters and observers of a thread's copies.

    `is_stopping` belongs to the current item.
    """

    def __init__(
        self,
        settings: CopySettings,
        counts: CopyCounts,
        extras: AttributeCopier,
        observer_list: Sequence[CopyObserver],
    ) -> None:
        self.settings = settings
        self.counts = counts
        self.extras = extras
        self.names = extras.names
        self.observers = ObserverSet(observer_list)
        self.recalls = Recalls(counts, follow=settings.follow)
        self.is_stopping: Callable[[], bool] = bool

    def is_one_of_several(self, status: os.stat_result, source_fd: int) -> bool:
        """Return whether a name is one of several that must be one inode in the copy.

        With followed links a file may have more names than its link count. A file may be on another
        device than its directory: on overlayfs, through a followed link, or with a mount of its
        own. Nodes may use different numbers for that device, so the file is copied separately and
        counted as a lost link.
        """
        settings = self.settings
        followed = settings.follow and stat.S_ISREG(status.st_mode)
        if not settings.keep.links or not (status.st_nlink > 1 or followed):
            return False
        if settings.one_node or status.st_dev == os.fstat(source_fd).st_dev:
            return True
        self.counts.lose({HARD_LINKS})
        return False

    def skip(self, target_fd: int, name: bytes) -> None:
        """Count an entry that is left. OSError if it must be read and cannot be."""
        with error_context("read the existing copy of"):
            self.observers.stays(target_fd, name, self.is_stopping)
        self.counts.skipped += 1
        self.counts.sized += 1

    def skip_existing(self, source_fd: int, source: bytes, target_fd: int, name: bytes) -> bool:
        """Return whether an existing entry is left, and count it if so."""
        with error_context("create the copy of"):
            names = source_fd, source, target_fd, name
            if target.stays(self.settings, *names, self.names) is None:
                return False
        self.skip(target_fd, name)
        return True


def refuse_change(before: os.stat_result, now: os.stat_result) -> None:
    """Raise Changed if the source differs from `before`; SourceModifiedError if it may differ."""
    same = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
    if same != (before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns):
        raise Changed("it changed while it was copied")
    if now.st_ctime_ns != before.st_ctime_ns:
        raise SourceModifiedError
