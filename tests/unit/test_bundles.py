"""Bundles: what is given comes back once a join, together if it can and soon if it can't."""

from __future__ import annotations

import operator
from itertools import groupby
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.bundles import Bundles
from pcircle.circle.joins import Joins
from pcircle.circle.messages import JoinRef, Parcel, Returns, Work


class Side:
    """A rank's joins and bundles."""

    def __init__(self, rank: int) -> None:
        self.joins: Joins[int, int] = Joins(operator.add)
        self.bundles: Bundles[int, int] = Bundles(rank, self.joins, 0.25)

    def join_of(self, children: int) -> JoinRef:
        number = self.joins.number()
        self.joins.expect(number, Parcel(0, None), children)
        return JoinRef(0, number)

    def done(self, parcel: Parcel[int]) -> None:
        """An item was processed; its result is its own value."""
        assert parcel.parent is not None
        number = parcel.parent.number
        if self.joins.arrived(number, parcel.item).complete:
            self.bundles.complete(number, self.joins.close(number).merged)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), seed=st.integers(0, 999))
def test_each_join_gets_the_results_of_its_items_once(sizes: list[int], seed: int) -> None:
    rng, victim, thief = Random(seed), Side(0), Side(1)
    refs = [victim.join_of(size) for size in sizes]
    parcels = [
        Parcel(rng.randrange(100), ref)
        for ref, n in zip(refs, sizes, strict=True)
        for _ in range(n)
    ]
    rng.shuffle(parcels)
    work = victim.bundles.give(parcels, is_answer=False)
    assert sorted(map(len, work.groups)) == sorted(sizes)
    assert victim.bundles.given == len(sizes)
    taken = list(thief.bundles.take(0, work))
    rng.shuffle(taken)
    now_s, messages = 0.0, 0
    while taken or thief.bundles.is_owing:
        now_s += rng.choice((0.0, 0.1, 1.0))
        if taken:
            thief.done(taken.pop())
        for dest, returns in thief.bundles.results(now_s):
            assert dest == 0
            messages += 1
            for join, count, value in victim.bundles.returned(returns):
                victim.joins.arrived(join, value, count)
        assert victim.bundles.given == thief.bundles.taken
    assert 1 <= messages <= len(sizes)
    assert (victim.bundles.given, len(thief.joins)) == (0, 0)
    for ref, of_one in groupby(sorted(parcels, key=by_join), key=by_join):
        opened = victim.joins.peek(ref)
        assert (opened.pending, opened.merged) == (0, sum(parcel.item for parcel in of_one))


def by_join(parcel: Parcel[int]) -> int:
    assert parcel.parent is not None
    return parcel.parent.number


def test_a_complete_slot_waits_for_the_others_but_not_for_long() -> None:
    victim, thief = Side(0), Side(1)
    first, second = victim.join_of(1), victim.join_of(1)
    work = victim.bundles.give([Parcel(5, first), Parcel(6, second)], is_answer=True)
    one, other = thief.bundles.take(0, work)
    assert thief.bundles.wakeup_s() is None
    thief.done(one)
    assert thief.bundles.is_owing
    assert thief.bundles.results(10.0) == []
    assert thief.bundles.wakeup_s() == 10.25
    assert thief.bundles.results(10.25) == [(0, Returns(1, ((0, 5),)))]
    assert not thief.bundles.is_owing
    thief.done(other)
    assert thief.bundles.results(10.3) == [(0, Returns(1, ((1, 6),)))]
    assert thief.bundles.taken == 0


def test_a_whole_bundle_comes_back_at_once() -> None:
    victim, thief = Side(0), Side(1)
    ref = victim.join_of(3)
    work = victim.bundles.give([Parcel(item, ref) for item in (1, 2, 3)], is_answer=True)
    for parcel in thief.bundles.take(0, work):
        thief.done(parcel)
    assert thief.bundles.results(0.0) == [(0, Returns(1, ((0, 6),)))]


def test_items_without_joins_owe_nothing() -> None:
    victim, thief = Side(0), Side(1)
    work = victim.bundles.give([Parcel(4, None), Parcel(5, None)], is_answer=True)
    assert work == Work(0, True, ((4, 5),))
    assert list(thief.bundles.take(0, work)) == [Parcel(4, None), Parcel(5, None)]
    assert (victim.bundles.given, thief.bundles.taken, len(thief.joins)) == (0, 0, 0)
