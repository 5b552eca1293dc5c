"""`--list-out KIND:FILE`: a line for each file in which a search has found something.

The rank that examines the file formats the line and keeps it until its item ends. Lines are sent to
rank 0 as notices, so memory is bounded. The path is the last column, as `find` prints it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.fs.directories import join_path
from pcircle.jobs.action_log import NOTICE_BYTES
from pcircle.jobs.failures import NoticeSink
from pcircle.tools.fprof.plan import FileLines
from pcircle.walk.roots import Root

COLUMNS = {
    "sparse": ("size", "on disk", "in holes", "compressed"),
    "stripe": ("size", "layout"),
    "compress": ("size", "sampled", "compressed"),
    "special": ("kind",),
}
"""The kinds of lists, and the columns before the path."""


class FileLists:
    """The lines of one worker for the lists of `kinds`, each with this terminator."""

    def __init__(self, kinds: Sequence[str], end: bytes, roots: Sequence[Root]) -> None:
        self.kinds = frozenset(kinds)
        self._end = end
        self._roots = roots
        self._lines: dict[str, list[bytes]] = {kind: [] for kind in kinds}
        self._unlisted = dict.fromkeys(kinds, 0)

    def add(self, kind: str, root: int, path: bytes, name: bytes, *values: object) -> None:
        """Add a file, if its list was requested."""
        if kind not in self.kinds:
            return
        at = self._roots[root]
        shown = at.shown if at.name else os.path.join(at.shown, join_path(path, name))
        if self._end in shown:
            self._unlisted[kind] += 1
            return
        columns = "".join(f"{value}\t" for value in values).encode()
        self._lines[kind].append(columns + shown + self._end)

    def tell(self, context: NoticeSink) -> None:
        """Send the lines to rank 0, at the end of an item."""
        for kind, lines in self._lines.items():
            unlisted, self._unlisted[kind] = self._unlisted[kind], 0
            if not (lines or unlisted):
                continue
            batch, size, batches = [], 0, []
            for line in lines:
                batch.append(line)
                size += len(line)
                if size >= NOTICE_BYTES:
                    batches.append(FileLines(kind, b"".join(batch), 0))
                    batch, size = [], 0
            context.note([*batches, FileLines(kind, b"".join(batch), unlisted)])
            lines.clear()


def heading(kind: str, end: bytes) -> bytes:
    """Return the first line of a list: the names of its columns, as a comment."""
    return b"#" + "\t".join((*COLUMNS[kind], "path")).encode() + end


def lists_of(args: Sequence[str] | None) -> Mapping[str, str]:
    """Return the files of --list-out by kind. Raise UsageError if a list is invalid."""
    found: dict[str, str] = {}
    for text in args or ():
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
