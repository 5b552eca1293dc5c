"""An entry while an expression is evaluated for it: looked up when that is asked for first.

One object serves all entries of a directory, one after the other: most expressions look at a name
and no more, and an object for each would take as long as that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from pcircle.encoding import to_scan
from pcircle.fs.directories import open_without_atime
from pcircle.walk.attributes import LETTERS

if TYPE_CHECKING:
    from pcircle.tool.access_times import AccessTimes

Status = Any  # an os.stat_result; None: not looked up yet; False: it can't be
_SCANNED = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
Report = Callable[["Entry", str, OSError], None]


class Quit(Exception):
    """No entry is to be evaluated any more."""


class Entry:
    """An entry by its `name` in the open directory `fd`, of which `prefix` is the path as shown.

    A PATH itself is `fixed`, which is what was typed, and for tests of names has its `base`. The
    `kind` is a letter as of `-type`, empty if it is not known yet. `pruned` is what came of the
    expression, `bad` that something failed and `gone` that there is no such entry any more.
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
        self.report = report
        self.follow = follow
        self.name = self.prefix = self.fixed = self.base = self.start = self.path_below = b""
        self.fd = -1
        self.kind = ""
        self.depth = self.root = 0
        self.st: Status = None
        self.bad = self.gone = self.pruned = False

    def begin(self, name: bytes) -> None:
        """Another entry of the same directory and kind."""
        self.name = name
        self.st = None
        self.bad = self.gone = self.pruned = False

    @property
    def path(self) -> bytes:
        """The path as it is shown."""
        return self.fixed or self.prefix + self.name

    @property
    def basename(self) -> bytes:
        """What tests of names see."""
        return self.base or self.name

    @property
    def below(self) -> bytes:
        """The path below PATH."""
        if self.fixed:
            return b""
        return self.path_below + b"/" + self.name if self.path_below else self.name

    def look(self) -> Status:
        """Look it up; False if that can't be done, which is told."""
        try:
            self.st = self._status()
        except OSError as error:
            self.st = False
            self.fail("look up", error)
        return self.st

    def _status(self) -> os.stat_result:
        if self.follow:
            try:
                return os.stat(self.name, dir_fd=self.fd)
            except (FileNotFoundError, NotADirectoryError):  # a link that leads nowhere is itself
                pass
        return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)

    def use(self, status: os.stat_result) -> None:
        """Use a status that was looked up ahead."""
        self.st = status

    def target(self) -> bytes:
        """What a link leads to. OSError."""
        return os.readlink(self.name, dir_fd=self.fd)

    def is_bare(self) -> bool:
        """Whether there is nothing in a directory. OSError."""
        fd = self._open()
        try:
            scan: Any = os.scandir(to_scan(fd))  # mypy knows of no scan of either kind
            with scan as found:
                return next(iter(found), None) is None
        finally:
            os.close(fd)

    def _open(self) -> int:
        # Another test may still ask for its access time, in this walk or the next one.
        flags = _SCANNED | (0 if self.follow else os.O_NOFOLLOW)
        return open_without_atime(self.name, flags, self.fd)

    def letter(self) -> str:
        """Its kind; empty if it can't be known."""
        if not self.kind:
            status = self.look() if self.st is None else self.st
            if status is False:
                return ""
            self.kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
        return self.kind

    def fail(self, doing: str, error: OSError) -> None:
        """Something about it can't be done."""
        self.report(self, doing, error)

    @property
    def opened(self) -> bytes:
        """A path by which calls reach it that know of no directories."""
        return b"/proc/self/fd/%d/%b" % (self.fd, self.name)


class CountedEntry(Entry):
    """An entry in two walks, of which the first one counts, where access times are tested.

    With `updates_links` the tests may update the access times of links.
    """

    __slots__ = ("_times", "_updates_links")

    def __init__(
        self, report: Report, times: AccessTimes, *, follow: bool, updates_links: bool
    ) -> None:
        super().__init__(report, follow=follow)
        self._times = times
        self._updates_links = updates_links

    def _status(self) -> os.stat_result:
        return self._before(super()._status())

    def use(self, status: os.stat_result) -> None:
        self.st = self._before(status)

    def _open(self) -> int:
        fd = super()._open()
        if self._times.is_updated_by(fd):
            self._times.remember(os.fstat(fd))
        return fd

    def _before(self, status: os.stat_result) -> os.stat_result:
        if self._updates_links and stat.S_ISLNK(status.st_mode):
            self._times.remember(status)
        return self._times.restored(status)


Test = Callable[[Entry], object]
Where = Literal["name", "kind", "status", "other", "action"]
