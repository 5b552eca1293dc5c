"""The state of inodes at their home, and the number of inodes in memory."""

from __future__ import annotations

import msgspec

from pcircle.fs.registry import Registry
from pcircle.ops.copy.entry.settings import Stamp
from pcircle.ops.copy.tree.items import One

MAX_AT_HAND = 50_000  # some 25 MB


class Inode(msgspec.Struct):
    """The state of an inode at its home: the names that have arrived, and their fate.

    `made` is the mark of the copy, and `copied` its source; `first` is the name under which it was
    copied; `epoch` and `seal` belong to the copy; `waiting` are held tickets by name. `seen` of at
    most `names` names have arrived.
    """

    seen: int = 0
    names: int = 0
    made: int | None = None
    copied: Stamp | None = None
    epoch: int = 0
    seal: bytes = b""
    first: One | None = None
    waiting: list[tuple[int, One]] = []

    @property
    def is_at_rest(self) -> bool:
        """Return whether nothing happens until the next name arrives."""
        return self.made is not None and not self.waiting


def registry(most: int = MAX_AT_HAND) -> Registry[Inode]:
    """Return an empty registry of inodes."""
    return Registry(Inode, most, lambda inode: inode.is_at_rest)
