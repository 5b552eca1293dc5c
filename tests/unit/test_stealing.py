"""Whom a thief asks, how long it waits and what it gets: victim policies, back-off, shares."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.stealing import (
    SPLITS,
    Backoff,
    NearestVictims,
    RandomVictims,
    equal_share,
    random_share,
)
from pcircle.circle.topology import Nodes

seeds = st.integers(0, 10_000)


@given(stealable=st.integers(1, 5000), seed=seeds, split=st.sampled_from(sorted(SPLITS)))
def test_a_share_is_never_nothing_and_never_more_than_all(
    stealable: int, seed: int, split: str
) -> None:
    assert 1 <= SPLITS[split](stealable, Random(seed)) <= stealable


@given(stealable=st.integers(1, 5000))
def test_equal_share_leaves_as_much_as_it_takes(stealable: int) -> None:
    share = equal_share(stealable, Random(0))
    assert share - (stealable - share) in (0, 1)


def test_random_share_is_spread_over_all_shares() -> None:
    rng = Random(1)
    assert {random_share(4, rng) for _ in range(200)} == {1, 2, 3, 4}


@given(first_s=st.floats(1e-5, 1e-2), factor=st.floats(1, 1000), seed=seeds)
def test_backoff_doubles_with_jitter_up_to_its_limit(
    first_s: float, factor: float, seed: int
) -> None:
    rng, limit_s = Random(seed), first_s * factor
    backoff = Backoff(first_s, limit_s)
    for _ in range(2):
        wanted_s = first_s
        for _ in range(15):
            wait_s = backoff.next_s(rng)
            assert 0.5 * wanted_s <= wait_s <= 1.5 * wanted_s
            wanted_s = min(limit_s, 2 * wanted_s)
        backoff.reset()


@given(size=st.integers(2, 50), seed=seeds, data=st.data())
def test_random_victims_are_all_others_and_never_oneself(
    size: int, seed: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, size - 1))
    victims, rng = RandomVictims(rank, size), Random(seed)
    asked = [victims.choose(rng) for _ in range(size * 20)]
    assert rank not in asked
    assert set(asked) <= set(range(size))
    assert size > 5 or len(set(asked)) == size - 1


def test_nobody_to_ask_alone() -> None:
    assert RandomVictims(0, 1).choose(Random(0)) is None
    assert NearestVictims(Nodes(0, [0])).choose(Random(0)) is None


@given(nodes=st.lists(st.integers(0, 4), min_size=2, max_size=30), seed=seeds)
def test_there_is_always_somebody_to_ask(nodes: list[int], seed: int) -> None:
    rng = Random(seed)
    for rank in range(len(nodes)):
        victims = NearestVictims(Nodes(rank, nodes))
        for _ in range(10):
            victim = victims.choose(rng)
            assert victim is not None
            assert victim != rank
            victims.refused(victim)


def test_only_leaders_ask_other_nodes() -> None:
    nodes, rng = [0, 0, 0, 1, 1, 1], Random(3)
    for rank in (1, 2, 4, 5):
        victims = NearestVictims(Nodes(rank, nodes))
        for _ in range(30):
            victim = victims.choose(rng)
            assert victim is not None
            assert nodes[victim] == nodes[rank]
            victims.refused(victim)
            victims.pleaded(0 if nodes[rank] == 0 else 3)
            assert not victims.asks_for_others


def test_leader_asks_near_first_then_out_then_near_again() -> None:
    nodes, rng = [0, 0, 0, 1, 1], Random(3)
    victims = NearestVictims(Nodes(0, nodes))
    for _ in range(5):
        near = victims.choose(rng)
        assert near in (1, 2)
        victims.refused(near)
        far = victims.choose(rng)
        assert far in (3, 4)
        victims.served(far)
        assert victims.choose(rng) in (1, 2)


def test_leader_asks_for_a_neighbour_that_went_away_with_nothing() -> None:
    victims = NearestVictims(Nodes(3, [0, 0, 0, 1, 1]))
    assert not victims.asks_for_others
    victims.pleaded(0)  # of the other node: none of its business
    assert not victims.asks_for_others
    victims.pleaded(4)
    assert victims.asks_for_others
    assert victims.choose(Random(0)) in (0, 1, 2)
    assert not victims.asks_for_others


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_alone_on_its_node_always_asks_outward(rank: int) -> None:
    victims = NearestVictims(Nodes(rank, [0, 1]))
    for _ in range(4):
        assert victims.choose(Random(0)) == 1 - rank
        victims.refused(1 - rank)
        assert victims.choose(Random(0)) == 1 - rank
        victims.served(1 - rank)
