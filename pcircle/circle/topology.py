"""Where ranks are: which share a node, and how they form a k-ary tree.

Both are functions of the rank numbers alone, so every rank knows them without
a message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from random import Random


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


class Places:
    """On which node each rank is: one for all ranks of a process, as it grows with their number."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes = tuple(nodes)
        self.ranks: dict[int, list[int]] = {}  # by node
        for rank, node in enumerate(self.nodes):
            self.ranks.setdefault(node, []).append(rank)


class Nodes:
    """Which ranks share a node with this one, and who speaks for each node."""

    def __init__(self, rank: int, nodes: Sequence[int] | Places) -> None:
        places = nodes if isinstance(nodes, Places) else Places(nodes)
        self.rank = rank
        self.size = len(places.nodes)
        self._nodes = places.nodes
        self._here = here = places.ranks[places.nodes[rank]]
        self._place = bisect_left(here, rank)
        self.leader = here[0]
        self.is_leader = self.leader == rank
        self.has_local = len(here) > 1
        self.has_remote = len(here) < self.size
        count = len(places.ranks)
        self.are_shared = 1 < count < self.size  # several, and some by several ranks

    def near(self, rng: Random) -> int | None:
        """Another rank of this node, uniformly, None if there is none."""
        if not self.has_local:
            return None
        other = rng.randrange(len(self._here) - 1)
        return self._here[other + (other >= self._place)]

    def far(self, rng: Random) -> int | None:
        """A rank of another node, uniformly, None if there is none."""
        if not self.has_remote:
            return None
        # As one in the list of all ranks that leaves out this node's.
        far = rng.randrange(self.size - len(self._here))
        low, high = far, self.size - 1
        while low < high:
            middle = (low + high) // 2
            if middle + 1 - bisect_right(self._here, middle) > far:
                high = middle
            else:
                low = middle + 1
        return low
