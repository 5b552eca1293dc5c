"""Trees of items as arrays: millions of items, and the work of any run of siblings by subtraction.

An item has a *number*: siblings have consecutive ones, parents smaller ones than their children.
It also has a *place* in the order in which one rank alone would process the tree: depth first, so
that a subtree is a range of places. With the sums of all durations by place, the work in any
subtree, or run of siblings, is one subtraction, and which item runs at a given time one bisection:
that is why a rank that works undisturbed costs nothing to simulate.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Tree:
    """Items, their children and durations.

    `counts` has each item's number of children, `durations` the seconds that
    it takes, both by number. An item makes its children when the share
    `spawn_at` of its time is over. `first_child`, `children`, `place` and
    `size` (of the subtree) are by number, and so is `inner`, which is the next
    item, from this one on, that has children; `until_s[p]` is how long all
    places before p take together. All are memoryviews, which are faster than
    arrays to read one by one.
    """

    def __init__(self, counts: Ints, durations: Floats, spawn_at: float = 0.5) -> None:
        total = len(counts)
        first = np.empty(total, dtype=np.int64)
        first[0] = 1
        np.cumsum(counts[:-1], out=first[1:])
        first[1:] += 1
        self.levels = _levels(counts)
        size = _sizes(counts, first, self.levels)
        place = _places(counts, size, self.levels)
        until = np.zeros(total + 1)
        until[1 + place] = durations
        np.cumsum(until, out=until)
        self.items = total
        self.spawn_at = spawn_at
        self.work_s = float(until[-1])
        self.span_s = _span(counts, durations, self.levels, spawn_at)
        self.first_child = _view(first.astype(np.int32))
        self.children = _view(counts.astype(np.int32))
        self.inner = _view(_inner(counts).astype(np.int32))
        self.place = _view(place.astype(np.int32))
        self.size = _view(size.astype(np.int32))
        self.until_s = _view(until)

    def bound_s(self, ranks: int) -> float:
        """No schedule on so many ranks is shorter: neither than the work, nor than a path down."""
        return max(self.work_s / ranks, self.span_s)


def _view(array: npt.NDArray[Any]) -> Any:
    return array.data


def _inner(counts: Ints) -> Ints:
    """For each item the first one from it on that has children, or the number of all."""
    numbers = np.where(counts > 0, np.arange(len(counts)), len(counts))
    nearest: Ints = np.minimum.accumulate(numbers[::-1])[::-1]
    return nearest


def _levels(counts: Ints) -> list[tuple[int, int]]:
    """The numbers of each level's first item and of the one after its last."""
    levels, begin, end = [], 0, 1
    while begin < end:
        levels.append((begin, end))
        begin, end = end, end + int(counts[begin:end].sum())
    if begin != len(counts):
        raise ValueError(f"{len(counts)} items, but {begin} in the tree")
    return levels


def _sizes(counts: Ints, first: Ints, levels: list[tuple[int, int]]) -> Ints:
    size = np.ones(len(counts), dtype=np.int64)
    for begin, end in reversed(levels[:-1]):
        below = np.zeros(int(counts[begin:end].sum()) + 1, dtype=np.int64)
        np.cumsum(size[end : end + len(below) - 1], out=below[1:])
        edges = np.append(first[begin:end] - end, len(below) - 1)
        size[begin:end] += below[edges[1:]] - below[edges[:-1]]
    return size


def _places(counts: Ints, size: Ints, levels: list[tuple[int, int]]) -> Ints:
    place = np.zeros(len(counts), dtype=np.int64)
    for (begin, end), (_, below) in pairwise(levels):
        sizes = size[end:below]
        before = np.cumsum(sizes) - sizes  # of all on the level
        many = counts[begin:end]
        starts = np.cumsum(many) - many
        inner = before[np.minimum(starts, len(before) - 1)]  # where each parent's first begins
        place[end:below] = before + np.repeat(place[begin:end] + 1 - inner, many)
    return place


def _span(counts: Ints, durations: Floats, levels: list[tuple[int, int]], spawn_at: float) -> float:
    starts = np.zeros(1)  # of each item on a level, had every item a rank of its own
    longest = float(durations[0])
    for (begin, end), (_, below) in pairwise(levels):
        starts = np.repeat(starts + spawn_at * durations[begin:end], counts[begin:end])
        longest = max(longest, float((starts + durations[end:below]).max()))
    return longest


# ---- shapes ------------------------------------------------------------------------------------


def balanced(items: int, fan: int) -> Ints:
    """A tree of so many items in which all subtrees of a level are nearly equal."""
    levels, below = [], np.array([items - 1])
    while len(below):
        counts = np.minimum(below, fan)
        levels.append(counts)
        inner, many = below[counts > 0], counts[counts > 0]
        index = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        shared, parts = np.repeat(inner, many), np.repeat(many, many)
        below = shared * (index + 1) // parts - shared * index // parts - 1
    return np.concatenate(levels)


