"""The action log of a copy, for `--json-lines`: an observer of copied entries.

The observer sees every entry that is copied in its directory; code that copies in other ways
reports its actions.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pcircle.fs.directories import HOLDER, join_path
from pcircle.jobs.action_log import ActionLog, ActionOutput
from pcircle.jobs.failures import Failure
from pcircle.ops.copy.entry.observers import CopyObserver

_LETTERS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFBLK: "b",
    stat.S_IFCHR: "c",
}


def letter_of(mode: int) -> str:
    """Return the letter of a kind of entry."""
    return _LETTERS.get(stat.S_IFMT(mode), "?")


class CopyActionLog(CopyObserver):
    """The action log of one thread; `at` sets the directory of the following entries."""

    def __init__(
        self,
        tool: str,
        wanted: ActionOutput,
        rank: int,
        first: CopyActionLog | None = None,
        *,
        planned: bool = False,
    ) -> None:
        """`first` belongs to the rank's first thread."""
        with_first = None if first is None else first.actions
        self.actions: ActionLog = ActionLog(tool, wanted, rank, with_first, planned=planned)
        self._root = 0
        self._path = b""

    def at(self, root: int, path: bytes) -> None:
        """Set the source directory of the following entries."""
        self._root, self._path = root, path

    def path_of(self, name: bytes) -> bytes:
        """Return the path of a name in the directory; empty for a root."""
        return b"" if self._path == HOLDER else join_path(self._path, name)

    def copied(self, name: bytes, size: int) -> None:
        self.actions.done("copy", self._root, self.path_of(name), "f", size)

    def link(self, name: bytes, text: bytes) -> None:
        self.actions.done("copy", self._root, self.path_of(name), "l")

    def stays(self, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        self.actions.skipped(self._root, self.path_of(name), letter_of(status.st_mode))

    def special(self, directory_fd: int, name: bytes) -> None:
        """Record a copied special file."""
        self.done("copy", os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode, name)

    def done(self, action: str, mode: int, name: bytes, size: int = 0) -> None:
        """Record any other action on an entry of this mode."""
        self.actions.done(action, self._root, self.path_of(name), letter_of(mode), size)

    def directory(self, root: int, path: bytes, action: str = "copy") -> None:
        """Record a completed directory; without an `action` it was up to date."""
        if action:
            self.actions.done(action, root, path, "d")
        else:
            self.actions.skipped(root, path, "d")

    def failed(self, failure: Failure) -> None:
        """Record a failed entry."""
        self.actions.failed("copy", failure.root, failure.entry, failure.errno)
