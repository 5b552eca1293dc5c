"""Bundles: one result per join, combined if possible, and delayed only for a limited time."""

from __future__ import annotations

import operator
from itertools import groupby
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.joins import Bundles, Joins
from pcircle.circle.messages import BundleResults, JoinRef, MovedSlot, Parcel, WorkTransfer


class Side:
    """The joins and bundles of one rank."""

    def __init__(self, rank: int) -> None:
        self.joins: Joins[int, int] = Joins(operator.add)
        self.bundles: Bundles[int, int] = Bundles(rank, self.joins, 0.25)

    def join_of(self, children: int) -> JoinRef:
        number = self.joins.number()
        self.joins.expect(number, Parcel(0, None), children)
        return JoinRef(0, number)

    def done(self, parcel: Parcel[int]) -> None:
        """Process an item, whose result is its own value."""
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
    work = victim.bundles.give(1, parcels, is_answer=False)
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


def test_a_complete_slot_waits_for_other_slots_for_a_limited_time() -> None:
    victim, thief = Side(0), Side(1)
    first, second = victim.join_of(1), victim.join_of(1)
    work = victim.bundles.give(1, [Parcel(5, first), Parcel(6, second)], is_answer=True)
    one, other = thief.bundles.take(0, work)
    assert thief.bundles.wakeup_s() is None
    thief.done(one)
    assert thief.bundles.is_owing
    assert thief.bundles.results(10.0) == []
    assert thief.bundles.wakeup_s() == 10.25
    assert thief.bundles.results(10.25) == [(0, BundleResults(1, ((0, 5),)))]
    assert not thief.bundles.is_owing
    thief.done(other)
    assert thief.bundles.results(10.3) == [(0, BundleResults(1, ((1, 6),)))]
    assert thief.bundles.taken == 0


def test_a_complete_bundle_is_returned_at_once() -> None:
    victim, thief = Side(0), Side(1)
    ref = victim.join_of(3)
    work = victim.bundles.give(1, [Parcel(item, ref) for item in (1, 2, 3)], is_answer=True)
    for parcel in thief.bundles.take(0, work):
        thief.done(parcel)
    assert thief.bundles.results(0.0) == [(0, BundleResults(1, ((0, 6),)))]


def test_a_transferred_slot_takes_its_results_along() -> None:
    first, second, third = Side(0), Side(1), Side(2)
    ref, other = first.join_of(3), first.join_of(1)
    parcels = [Parcel(1, ref), Parcel(2, ref), Parcel(4, ref), Parcel(8, other)]
    one, two, three, alone = second.bundles.take(0, first.bundles.give(1, parcels, is_answer=True))
    second.done(one)
    second.done(alone)
    work = second.bundles.give(2, [two, three], is_answer=False)
    assert work == WorkTransfer(1, False, ((2, 4),), 0, (MovedSlot(0, 0, 1, 0, (1,)),))
    assert (second.bundles.given, len(second.joins)) == (0, 0)
    # The remaining slot of the bundle has reached its time limit.
    assert second.bundles.results(0.0) == [(0, BundleResults(1, ((1, 8),)))]
    assert second.bundles.taken == 0
    for parcel in third.bundles.take(1, work):
        third.done(parcel)
    (dest, returns), *more = third.bundles.results(0.0)
    assert (dest, returns, more) == (0, BundleResults(1, ((0, 7),)), [])
    assert list(first.bundles.returned(returns)) == [(ref.number, 3, 7)]


def test_transferred_slots_of_one_bundle_return_together() -> None:
    first, second, third = Side(0), Side(1), Side(2)
    refs = [first.join_of(1) for _ in range(3)]
    given = first.bundles.give(1, [Parcel(n, ref) for n, ref in enumerate(refs)], is_answer=True)
    work = second.bundles.give(2, list(second.bundles.take(0, given))[1:], is_answer=True)
    assert [(move.bundle, move.slot) for move in work.moved] == [(1, 1), (1, 2)]
    one, two = third.bundles.take(1, work)
    third.done(one)
    assert third.bundles.results(0.0) == []
    third.done(two)
    assert third.bundles.results(0.0) == [(0, BundleResults(1, ((1, 1), (2, 2))))]


def test_part_of_a_slot_and_slots_of_the_thief_are_not_transferred() -> None:
    first, second = Side(0), Side(1)
    ref = first.join_of(2)
    parcels = [Parcel(1, ref), Parcel(2, ref)]
    one, two = second.bundles.take(0, first.bundles.give(1, parcels, is_answer=True))
    assert second.bundles.give(2, [one], is_answer=True).moved == ()
    assert second.bundles.given == 1
    whole = first.bundles.give(1, [Parcel(5, first.join_of(1))], is_answer=True)
    (back,) = second.bundles.take(0, whole)
    assert second.bundles.give(0, [back], is_answer=True).moved == ()
    assert second.bundles.give(2, [two], is_answer=True).moved == (), "its other item is not back"


@given(
    items=st.integers(1, 12),
    moves=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 12)), max_size=30),
    seed=st.integers(0, 999),
)
def test_items_that_travel_produce_one_result(
    items: int, moves: list[tuple[int, int]], seed: int
) -> None:
    """Ranks exchange items and process some of them until all are done."""
    rng, sides = Random(seed), [Side(rank) for rank in range(4)]
    ref = sides[0].join_of(items)
    held: list[list[Parcel[int]]] = [[Parcel(1 << n, ref) for n in range(items)], [], [], []]
    for step, count in [*moves, *((0, 1),) * 12 * 12]:
        source = rng.randrange(4)
        side, queue = sides[source], held[source]
        batch, held[source] = queue[:count], queue[count:]
        thief = (source + step) % 4
        if batch and thief != source:
            work = side.bundles.give(thief, batch, is_answer=False)
            held[thief] += sides[thief].bundles.take(source, work)
        for parcel in batch if thief == source else ():
            side.done(parcel)
        pass_on(sides)
        owed = len([1 for side in sides for number, join in side.joins.items() if join.parcel])
        assert owed == 1
        given, taken = (
            sum(getattr(side.bundles, what) for side in sides) for what in ("given", "taken")
        )
        assert given == taken
    while any(held):
        for side, queue in zip(sides, held, strict=True):
            while queue:
                side.done(queue.pop())
    pass_on(sides)
    join = sides[0].joins.peek(ref.number)
    assert (join.pending, join.merged) == (0, (1 << items) - 1)
    assert [len(side.joins) for side in sides] == [1, 0, 0, 0]


def pass_on(sides: list[Side]) -> None:
    """Deliver all results to their destinations."""
    now_s, carries = 0.0, True
    while carries or any(side.bundles.is_owing for side in sides):
        now_s, carries = now_s + 1, False
        for side in sides:
            for dest, returns in side.bundles.results(now_s):
                carries = True
                for join, count, value in sides[dest].bundles.returned(returns):
                    if sides[dest].joins.arrived(join, value, count).complete:
                        found = sides[dest].joins.close(join)
                        sides[dest].bundles.complete(join, found.merged)


def test_items_without_joins_return_nothing() -> None:
    victim, thief = Side(0), Side(1)
    work = victim.bundles.give(1, [Parcel(4, None), Parcel(5, None)], is_answer=True)
    assert work == WorkTransfer(0, True, ((4, 5),))
    assert list(thief.bundles.take(0, work)) == [Parcel(4, None), Parcel(5, None)]
    assert (victim.bundles.given, thief.bundles.taken, len(thief.joins)) == (0, 0, 0)
