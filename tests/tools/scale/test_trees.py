"""Trees as arrays match the same trees computed item by item."""

from __future__ import annotations

import numpy as np
import pytest

from pcircle.simulation.job import ideal_s
from pcircle.simulation.tree import Ints, ItemTree, balanced, drawn, files, flat, geometric

RANDOM = range(20)


def counts_of(seed: int) -> Ints:
    """Draw a tree: number of children by number."""
    rng = np.random.default_rng(seed)
    counts: list[int] = []
    remaining, level = int(rng.integers(0, 300)), 1
    while level:
        many = [min(remaining, int(rng.integers(0, 6))) for _ in range(level)]
        while sum(many) > remaining:
            many[many.index(max(many))] -= 1
        if remaining and not sum(many):
            many[0] = 1
        counts += many
        level = sum(many)
        remaining -= level
    return np.array(counts)


def tree_of(seed: int, counts: Ints | None = None) -> ItemTree:
    """Build a tree with random durations, whose items spawn their children in the middle."""
    counts = counts_of(seed) if counts is None else counts
    return ItemTree(counts, np.random.default_rng(seed).uniform(0.5, 1.5, len(counts)))


def orderly(tree: ItemTree) -> list[int]:
    """Return the items in the order in which one rank processes them."""
    order, stack = [], [0]
    while stack:
        item = stack.pop()
        order.append(item)
        first = tree.first_child[item]
        stack += reversed(range(first, first + tree.children[item]))
    return order


@pytest.mark.parametrize("seed", RANDOM)
def test_places_and_sizes(seed: int) -> None:
    tree = tree_of(seed)
    order = orderly(tree)
    assert sorted(order) == list(range(tree.items))
    assert [tree.place[item] for item in order] == list(range(tree.items))
    for item in range(tree.items):
        first = tree.first_child[item]
        below = sum(tree.size[child] for child in range(first, first + tree.children[item]))
        assert tree.size[item] == 1 + below


@pytest.mark.parametrize("seed", RANDOM)
def test_work_and_span(seed: int) -> None:
    counts = counts_of(seed)
    durations = np.random.default_rng(seed).uniform(0.5, 1.5, len(counts))
    tree = ItemTree(counts, durations)
    span = [0.0] * tree.items
    for item in reversed(range(tree.items)):
        first = tree.first_child[item]
        below = [span[child] for child in range(first, first + tree.children[item])]
        own = float(durations[item])
        span[item] = max(own, own / 2 + max(below, default=0.0))
        place = tree.place[item]
        assert tree.until_s[place + 1] - tree.until_s[place] == pytest.approx(durations[item])
    assert tree.span_s == pytest.approx(span[0])
    assert tree.work_s == pytest.approx(durations.sum())


def test_shapes_have_the_requested_items() -> None:
    rng = np.random.default_rng(1)
    assert len(balanced(12345, 32)) == 12345
    assert len(flat(12345)) == 12345
    assert tree_of(1, flat(100)).span_s < 3
    assert 8000 <= len(geometric(10_000, rng)) <= 12_500
    for counts in (balanced(12345, 32), flat(1), geometric(1000, rng)):
        assert tree_of(1, counts).items == len(counts)


def test_a_balanced_tree_is_balanced() -> None:
    tree = tree_of(1, balanced(100_000, 32))
    first = tree.first_child[0]
    sizes = [tree.size[child] for child in range(first, first + tree.children[0])]
    assert len(sizes) == 32
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("entries", "directories", "batch"), [(100_000, 1000, 300), (10, 100, 7), (100_000, 1, 300)]
)
def test_every_entry_is_in_one_item(entries: int, directories: int, batch: int) -> None:
    counts, sizes = files(entries, directories, batch, np.random.default_rng(3))
    # Every directory except the first is an entry of another directory.
    assert sizes.sum() == entries + directories - 1
    assert len(counts) == len(sizes) >= directories
    assert 0 <= sizes.min() <= sizes.max() <= batch
    tree = ItemTree(counts, drawn("constant", sizes.astype(np.float64), np.random.default_rng(3)))
    assert tree.items == len(counts)
    assert tree.work_s == entries + directories - 1


@pytest.mark.parametrize("kind", ["uniform", "constant", "exponential"])
def test_times_have_the_requested_mean(kind: str) -> None:
    times = drawn(kind, np.full(100_000, 0.1), np.random.default_rng(5))
    assert times.mean() == pytest.approx(0.1, rel=0.02)
    assert times.min() >= 0
    assert times.max() <= 2


@pytest.mark.parametrize("seed", RANDOM)
@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_the_ideal_is_between_its_bounds(seed: int, ranks: int) -> None:
    tree = tree_of(seed)
    time_s, _ = ideal_s(tree, ranks)
    assert tree.bound_s(ranks) <= time_s * (1 + 1e-9)
    # Graham's bound for any schedule that leaves no rank idle while an item is waiting.
    assert time_s <= tree.work_s / ranks + tree.span_s + 1e-9
