"""`--list-out KIND:FILE`: a line for each file that a look has found something about.

Who looks makes the lines, and keeps them until its item ends; they go to rank 0 as notices do, so
that memory is bounded. The path is the last column, as `find` prints it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pcircle.errors import UsageError
from pcircle.fprof.items import FileLines
from pcircle.fs.directories import join_path
from pcircle.runtime import Context
from pcircle.ui.names import show
from pcircle.walk.roots import Root

COLUMNS = {
    "sparse": ("size", "on disk", "in holes", "compressed"),
    "stripe": ("size", "layout"),
    "compress": ("size", "sampled", "compressed"),
    "special": ("kind",),
}
"""The kinds of lists, and what stands before the path in each."""

_FEW_BYTES = 1 << 15  # of lines in a notice


class FileLists:
    """The lines of one worker, of the lists of `kinds`, each with this `end`."""

    def __init__(self, kinds: Sequence[str], end: bytes, roots: Sequence[Root]) -> None:
        self.kinds = frozenset(kinds)
        self._end = end
        self._roots = roots
        self._lines: dict[str, list[bytes]] = {kind: [] for kind in kinds}
        self._unlisted = dict.fromkeys(kinds, 0)

    def add(self, kind: str, root: int, path: bytes, name: bytes, *values: object) -> None:
        """Add a file of a directory, if such a list is wanted."""
        if kind not in self.kinds:
            return
        at = self._roots[root]
        shown = at.shown if at.name else os.path.join(at.shown, join_path(path, name))
        if self._end in shown:
            self._unlisted[kind] += 1
            return
        columns = "".join(f"{value}\t" for value in values).encode()
        self._lines[kind].append(columns + shown + self._end)

    def tell(self, context: Context[Any]) -> None:
        """The item ends: have rank 0 told."""
        for kind, lines in self._lines.items():
            unlisted, self._unlisted[kind] = self._unlisted[kind], 0
            if not (lines or unlisted):
                continue
            some, size, told = [], 0, []
            for line in lines:
                some.append(line)
                size += len(line)
                if size >= _FEW_BYTES:
                    told.append(FileLines(kind, b"".join(some), 0))
                    some, size = [], 0
            context.note([*told, FileLines(kind, b"".join(some), unlisted)])
            lines.clear()


def heading(kind: str, end: bytes) -> bytes:
    """The first line of a list: the names of its columns, behind the sign of a comment."""
    return b"#" + "\t".join((*COLUMNS[kind], "path")).encode() + end


def lists_of(typed: Sequence[str] | None) -> Mapping[str, str]:
    """The files by kind that --list-out asks for. UsageError."""
    found: dict[str, str] = {}
    for text in typed or ():
        kind, colon, file = text.partition(":")
        if kind not in COLUMNS or not colon:
            kinds = ", ".join(COLUMNS)
            what = f"invalid value '{show(os.fsencode(text))}': must be KIND:FILE"
            raise UsageError(f"--list-out: {what}, with a KIND of {kinds}")
        if not file:
            raise UsageError("--list-out: empty file name")
        if kind in found:
            raise UsageError(f"--list-out: there can be one list of kind {kind}")
        found[kind] = file
    return found
