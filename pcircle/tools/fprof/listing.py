"""`--files-from`: items for the entries of a list.

`pcircle.fs.lists` sorts the list on disk, so entries of one directory are together, and their names
are looked up together, as fast as in a walk. A listed directory counts without its contents. The
contents count only if they are listed too, or if the directory is listed with a trailing slash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pcircle.tools.fprof.items import Mixed
from pcircle.walk.items import Tree

_MAX_NAMES = 1024  # names per item
_NUL = b"\0"


class _Waiting:
    """Names of one directory: names that count alone, and names with their subtrees."""

    __slots__ = ("alone", "inside", "whole")

    def __init__(self, inside: bytes) -> None:
        self.inside = inside  # the prefix of the records of this directory
        self.alone: list[bytes] = []
        self.whole: list[bytes] = []

    def items(self, root: int, weight: float) -> Iterator[Mixed | Tree]:
        """Yield items for these names, and clear the names."""
        path = self.inside[:-1].replace(_NUL, b"/")
        if self.alone:
            names = _NUL.join(self.alone)
            yield Mixed(root, path, names, weight)
        if self.whole:
            yield Tree(root, path, weight, _NUL.join(self.whole))
        self.alone, self.whole = [], []


def divided(records: Iterable[bytes], root: int, weight: float) -> Iterator[Mixed | Tree]:
    """Yield items for sorted records, in bounded memory. Each path has this weight."""
    waiting: list[_Waiting] = []  # each directory is inside the previous one
    for record in records:
        whole = record.endswith(_NUL)
        above, _, name = record[: len(record) - whole].rpartition(_NUL)
        inside = above + _NUL if above else b""
        while waiting and not inside.startswith(waiting[-1].inside):
            yield from waiting.pop().items(root, weight)
        if not waiting or waiting[-1].inside != inside:
            waiting.append(_Waiting(inside))
        here = waiting[-1]
        # The directory itself is named as seen from within.
        (here.whole if whole else here.alone).append(name or b".")
        if len(here.alone) + len(here.whole) == _MAX_NAMES:
            yield from here.items(root, weight)
    while waiting:
        yield from waiting.pop().items(root, weight)
