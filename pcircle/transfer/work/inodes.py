"""What the home of an inode knows of it, and how many of these are in memory."""

from __future__ import annotations

import msgspec

from pcircle.copying.settings import Stamp
from pcircle.fs.registry import Registry
from pcircle.transfer.items import One

MAX_AT_HAND = 50_000  # some 25 MB


class Inode(msgspec.Struct):
    """What its home knows of an inode: how many names have come, and what has become of it.

    `made` is the copy's mark, and `copied` what it is a copy of; `first` the name that it was
    copied under; `epoch` and `seal` are the copy's; `waiting` are the tickets
    that are held, and for which name. `seen` names have come, of `names` at the most.
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
        """Whether nothing will happen until the next name comes."""
        return self.made is not None and not self.waiting


def registry(most: int = MAX_AT_HAND) -> Registry[Inode]:
    """An empty registry of what becomes of inodes."""
    return Registry(Inode, most, lambda inode: inode.is_at_rest)
