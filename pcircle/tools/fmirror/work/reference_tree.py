"""Reference trees: other trees that may already contain entries of the source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from pcircle.fs.directories import open_below
from pcircle.fs.safe_open import directory


class ReferenceTrees:
    """The open directories of the reference trees.

    Each thread has its own instance.
    """

    def __init__(self, trees: Sequence[bytes]) -> None:
        self._trees = trees
        self._tops: list[int] = []
        self._at: tuple[int, bytes] | None = None
        self._fds: list[tuple[int, int]] = []  # tree numbers and directories of the current path

    def __bool__(self) -> bool:
        return bool(self._trees)

    def at(self, root: int, path: bytes) -> list[tuple[int, int]]:
        """Return the numbers of the trees that contain a directory, each with that open directory.

        Symbolic links are not followed.
        """
        if self._at != (root, path):
            self._leave()
            self._at = root, path
            if not self._tops:
                self._tops = [_opened(tree) for tree in self._trees]
            for number, top in enumerate(self._tops):
                with suppress(OSError):  # the tree lacks the directory
                    self._fds.append((number, open_below(top, path)))
        return self._fds

    def close(self) -> None:
        """Release the directories."""
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
    """Open a tree, or return -1 if it cannot be opened."""
    try:
        return directory(path)
    except OSError:
        return -1
