"""Directories that are being walked: what is known of them, and what of them is left for others."""

from __future__ import annotations

from collections.abc import Sequence

from pcircle.fprof.items import Item, Tree

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


def left_of(root: int, opened: Open, slot: int) -> list[Item]:
    """What is left of an open directory, to be given away."""
    names, opened.pending = opened.pending, []
    some = -(-len(names) // (_PARTS if len(names) > _FEW_NAMES else 2)) or 1
    parts = [b"\0".join(names[start : start + some]) for start in range(0, len(names), some)]
    return [Tree(root, opened.path, part, opened.each, slot, opened.mount) for part in parts]
