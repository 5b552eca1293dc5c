"""The k-ary tree and the nodes: all ranks compute consistent positions."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.topology import Locality, NodeMap, TreePosition

sizes = st.integers(1, 300)
arities = st.integers(1, 9)


@given(size=sizes, arity=arities)
def test_ranks_form_one_tree(size: int, arity: int) -> None:
    trees = [TreePosition(rank, size, arity) for rank in range(size)]
    seen = [0]
    for rank in seen:
        tree = trees[rank]
        assert len(tree.children) <= arity
        for child in tree.children:
            assert trees[child].parent == rank
            assert trees[child].depth == tree.depth + 1
            assert trees[child].ancestors == (rank, *tree.ancestors)
        seen += tree.children
    assert sorted(seen) == list(range(size))
    assert trees[0].parent is None
    assert {tree.height for tree in trees} == {max(tree.depth for tree in trees)}


placed = st.lists(st.integers(0, 9), min_size=1, max_size=80)


@given(nodes=placed, arity=arities)
def test_ranks_on_nodes_form_one_tree(nodes: list[int], arity: int) -> None:
    """Each node is entered once."""
    places, size = NodeMap(nodes), len(nodes)
    trees = [TreePosition(rank, size, arity, places) for rank in range(size)]
    seen = [0]
    for rank in seen:
        tree = trees[rank]
        assert len(tree.children) <= 2 * arity
        for child in tree.children:
            assert trees[child].parent == rank
            assert trees[child].depth == tree.depth + 1
            assert trees[child].patience() < tree.patience()
            assert trees[child].ancestors == (rank, *tree.ancestors)
        seen += tree.children
    assert sorted(seen) == list(range(size))
    assert trees[0].parent is None
    (height,) = {tree.height for tree in trees}
    assert height >= max(tree.depth for tree in trees)
    crossing = [tree for tree in trees[1:] if nodes[tree.rank] != nodes[tree.parent or 0]]
    assert len(crossing) == len(set(nodes)) - 1
    assert all(0 < tree.patience() <= 1 for tree in trees)


@given(size=sizes, arity=arities)
def test_one_node_and_one_node_per_rank_give_the_same_tree(size: int, arity: int) -> None:
    for nodes in ([0] * size, range(size)):
        for rank in range(size):
            tree = TreePosition(rank, size, arity, NodeMap(nodes))
            plain = TreePosition(rank, size, arity)
            assert (tree.parent, tree.children) == (plain.parent, plain.children)
            assert (tree.ancestors, tree.height) == (plain.ancestors, plain.height)


@given(size=sizes, arity=st.integers(2, 9))
def test_tree_is_as_low_as_it_can_be(size: int, arity: int) -> None:
    height = TreePosition(0, size, arity).height
    assert size > sum(arity**level for level in range(height))


@given(size=sizes, arity=arities)
def test_patience_shrinks_evenly_with_each_level(size: int, arity: int) -> None:
    """A child that gives up can still report it, with the same margin on every level."""
    margin = 1 / (TreePosition(0, size, arity).height + 1)
    for rank in range(size):
        tree = TreePosition(rank, size, arity)
        assert 0 < tree.patience() <= 1
        for child in tree.children:
            below = TreePosition(child, size, arity).patience()
            assert tree.patience() - below == pytest.approx(margin)


def test_neighbours_are_parent_and_children() -> None:
    assert TreePosition(0, 10, 3).neighbours == (1, 2, 3)
    assert TreePosition(2, 10, 3).neighbours == (0, 7, 8, 9)
    assert TreePosition(9, 10, 3).neighbours == (2,)
    assert TreePosition(0, 1, 3).neighbours == ()


def test_arity_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least one"):
        TreePosition(0, 4, 0)


@given(nodes=st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_each_node_has_one_leader(nodes: list[int]) -> None:
    places = [Locality(rank, nodes) for rank in range(len(nodes))]
    leaders = [rank for rank, place in enumerate(places) if place.is_leader]
    assert sorted(nodes[leader] for leader in leaders) == sorted(set(nodes))
    assert all(nodes[place.leader] == nodes[place.rank] for place in places)


@given(nodes=st.lists(st.integers(0, 5), min_size=1, max_size=12), seed=st.integers(0, 999))
def test_near_and_far_ranks_are_all_other_ranks(nodes: list[int], seed: int) -> None:
    rng, table = Random(seed), NodeMap(nodes)
    for rank, node in enumerate(nodes):
        place = Locality(rank, table)
        near = {other for _ in range(150) if (other := place.near(rng)) is not None}
        far = {other for _ in range(300) if (other := place.far(rng)) is not None}
        assert near == {other for other, its in enumerate(nodes) if its == node and other != rank}
        assert far == {other for other, its in enumerate(nodes) if its != node}
        assert (place.has_local, place.has_remote) == (bool(near), bool(far))


def test_far_ranks_are_drawn_evenly() -> None:
    place, rng = Locality(2, [0, 1, 0, 1, 2, 0, 2]), Random(1)
    drawn = Counter(place.far(rng) for _ in range(8000))
    assert set(drawn) == {1, 3, 4, 6}
    assert max(drawn.values()) < 1.2 * min(drawn.values())