def geometric(items: int, rng: np.random.Generator, fan: float = 4.0) -> Ints:
    """An unbalanced tree of about so many items, after the geometric trees of UTS.

    The number of children is geometric, with a mean that falls from `fan` at
    the root to 0 at the greatest depth, and that depth makes the size.
    """
    deepest = 2
    while _expected(fan, deepest) < items:
        deepest += 1
    for _ in range(1000):
        counts = _grown(fan, deepest, items, rng)
        if counts is not None:
            return counts
    raise ValueError(f"no tree of about {items} items in 1000 tries")


def _expected(fan: float, deepest: int) -> float:
    total = level = 1.0
    for depth in range(deepest):
        level *= fan * (1 - depth / deepest)
        total += level
    return total


def _grown(fan: float, deepest: int, items: int, rng: np.random.Generator) -> Ints | None:
    levels, wide, total = [], 1, 1
    for depth in range(deepest + 1):
        mean = fan * (1 - depth / deepest)
        counts = rng.geometric(1 / (1 + mean), wide) - 1
        if not depth:
            counts[:] = round(fan)
        levels.append(counts)
        wide = int(counts.sum())
        total += wide
        if total > 1.25 * items:
            return None
        if not wide:
            break
    return np.concatenate(levels) if total > 0.8 * items else None


def flat(items: int) -> Ints:
    """One item that makes all the others."""
    counts = np.zeros(items, dtype=np.int64)
    counts[0] = items - 1
    return counts


def files(
    entries: int, directories: int, batch: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """The items of a tree of files, and how many entries each has.

    Directories have as many subdirectories and entries as chance will have it:
    each new one is put in any of those that exist, and sizes are exponential. A
    directory is an item of its first batch of entries, with an item below it
    for each further batch and each subdirectory.
    """
    parents = _attached(directories, rng)
    weights = rng.exponential(size=directories)
    edges = np.rint(np.cumsum(weights) * (entries / weights.sum())).astype(np.int64)
    many = np.diff(edges, prepend=0)
    subdirectories = np.bincount(parents[1:], minlength=directories)
    many += subdirectories
    batches = np.maximum(1, -(-many // batch))
    # Of each directory the subdirectories come first, then its other batches.
    return _arranged(parents, subdirectories, batches, many, batch)


def _attached(directories: int, rng: np.random.Generator) -> Ints:
    """A parent for each directory, with a smaller number."""
    numbers = np.arange(directories)
    parents = (rng.random(directories) * numbers).astype(np.int64)
    parents[0] = -1
    return parents


def _arranged(
    parents: Ints, subdirectories: Ints, batches: Ints, many: Ints, batch: int
) -> tuple[Ints, Ints]:
    """Directories and their further batches level by level, as `Tree` has them."""
    order = np.argsort(parents, kind="stable")  # by parent: all children of one together
    first = np.zeros(len(parents) + 1, dtype=np.int64)
    np.cumsum(subdirectories, out=first[1:])
    first += 1  # the root stands in front
    counts, sizes = [], []
    level = np.zeros(1, dtype=np.int64)  # directories, or less than 0: further batches
    rest = np.zeros(1, dtype=np.int64)  # the entries of those
    while len(level):
        is_directory = level >= 0
        held = np.where(is_directory, level, 0)
        own = np.where(is_directory, np.minimum(many[held], batch), rest)
        subs = np.where(is_directory, subdirectories[held], 0)
        more = np.where(is_directory, batches[held] - 1, 0)
        total = subs + more
        counts.append(total)
        sizes.append(own)
        index = np.arange(int(total.sum())) - np.repeat(np.cumsum(total) - total, total)
        is_sub = index < np.repeat(subs, total)
        places = np.repeat(first[held], total) + index
        below = np.where(is_sub, order[np.minimum(places, len(order) - 1)], -1)
        left = np.repeat(many[held], total) - batch * (index - np.repeat(subs, total) + 1)
        rest = np.minimum(left, batch)
        level = below
    return np.concatenate(counts), np.concatenate(sizes)


# ---- durations ---------------------------------------------------------------------------------


def drawn(kind: str, means_s: Floats, rng: np.random.Generator) -> Floats:
    """How long items take: the mean, from half to one and a half of it, or exponential."""
    if kind == "constant":
        return means_s
    if kind == "uniform":
        return means_s * rng.uniform(0.5, 1.5, len(means_s))
    return means_s * np.minimum(20.0, rng.exponential(size=len(means_s)))
