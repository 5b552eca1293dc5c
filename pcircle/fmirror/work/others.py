"""Other trees that may have an entry of the source: reached directory by directory, by no link."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from pcircle.fs.directories import open_below
from pcircle.trusted import directory


class Others:
    """One thread's."""

    def __init__(self, trees: Sequence[bytes]) -> None:
        self._trees = trees
        self._tops: list[int] = []
        self._at: tuple[int, bytes] | None = None
        self._fds: list[tuple[int, int]] = []  # of what has the path at hand, where there is one

    def __bool__(self) -> bool:
        return bool(self._trees)

    def at(self, root: int, path: bytes) -> list[tuple[int, int]]:
        """The numbers of the trees that have this directory, each with it, open."""
        if self._at != (root, path):
            self._leave()
            self._at = root, path
            if not self._tops:
                self._tops = [_opened(tree) for tree in self._trees]
            for number, top in enumerate(self._tops):
                with suppress(OSError):  # there it is missing
                    self._fds.append((number, open_below(top, path)))
        return self._fds

    def close(self) -> None:
        """Let the directories go."""
        self._leave()
        self._at = None
        for fd in self._tops:
            if fd >= 0:
                os.close(fd)
        self._tops.clear()

    def _leave(self) -> None:
        for _, fd in self._fds:
            os.close(fd)
        self._fds.clear()


def _opened(path: bytes) -> int:
    """A tree, or -1 if somebody has taken it away since it was named."""
    try:
        return directory(path)
    except OSError:
        return -1
