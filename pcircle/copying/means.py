"""What every kind of entry is copied with, on one thread; and leaving be what is to stay."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from pcircle.copying import target
from pcircle.copying.counts import HARD_LINKS, Counts
from pcircle.copying.extras import Extras
from pcircle.copying.observing import Observer, Watch
from pcircle.copying.settings import Settings
from pcircle.fs.data import Recalls
from pcircle.fs.trouble import Changed, trying


class Moved(Changed):
    """Of the source nothing but the change time has moved.

    Somebody may have written into it and set its time back, or have changed its mode or given it
    another name: who copies it once more knows.
    """

    def __init__(self) -> None:
        super().__init__("it changed while it was copied")


class Means:
    """The settings, the counts, and who looks on. `is_stopping` is that of the item at hand."""

    def __init__(
        self, settings: Settings, counts: Counts, extras: Extras, observers: Sequence[Observer]
    ) -> None:
        self.settings = settings
        self.counts = counts
        self.extras = extras
        self.names = extras.names
        self.watch = Watch(observers)
        self.recalls = Recalls(counts, follow=settings.follow)
        self.is_stopping: Callable[[], bool] = bool

    def is_one_of_several(self, status: os.stat_result, source_fd: int) -> bool:
        """Whether this is a name of several that are to be one in the copy as well.

        A file that links are followed to has as many more. A file may be of another file system
        than its directory: on overlayfs, by a followed link, or by a mount of its own. Several
        nodes may number that differently, so there it is a file of its own, and counted.
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
        """Account for an entry that is left as it is. OSError if it must be read and can't be."""
        with trying("read the existing copy of"):
            self.watch.stays(target_fd, name, self.is_stopping)
        self.counts.skipped += 1
        self.counts.sized += 1

    def stays(self, source_fd: int, source: bytes, target_fd: int, name: bytes) -> bool:
        """Whether what has the name is left as it is, and then accounted for."""
        with trying("create the copy of"):
            names = source_fd, source, target_fd, name
            if target.stays(self.settings, *names, self.names) is None:
                return False
        self.skip(target_fd, name)
        return True


def refuse_change(before: os.stat_result, now: os.stat_result) -> None:
    """Changed if a source is another file or version than it was; Moved if it may be."""
    same = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
    if same != (before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns):
        raise Changed("it changed while it was copied")
    if now.st_ctime_ns != before.st_ctime_ns:
        raise Moved
