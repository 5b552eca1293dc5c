"""Synthetic trees: any shape and size from a seed, without a table of entries.

A directory is a range of numbers (first, last): `first` is its own, and its subdirectories are
ranges that partition the remaining numbers. So each subtree's exact result is arithmetic (the count
of the numbers, their sum, and the sum of their squares), every rank can compute its share by
hashing, and judging a run does not require enumerating the tree.
"""

from __future__ import annotations

from itertools import pairwise
from math import log

import msgspec

Item = tuple[int, int]
# The number of directories, the sum of their numbers, the sum of their numbers' squares.
Result = tuple[int, int, int]

_MASK = (1 << 64) - 1


def mix(number: int) -> int:
    """Return a well-mixed 64-bit hash (the finaliser of splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def unit(number: int) -> float:
    """Return a hash between 0 and 1."""
    return mix(number) / (_MASK + 1)


def merge(a: Result, b: Result) -> Result:
    """Return the combined result of disjoint sets of directories."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


NOTHING: Result = (0, 0, 0)
"""The result of no directory at all."""


def own_result(item: Item) -> Result:
    """Return the result of the directory itself."""
    number = item[0]
    return 1, number, number * number


def _below(n: int) -> Result:
    return n, n * (n - 1) // 2, n * (n - 1) * (2 * n - 1) // 6


def expected(first: int, last: int) -> Result:
    """Return the result of all directories from `first` until `last`."""
    high, low = _below(last), _below(first)
    return high[0] - low[0], high[1] - low[1], high[2] - low[2]


class Forest(msgspec.Struct, frozen=True):
    """A synthetic job: `size` directories under `seeds` roots.

    A directory has up to `fan` subdirectories, of random sizes or, if `even`, of equal ones. A
    chain has a fan of 1, a star one of `size`. An item takes `item_s` on average, exponentially
    distributed and up to 20 times that; with a `skew` of 3 most take next to nothing and a few very
    long. An item spawns the share `early` of its children before it ends. The share `posts` of all
    items is for a certain rank, and cannot be stolen; the share `holds` is held, and spawns its
    last children when it is resumed; the share `agains` spawns its last child when its other
    children are complete.
    """

    salt: int = 0
    size: int = 40
    seeds: int = 1
    fan: int = 4
    even: bool = False
    item_s: float = 0.001
    skew: int = 1
    early: float = 0.5
    posts: float = 0.0
    holds: float = 0.0
    agains: float = 0.0

    def roots(self) -> list[Item]:
        """Return the initial items of the job."""
        return self._share(0, self.size, min(self.seeds, self.size), -1)

    def children(self, item: Item) -> list[Item]:
        """Return the subdirectories of a directory."""
        first, last = item
        below = last - first - 1
        if not below:
            return []
        most = min(self.fan, below)
        count = most if self.even else 1 + mix(self.salt ^ first * 3) % most
        return self._share(first + 1, last, count, first)

    def _share(self, first: int, last: int, count: int, key: int) -> list[Item]:
        below = last - first
        if not below:
            return []
        if self.even:
            cuts = [first + below * i // count for i in range(count + 1)]
            return list(pairwise(cuts))
        inner = {
            first + mix(self.salt + 7919 * key + i) % below if below > 1 else first
            for i in range(count - 1)
        }
        edges = sorted(inner | {first, last})
        return list(pairwise(edges))

    def duration_s(self, item: Item) -> float:
        """Return the time that a directory takes."""
        drawn = -log(1.0 - unit(self.salt + 31 * item[0] + 17))
        return self.item_s * min(20.0, drawn**self.skew)

    def is_posted(self, item: Item) -> bool:
        """Return whether only one rank may process the item."""
        return unit(self.salt + 41 * item[0] + 29) < self.posts

    def is_held(self, item: Item) -> bool:
        """Return whether the item is held for something else before it is complete."""
        return unit(self.salt + 43 * item[0] + 31) < self.holds

    def kept_back(self, item: Item) -> Item | None:
        """Return the child that an item's first completion spawns, if it has two completions."""
        if unit(self.salt + 47 * item[0] + 37) >= self.agains:
            return None
        children = self.children(item)
        return children[-1] if len(children) > 1 else None

    def completion_s(self, item: Item) -> float:
        """Return the time that its completion takes."""
        return self.item_s * 0.2 * unit(self.salt + 37 * item[0] + 23)

    def work_s(self) -> float:
        """Return the total time of all items for one worker, without completions."""
        return sum(self.duration_s((number, number + 1)) for number in range(self.size))
