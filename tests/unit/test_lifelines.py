"""Lifelines: registration of ranks, the choice of a waiting rank, and no lost registrations."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.stealing import Lifelines


@given(size=st.integers(1, 300))
def test_lifelines_are_symmetric_and_reach_every_rank(size: int) -> None:
    ranks = [Lifelines(rank, size) for rank in range(size)]
    reached, waiting = {0}, [0]
    while waiting:
        rank = waiting.pop()
        for neighbour in ranks[rank].neighbours:
            assert rank in ranks[neighbour].neighbours
            if neighbour not in reached:
                reached.add(neighbour)
                waiting.append(neighbour)
    assert len(reached) == size
    most = (size - 1).bit_length()
    assert all(len(lines.neighbours) <= most for lines in ranks)


def test_at_the_start_the_largest_subtree_is_served_first() -> None:
    ranks = [Lifelines(rank, 64) for rank in range(64)]

    def below(rank: int) -> int:
        return 1 + sum(below(other) for other in ranks[rank].waiters)

    for lines in ranks:
        sizes = [below(other) for other in lines.waiters]
        assert sizes == sorted(sizes)
    assert below(ranks[0].newest()) == 32


@pytest.mark.parametrize("size", [2, 3, 8, 100, 1000])
def test_at_the_start_work_reaches_all_ranks_in_log2_steps(size: int) -> None:
    """No rank registers, and half of the work goes to the newest waiter at each step."""
    ranks = [Lifelines(rank, size) for rank in range(size)]
    has, step = {0: 1 << 60}, {0: 0}
    queue = deque([0])
    while queue:
        rank = queue.popleft()
        while ranks[rank].has_waiters and has[rank] > 1:
            taker = ranks[rank].newest()
            ranks[rank].gave(taker)
            ranks[taker].got(rank)
            given = (has[rank] + 1) // 2
            has[rank] -= given
            if taker not in has:
                step[taker] = step[rank] + 1
                queue.append(taker)
            has[taker] = has.get(taker, 0) + given
    assert len(has) == size
    assert max(step.values()) <= (size - 1).bit_length()


def test_a_waiter_is_served_once_and_registers_again() -> None:
    giver, taker = Lifelines(0, 2), Lifelines(1, 2)
    assert giver.newest() == 1
    giver.gave(1)
    assert not giver.has_waiters
    taker.got(0)
    assert taker.waits_at == frozenset()
    assert taker.register(()) == [0]
    assert taker.register(()) == [], "once"
    giver.add_waiter(1)
    assert giver.newest() == 1


def test_the_newest_waiter_is_served_first() -> None:
    lines = Lifelines(0, 16)
    for rank in (1, 2, 4, 8):
        assert lines.newest() == rank
        lines.gave(rank)
    for rank in (2, 8, 2):
        lines.add_waiter(rank)
    assert lines.waiters == (8, 2)


def test_lost_ranks_get_no_registration() -> None:
    lines = Lifelines(0, 8)
    for rank in (1, 2, 4):
        lines.got(rank)
    assert lines.register({2}) == [1, 4]
    assert lines.register(()) == [2]


@given(seed=st.integers(0, 10**6), size=st.integers(2, 9))
def test_a_waiting_rank_is_registered_or_will_be(seed: int, size: int) -> None:
    """Registrations and transfers interleave in any order, with any delays on each edge."""
    rng = Random(seed)
    ranks = [Lifelines(rank, size) for rank in range(size)]
    edges: dict[tuple[int, int], deque[str]] = {}
    for _ in range(150):
        rank = rng.randrange(size)
        lines, move = ranks[rank], rng.choice(("tell", "push", "answer", "arrive", "arrive"))
        if move == "tell":
            for other in lines.register(()):
                edges.setdefault((rank, other), deque()).append("wait")
        elif move in ("push", "answer") and (move == "answer" or lines.has_waiters):
            other = lines.newest() if move == "push" else rng.choice(lines.neighbours)
            lines.gave(other)
            edges.setdefault((rank, other), deque()).append("work")
        elif move == "arrive" and any(edges.values()):
            source, dest = rng.choice([edge for edge, flying in edges.items() if flying])
            if edges[source, dest].popleft() == "wait":
                ranks[dest].add_waiter(source)
            else:
                ranks[dest].got(source)
        for waits, waiting in enumerate(ranks):
            for other in waiting.waits_at:
                known = waits in ranks[other].waiters
                coming = "wait" in edges.get((waits, other), ())
                assert known or coming or "work" in edges.get((other, waits), ())
