"""`--files-from`: what of a directory is to be profiled, as items of work.

The list is sorted and kept on disk by `pcircle.fs.lists`, where what lies in one directory lies
together. So are its names looked up, which takes no longer than a walk. Listed directories count by
themselves; what is in them does not, unless it is listed, or the directory is with a slash at its
end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pcircle.fprof.items import Mixed
from pcircle.walk.items import Tree

_MAX_NAMES = 1024  # of an item
_NUL = b"\0"


class _Waiting:
    """Names of one directory: those that count by themselves, and those with their subtrees."""

    __slots__ = ("alone", "inside", "whole")

    def __init__(self, inside: bytes) -> None:
        self.inside = inside  # the directory as records begin
        self.alone: list[bytes] = []
        self.whole: list[bytes] = []

    def items(self, root: int, weight: float) -> Iterator[Mixed | Tree]:
        """Items of these names, which are forgotten."""
        path = self.inside[:-1].replace(_NUL, b"/")
        if self.alone:
            names = _NUL.join(self.alone)
            yield Mixed(root, path, names, weight)
        if self.whole:
            yield Tree(root, path, weight, _NUL.join(self.whole))
        self.alone, self.whole = [], []


def divided(records: Iterable[bytes], root: int, weight: float) -> Iterator[Mixed | Tree]:
    """Items for sorted records, each path of this weight, with little in memory at once."""
    waiting: list[_Waiting] = []  # each in the one before it
    for record in records:
        whole = record.endswith(_NUL)
        above, _, name = record[: len(record) - whole].rpartition(_NUL)
        inside = above + _NUL if above else b""
        while waiting and not inside.startswith(waiting[-1].inside):
            yield from waiting.pop().items(root, weight)
        if not waiting or waiting[-1].inside != inside:
            waiting.append(_Waiting(inside))
        here = waiting[-1]
        # The directory itself, as it is called from within.
        (here.whole if whole else here.alone).append(name or b".")
        if len(here.alone) + len(here.whole) == _MAX_NAMES:
            yield from here.items(root, weight)
    while waiting:
        yield from waiting.pop().items(root, weight)
