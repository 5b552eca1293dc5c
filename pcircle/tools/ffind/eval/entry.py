"""An entry for which an expression is evaluated. It is looked up on first use.

One object serves all entries of a directory in turn. Most expressions test only the name, and
creating an object takes as long as that test.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pcircle.core.encoding import to_scan
from pcircle.fs.directories import open_without_atime
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.stats import StatusRow
from pcircle.walk.attributes import LETTERS

if TYPE_CHECKING:
    from pcircle.jobs.access_times import AccessTimes

Status = os.stat_result | StatusRow
FIELDS: dict[str, Callable[[Status], int]] = {
    "size": lambda status: status.st_size,
    "blocks": lambda status: status.st_blocks,
    "mtime": lambda status: status.st_mtime_ns,
    "ctime": lambda status: status.st_ctime_ns,
    "atime": lambda status: status.st_atime_ns,
    "inode": lambda status: status.st_ino,
    "links": lambda status: status.st_nlink,
    "uid": lambda status: status.st_uid,
    "gid": lambda status: status.st_gid,
}
"""The numbers of a status. A getter that looks up an attribute by its name would be slower."""
TIMES = {"a": "atime", "c": "ctime", "m": "mtime"}
_SCANNED = OPEN_DIRECTORY_FOLLOW | os.O_NOCTTY | os.O_NONBLOCK
Report = Callable[["FindEntry", str, OSError], None]


class StopSearch(Exception):
    """Raised to end the evaluation of entries."""


class FindEntry:
    """The entry `name` in the open directory `fd`. The printed path of the directory is `prefix`.

    For a PATH itself, `fixed` is the typed text and `base` the name for tests of names. `kind` is a
    letter of `-type`, or empty if unknown. `pruned` is set by the expression, `bad` if an operation
    failed, and `gone` if the entry has vanished.
    """

    __slots__ = (
        "bad",
        "base",
        "depth",
        "fd",
        "fixed",
        "follow",
        "gone",
        "kind",
        "name",
        "path_below",
        "prefix",
        "pruned",
        "report",
        "root",
        "st",
        "start",
    )

    def __init__(self, report: Report, *, follow: bool) -> None:
        self.report: Report = report
        self.follow: bool = follow
        self.name: bytes = b""
        self.prefix: bytes = b""
        self.fixed: bytes = b""
        self.base: bytes = b""
        self.start: bytes = b""
        self.path_below: bytes = b""
        self.fd: int = -1
        self.kind: str = ""
        self.depth: int = 0
        self.root: int = 0
        # None before the look-up, False if it failed
        self.st: Status | Literal[False] | None = None
        self.bad: bool = False
        self.gone: bool = False
        self.pruned: bool = False

    def begin(self, name: bytes) -> None:
        """Switch to the next entry, in the same directory and of the same kind."""
        self.name = name
        self.st = None
        self.bad = self.gone = self.pruned = False

    @property
    def path(self) -> bytes:
        """Return the printed path."""
        return self.fixed or self.prefix + self.name

    @property
    def basename(self) -> bytes:
        """Return the name that tests of names use."""
        return self.base or self.name

    @property
    def below(self) -> bytes:
        """Return the path relative to PATH."""
        if self.fixed:
            return b""
        return self.path_below + b"/" + self.name if self.path_below else self.name

    def look(self) -> Status | Literal[False]:
        """Return the status, or report a failed look-up and return False."""
        try:
            self.st = status = self._status()
        except OSError as error:
            self.st = False
            self.fail("look up", error)
            return False
        return status

    def _status(self) -> Status:
        if self.follow:
            try:
                return os.stat(self.name, dir_fd=self.fd)
            except (FileNotFoundError, NotADirectoryError):  # a dangling link stands for itself
                pass
        return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)

    def use(self, status: Status) -> None:
        """Use a status that was prefetched."""
        self.st = status

    def target(self) -> bytes:
        """Return the target of a link. Raise OSError if it cannot be read."""
        return os.readlink(self.name, dir_fd=self.fd)

    def is_bare(self) -> bool:
        """Return whether a directory has no entries. Raise OSError if it cannot be read."""
        fd = self._open()
        try:
            with os.scandir(to_scan(fd)) as found:
                return next(iter(found), None) is None
        finally:
            os.close(fd)

    def _open(self) -> int:
        # The access time must not change, because a later test, in this walk or the next, may use
        # it.
        flags = _SCANNED | (0 if self.follow else os.O_NOFOLLOW)
        return open_without_atime(self.name, flags, self.fd)

    def letter(self) -> str:
        """Return the kind, or an empty string if it cannot be determined."""
        if not self.kind:
            status = self.look() if self.st is None else self.st
            if status is False:
                return ""
            self.kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
        return self.kind

    def fail(self, doing: str, error: OSError) -> None:
        """Report a failed operation on the entry."""
        self.report(self, doing, error)

    @property
    def opened(self) -> bytes:
        """Return a path for system calls that take no directory descriptor."""
        return b"/proc/self/fd/%d/%b" % (self.fd, self.name)


class CountedEntry(FindEntry):
    """An entry whose access time, in tests, is the one that a preceding counting walk recorded.

    If `updates_links` is set, the tests may update the access times of links.
    """

    __slots__ = ("_times", "_updates_links")

    def __init__(
        self, report: Report, times: AccessTimes, *, follow: bool, updates_links: bool
    ) -> None:
        super().__init__(report, follow=follow)
        self._times = times
        self._updates_links = updates_links

    def _status(self) -> Status:
        return self._before(super()._status())

    def use(self, status: Status) -> None:
        self.st: Status = self._before(status)

    def _open(self) -> int:
        fd = super()._open()
        if self._times.is_updated_by(fd):
            self._times.remember(os.fstat(fd))
        return fd

    def _before(self, status: Status) -> Status:
        if not isinstance(status, os.stat_result):
            return status
        if self._updates_links and stat.S_ISLNK(status.st_mode):
            self._times.remember(status)
        return self._times.restored(status)


Test = Callable[[FindEntry], object]
