"""Trees of millions of items as arrays, from which one subtraction yields the work of siblings.

An item has a *number*: siblings have consecutive numbers, greater than the number of their parent.
It also has a *place* in the depth-first order in which a single rank would process the tree. So a
subtree is a range of places. With prefix sums of durations by place, one subtraction yields the
work of a subtree or of a run of siblings. One bisection finds the item that is running at a given
time. So it costs very little to simulate a rank that exchanges no messages.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class ItemTree:
    """Items with their children and durations.

    `counts` contains the child count of each item, and `durations` its duration in seconds, both
    indexed by number. An item makes its children after the share `spawn_at` of its duration.
    `first_child`, `children`, `place` and `size` (of the subtree) are indexed by number. So is
    `inner`, the first item at or after this one that has children. `until_s[p]` is the total
    duration of all places before p. All are memoryviews, which are faster than arrays for single
    elements.
    """

    def __init__(self, counts: Ints, durations: Floats, spawn_at: float = 0.5) -> None:
        total = len(counts)
        first = np.empty(total, dtype=np.int64)
        first[0] = 1
        np.cumsum(counts[:-1], out=first[1:])
        first[1:] += 1
        self.levels: list[tuple[int, int]] = _levels(counts)
        size = _sizes(counts, first, self.levels)
        place = _places(counts, size, self.levels)
        until = np.zeros(total + 1)
        until[1 + place] = durations
        np.cumsum(until, out=until)
        self.items = total
        self.spawn_at = spawn_at
        self.work_s: float = float(until[-1])
        self.span_s: float = _span(counts, durations, self.levels, spawn_at)
        self.first_child: Any = _view(first.astype(np.int32))
        self.children: Any = _view(counts.astype(np.int32))
        self.inner: Any = _view(_inner(counts).astype(np.int32))
        self.place: Any = _view(place.astype(np.int32))
        self.size: Any = _view(size.astype(np.int32))
        self.until_s: Any = _view(until)

    def bound_s(self, ranks: int) -> float:
        """Return a lower bound on the duration: the longer of work per rank and longest path."""
        return max(self.work_s / ranks, self.span_s)


def _view(array: npt.NDArray[Any]) -> Any:
    return array.data


def _inner(counts: Ints) -> Ints:
    """Return, for each item, the first item with children from it onwards, or the item count."""
    numbers = np.where(counts > 0, np.arange(len(counts)), len(counts))
    nearest: Ints = np.minimum.accumulate(numbers[::-1])[::-1]
    return nearest


def _levels(counts: Ints) -> list[tuple[int, int]]:
    """Return the range of numbers of each level."""
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
        before = np.cumsum(sizes) - sizes  # places before each item on the level
        child_counts = counts[begin:end]
        starts = np.cumsum(child_counts) - child_counts
        inner = before[np.minimum(starts, len(before) - 1)]  # start of each parent's first child
        place[end:below] = before + np.repeat(place[begin:end] + 1 - inner, child_counts)
    return place


def _span(counts: Ints, durations: Floats, levels: list[tuple[int, int]], spawn_at: float) -> float:
    starts = np.zeros(1)  # start of each item on a level if every item had its own rank
    longest = float(durations[0])
    for (begin, end), (_, below) in pairwise(levels):
        starts = np.repeat(starts + spawn_at * durations[begin:end], counts[begin:end])
        longest = max(longest, float((starts + durations[end:below]).max()))
    return longest


# ---- shapes ------------------------------------------------------------------------------------


def balanced(items: int, fan: int) -> Ints:
    """Return the child counts of a tree whose subtrees on a level are of nearly equal size."""
    levels, below = [], np.array([items - 1])
    while len(below):
        counts = np.minimum(below, fan)
        levels.append(counts)
        inner, child_counts = below[counts > 0], counts[counts > 0]
        index = np.arange(int(child_counts.sum())) - np.repeat(
            np.cumsum(child_counts) - child_counts, child_counts
        )
        shared, parts = np.repeat(inner, child_counts), np.repeat(child_counts, child_counts)
        below = shared * (index + 1) // parts - shared * index // parts - 1
    return np.concatenate(levels)


def geometric(items: int, rng: np.random.Generator, fan: float = 4.0) -> Ints:
    """Return the child counts of an unbalanced tree, like the geometric trees of UTS.

    The root has `fan` children. Below it, child counts are geometric, with a mean that decreases
    linearly to 0 at the greatest depth. That depth is chosen so that the tree has about `items`
    items.
    """
    max_depth = 2
    while _expected(fan, max_depth) < items:
        max_depth += 1
    for _ in range(1000):
        counts = _grown(fan, max_depth, items, rng)
        if counts is not None:
            return counts
    raise ValueError(f"no tree of about {items} items in 1000 tries")


def _expected(fan: float, max_depth: int) -> float:
    total = level = 1.0
    for depth in range(max_depth):
        level *= fan * (1 - depth / max_depth)
        total += level
    return total


def _grown(fan: float, max_depth: int, items: int, rng: np.random.Generator) -> Ints | None:
    levels, width, total = [], 1, 1
    for depth in range(max_depth + 1):
        mean = fan * (1 - depth / max_depth)
        counts = rng.geometric(1 / (1 + mean), width) - 1
        if not depth:
            counts[:] = round(fan)
        levels.append(counts)
        width = int(counts.sum())
        total += width
        if total > 1.25 * items:
            return None
        if not width:
            break
    return np.concatenate(levels) if total > 0.8 * items else None


def flat(items: int) -> Ints:
    """Return the child counts of a root whose children are all other items."""
    counts = np.zeros(items, dtype=np.int64)
    counts[0] = items - 1
    return counts


def files(
    entries: int, directories: int, batch: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return the child counts and entry counts of the items of a random tree of files.

    Each new directory is a child of a random existing directory, and entry counts are exponential.
    A directory is an item that processes its first batch of entries, with a child for each further
    batch and each subdirectory.
    """
    parents = _attached(directories, rng)
    weights = rng.exponential(size=directories)
    edges = np.rint(np.cumsum(weights) * (entries / weights.sum())).astype(np.int64)
    entry_counts = np.diff(edges, prepend=0)
    subdirectories = np.bincount(parents[1:], minlength=directories)
    entry_counts += subdirectories
    batches = np.maximum(1, -(-entry_counts // batch))
    # The subdirectories of a directory come first, then its further batches.
    return _arranged(parents, subdirectories, batches, entry_counts, batch)


def _attached(directories: int, rng: np.random.Generator) -> Ints:
    """Return a random parent with a smaller number for each directory."""
    numbers = np.arange(directories)
    parents = (rng.random(directories) * numbers).astype(np.int64)
    parents[0] = -1
    return parents


def _arranged(
    parents: Ints, subdirectories: Ints, batches: Ints, entry_counts: Ints, batch: int
) -> tuple[Ints, Ints]:
    """Arrange directories and their further batches level by level, as `ItemTree` requires."""
    order = np.argsort(parents, kind="stable")  # groups the children of each parent
    first = np.zeros(len(parents) + 1, dtype=np.int64)
    np.cumsum(subdirectories, out=first[1:])
    first += 1  # the root comes first
    counts, sizes = [], []
    level = np.zeros(1, dtype=np.int64)  # numbers of directories, or -1 for further batches
    batch_entries = np.zeros(1, dtype=np.int64)  # number of entries of further batches
    while len(level):
        is_directory = level >= 0
        held = np.where(is_directory, level, 0)
        own = np.where(is_directory, np.minimum(entry_counts[held], batch), batch_entries)
        subs = np.where(is_directory, subdirectories[held], 0)
        extra_batches = np.where(is_directory, batches[held] - 1, 0)
        total = subs + extra_batches
        counts.append(total)
        sizes.append(own)
        index = np.arange(int(total.sum())) - np.repeat(np.cumsum(total) - total, total)
        is_sub = index < np.repeat(subs, total)
        places = np.repeat(first[held], total) + index
        below = np.where(is_sub, order[np.minimum(places, len(order) - 1)], -1)
        left = np.repeat(entry_counts[held], total) - batch * (index - np.repeat(subs, total) + 1)
        batch_entries = np.minimum(left, batch)
        level = below
    return np.concatenate(counts), np.concatenate(sizes)


# ---- durations ---------------------------------------------------------------------------------


def drawn(kind: str, means_s: Floats, rng: np.random.Generator) -> Floats:
    """Draw durations: constant, uniform or exponential around the means.

    Uniform durations range from 0.5 to 1.5 times the mean. Exponential durations are cut off at 20
    times the mean.
    """
    if kind == "constant":
        return means_s
    if kind == "uniform":
        return means_s * rng.uniform(0.5, 1.5, len(means_s))
    return means_s * np.minimum(20.0, rng.exponential(size=len(means_s)))
