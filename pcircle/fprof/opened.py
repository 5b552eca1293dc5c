"""Directories that are being walked: what is known of them, and what of them is left for others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pcircle.fprof.items import Item, Tree
from pcircle.fs.directories import Directories, Lease

_FEW_NAMES = 64  # of directories: they are given away in halves
_PARTS = 8  # that more are given away in


class Open:
    """A directory that is not complete: what is known of it, and what of it is left."""

    __slots__ = ("depth", "each", "mount", "own_bytes", "own_entries", "path", "pending", "sums")

    def __init__(self, path: bytes, depth: int, mount: bytes) -> None:
        self.path = path
        self.depth = depth
        self.mount = mount
        self.own_entries = 0
        self.own_bytes = 0
        self.sums = [1, 0]  # entries, itself included, and bytes, with all below
        self.pending: list[bytes] = []  # subdirectories
        self.each = 0.0  # the weight of an entry

    def add(self, part: Sequence[int]) -> None:
        """Sums of a part have come: entries, bytes, and bytes of the directory itself."""
        self.sums[0] += part[0]
        self.sums[1] += part[1]
        self.own_bytes += part[2]


class Above:
    """The lease of the directory that the next ones to read are in, as long as it is the same."""

    def __init__(self, directories: Directories, root: int) -> None:
        self._directories = directories
        self._root = root
        self._opened: Open | None = None
        self._lease: Lease | None = None

    def of(self, opened: Open) -> Lease | None:
        """None if it can't be reached: what is below it can say so for itself."""
        if opened is not self._opened:
            self.close()
            with suppress(OSError):
                self._lease = self._directories.lease(self._root, opened.path)
            self._opened = opened
        return self._lease

    def close(self) -> None:
        """End the lease."""
        if self._lease is not None:
            self._directories.release(self._lease.opened)
        self._lease = self._opened = None


def left_of(root: int, opened: Open, slot: int) -> list[Item]:
    """What is left of an open directory, to be given away."""
    names, opened.pending = opened.pending, []
    some = -(-len(names) // (_PARTS if len(names) > _FEW_NAMES else 2)) or 1
    parts = [b"\0".join(names[start : start + some]) for start in range(0, len(names), some)]
    return [Tree(root, opened.path, part, opened.each, slot, opened.mount) for part in parts]


def all_left_of(root: int, stack: Sequence[Open]) -> list[Item]:
    """What is left of directories that are in one another, each by its place."""
    return [tree for slot, each in enumerate(stack) for tree in left_of(root, each, slot)]
