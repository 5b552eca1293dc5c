"""Where ranks are: which share a node, and how they form a k-ary tree.

Both are functions of the rank numbers alone, so every rank knows them without
a message.
"""

from __future__ import annotations

from collections.abc import Sequence


class Tree:
    """A rank's place in the k-ary tree of all ranks: rank 0 is the root."""

    def __init__(self, rank: int, size: int, arity: int) -> None:
        if arity < 1:
            raise ValueError("a tree has an arity of at least one")
        self.rank = rank
        self.size = size
        self.arity = arity
        self.parent = (rank - 1) // arity if rank else None
        first = arity * rank + 1
        self.children = tuple(range(first, min(first + arity, size)))
        self.ancestors = self._path(rank)
        self.depth = len(self.ancestors)
        self.height = len(self._path(size - 1))

    def _path(self, rank: int) -> tuple[int, ...]:
        above = []
        while rank:
            rank = (rank - 1) // self.arity
            above.append(rank)
        return tuple(above)

    def patience(self) -> float:
        """The share of a time limit that this rank may wait for its children, 0 to 1.

        It shrinks by the same step with each level, so that a rank that gives
        up can still answer its parent in time, however deep the tree is.
        """
        return 1 - self.depth / (self.height + 1)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Parent and children."""
        return self.children if self.parent is None else (self.parent, *self.children)


class Nodes:
    """Which ranks share a node with this one, and who speaks for each node."""

    def __init__(self, rank: int, nodes: Sequence[int]) -> None:
        here = nodes[rank]
        self.rank = rank
        self.size = len(nodes)
        self.local = tuple(r for r, node in enumerate(nodes) if node == here and r != rank)
        self.remote = tuple(r for r, node in enumerate(nodes) if node != here)
        self.leader = min((rank, *self.local))
        self.is_leader = self.leader == rank
        self.are_shared = 1 < len(set(nodes)) < len(nodes)  # several, and some by several ranks
