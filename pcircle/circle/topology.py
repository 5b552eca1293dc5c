"""The topology of a job: which ranks share a node, and the tree of ranks.

Every rank receives the mapping of ranks to nodes when the job starts, and computes both from it
without further messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from random import Random


class NodeMap:
    """The node of each rank. Its size is O(ranks), but ranks in one process can share it."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes: tuple[int, ...] = tuple(nodes)
        self.ranks: dict[int, list[int]] = {}  # by node
        for rank, node in enumerate(self.nodes):
            self.ranks.setdefault(node, []).append(rank)
        self.firsts: tuple[int, ...] = tuple(ranks[0] for ranks in self.ranks.values())
        self.order: dict[int, int] = {node: place for place, node in enumerate(self.ranks)}
        self.max_on_node: int = max(map(len, self.ranks.values()))


class TreePosition:
    """A rank's position in the tree of all ranks; rank 0 is the root.

    The first ranks of all nodes form a k-ary tree, and so do the ranks of each node below its first
    rank. A value that is summed up the tree therefore crosses between nodes once per node, not once
    per rank. If `places` is None, all ranks share a node.
    """

    def __init__(self, rank: int, size: int, arity: int, places: NodeMap | None = None) -> None:
        if arity < 1:
            raise ValueError("a tree has an arity of at least one")
        self.rank = rank
        self.size = size
        self.arity = arity
        self._places = places
        firsts, at, here = self._levels(rank)
        place = bisect_left(here, rank)
        far = () if place else self._below(at, len(firsts))
        near = self._below(place, len(here))
        self.children: tuple[int, ...] = (*(firsts[i] for i in far), *(here[i] for i in near))
        self.ancestors: tuple[int, ...] = self._path(rank)
        self.parent: int | None = self.ancestors[0] if rank else None
        self.depth: int = len(self.ancestors)
        max_on_node = size if places is None else places.max_on_node
        self.height: int = self._depth(len(firsts) - 1) + self._depth(max_on_node - 1)

    def _levels(self, rank: int) -> tuple[Sequence[int], int, Sequence[int]]:
        """Return the nodes' first ranks, the index of this node, and its ranks."""
        if self._places is None:
            return (0,), 0, range(self.size)
        node = self._places.nodes[rank]
        return self._places.firsts, self._places.order[node], self._places.ranks[node]

    def _below(self, place: int, count: int) -> range:
        first = self.arity * place + 1
        return range(first, min(first + self.arity, count))

    def _depth(self, place: int) -> int:
        return sum(1 for _ in self._above(place))

    def _above(self, place: int) -> Iterator[int]:
        while place:
            place = (place - 1) // self.arity
            yield place

    def _path(self, rank: int) -> tuple[int, ...]:
        firsts, at, here = self._levels(rank)
        near = [here[i] for i in self._above(bisect_left(here, rank))]
        return (*near, *(firsts[i] for i in self._above(at)))

    def patience(self) -> float:
        """Return the fraction of a time limit for which this rank may wait for its children.

        It decreases by the same step per level, so that a rank that gives up can still answer its
        parent in time, however deep the tree is.
        """
        return 1 - self.depth / (self.height + 1)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The parent and the children."""
        return self.children if self.parent is None else (self.parent, *self.children)


class Locality:
    """The ranks that share a node with this rank, and the leader of that node."""

    def __init__(self, rank: int, nodes: Sequence[int] | NodeMap) -> None:
        places = nodes if isinstance(nodes, NodeMap) else NodeMap(nodes)
        self.rank = rank
        self.size: int = len(places.nodes)
        self._nodes = places.nodes
        self._here = here = places.ranks[places.nodes[rank]]
        self._place = bisect_left(here, rank)
        self.leader: int = here[0]
        self.is_leader: bool = self.leader == rank
        self.has_local: bool = len(here) > 1
        self.has_remote: bool = len(here) < self.size
        count = len(places.ranks)
        # There are several nodes, some with several ranks.
        self.are_shared: bool = 1 < count < self.size

    def near(self, rng: Random) -> int | None:
        """Return another rank of this node, chosen uniformly, or None."""
        if not self.has_local:
            return None
        other = rng.randrange(len(self._here) - 1)
        return self._here[other + (other >= self._place)]

    def far(self, rng: Random) -> int | None:
        """Return a rank of another node, chosen uniformly, or None."""
        if not self.has_remote:
            return None
        # Find the rank at index `far` of the list of ranks on other nodes.
        far = rng.randrange(self.size - len(self._here))
        low, high = far, self.size - 1
        while low < high:
            middle = (low + high) // 2
            if middle + 1 - bisect_right(self._here, middle) > far:
                high = middle
            else:
                low = middle + 1
        return low
