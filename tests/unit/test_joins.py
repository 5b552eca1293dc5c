"""Joins: children counted out and in, in any order, and merged exactly once."""

from __future__ import annotations

import operator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.joins import Joins
from pcircle.circle.messages import JoinRef, Parcel

PARCEL = Parcel("item", JoinRef(3, 4))


def joins() -> Joins[str, int]:
    return Joins(operator.add)


@given(children=st.lists(st.integers(0, 1000), min_size=1, max_size=30), seed=st.integers(0, 999))
def test_a_join_completes_with_its_last_result(children: list[int], seed: int) -> None:
    """Spawns, results and the item's own end occur in any valid order."""
    rng, opened = Random(seed), joins()
    out, arrived = 0, 0
    ended = False
    while True:
        moves = ["spawn"] * (out < len(children) and not ended)
        moves += ["arrive"] * (arrived < out)
        moves += ["end"] * (out == len(children) and not ended)
        if not moves:
            break
        move = rng.choice(moves)
        if move == "spawn":
            more = rng.randint(1, len(children) - out)
            opened.expect(7, PARCEL, more)
            out += more
        elif move == "arrive":
            opened.arrived(7, children[arrived])
            arrived += 1
        else:
            assert opened.processed(7, "own") is not None
            ended = True
        opened.check()
        assert opened.peek(7).complete == (ended and arrived == len(children))
    join = opened.close(7)
    assert join.merged == sum(children)
    assert (join.own, join.parcel) == ("own", PARCEL)
    assert len(opened) == 0


def test_an_item_that_never_spawned_has_no_join() -> None:
    assert joins().processed(1, "own") is None


def test_a_surplus_result_raises() -> None:
    opened = joins()
    opened.expect(1, PARCEL, 1)
    opened.arrived(1, 5)
    with pytest.raises(ValueError, match="more results than it has children"):
        opened.arrived(1, 5)
    with pytest.raises(KeyError):
        opened.arrived(2, 5)


def test_joins_of_finished_items_are_abandoned() -> None:
    opened = joins()
    for number in (1, 2, 3):
        opened.expect(number, PARCEL, 2)
    opened.processed(1, "one")
    opened.processed(3, "three")
    assert [join.own for join in opened.abandon()] == ["one", "three"]
    assert [number for number, _ in opened.items()] == [2]
    opened.processed(2, "two")
    assert [join.own for join in opened.abandon()] == ["two"]
    assert opened.abandon() == []
    assert opened.max_open == 3


def test_falsy_results_are_merged() -> None:
    opened = joins()
    opened.expect(1, PARCEL, 3)
    for value in (0, 0, 0):
        opened.arrived(1, value)
    assert opened.peek(1).merged == 0
