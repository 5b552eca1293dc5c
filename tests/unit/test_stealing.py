"""Work stealing: victims, pauses and shares."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.instructions import EngineSettings
from pcircle.circle.joins import Joins
from pcircle.circle.messages import Message, Parcel, StealRefusal, StealRequest, WorkTransfer
from pcircle.circle.queue import Queue
from pcircle.circle.stealing import (
    SPLITS,
    NearestVictims,
    RandomVictims,
    Thief,
    VictimPolicy,
    WorkSharing,
    equal_share,
    random_share,
    victims_of,
)
from pcircle.circle.topology import Locality

seeds = st.integers(0, 10_000)


@given(stealable=st.integers(1, 5000), seed=seeds, split=st.sampled_from(sorted(SPLITS)))
def test_a_share_is_between_one_and_all(stealable: int, seed: int, split: str) -> None:
    assert 1 <= SPLITS[split](stealable, Random(seed)) <= stealable


@given(stealable=st.integers(1, 5000))
def test_equal_share_leaves_as_much_as_it_takes(stealable: int) -> None:
    share = equal_share(stealable, Random(0))
    assert share - (stealable - share) in (0, 1)


def test_random_share_is_spread_over_all_shares() -> None:
    rng = Random(1)
    assert {random_share(4, rng) for _ in range(200)} == {1, 2, 3, 4}


def test_a_thief_waits_after_its_attempts() -> None:
    thief = Thief(RandomVictims(1, 9), 3, Random(4))
    thief.fed()
    for _ in range(3):
        assert not thief.waits
        assert thief.ask(1.0, ()) is not None
        assert thief.ask(1.0, ()) is None, "one at a time"
        thief.refused()
    assert thief.waits
    assert thief.ask(1.0, ()) is None


@pytest.mark.parametrize("fed", [False, True])
def test_a_waiting_thief_sends_one_more_request(fed: bool) -> None:
    thief, now_s, times_s = Thief(RandomVictims(1, 9), 1, Random(4)), 5.0, []
    assert not thief.registers, "at the start it is known"
    if fed:
        thief.fed()
        assert thief.ask(now_s, ()) is not None
        thief.refused()
    while thief.ask(now_s, ()) is None and thief.ask_at_s is not None:
        now_s = thief.ask_at_s
        assert thief.ask(now_s, ()) is not None
        times_s.append(now_s)
        thief.refused()
    (asked_s,) = times_s
    assert 5.1 < asked_s < 5.4
    assert thief.ask(now_s + 100, ()) is None
    assert thief.registers
    thief.fed()
    assert not thief.registers
    assert thief.ask(now_s + 100, ()) is not None, "what it had wakes it"


def whom(victims: VictimPolicy, rng: Random) -> int:
    """Return the next victim."""
    request = victims.choose(rng)
    assert request is not None
    return request[0]


@given(size=st.integers(2, 50), seed=seeds, data=st.data())
def test_random_victims_are_all_other_ranks(size: int, seed: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, size - 1))
    victims, rng = RandomVictims(rank, size), Random(seed)
    asked = [whom(victims, rng) for _ in range(size * 20)]
    assert rank not in asked
    assert set(asked) <= set(range(size))
    assert size > 5 or len(set(asked)) == size - 1


def test_a_single_rank_has_no_victims() -> None:
    assert RandomVictims(0, 1).choose(Random(0)) is None
    assert NearestVictims(Locality(0, [0])).choose(Random(0)) is None


@given(nodes=st.lists(st.integers(0, 4), min_size=2, max_size=30), seed=seeds)
def test_there_is_always_a_victim(nodes: list[int], seed: int) -> None:
    rng = Random(seed)
    for rank in range(len(nodes)):
        victims = NearestVictims(Locality(rank, nodes))
        for _ in range(10):
            assert whom(victims, rng) != rank
            victims.refused()


def test_only_leaders_send_requests_to_other_nodes() -> None:
    nodes, rng = [0, 0, 0, 1, 1, 1], Random(3)
    for rank in (1, 2, 4, 5):
        victims = NearestVictims(Locality(rank, nodes))
        for _ in range(30):
            assert nodes[whom(victims, rng)] == nodes[rank]
            victims.refused()


def test_a_leader_alternates_between_its_node_and_others() -> None:
    nodes, rng = [0, 0, 0, 1, 1], Random(3)
    victims = NearestVictims(Locality(0, nodes))
    for last_answer in ("work", "refusal"):
        assert whom(victims, rng) in (1, 2)
        assert not victims.refused(), "the next request is to follow at once"
        assert victims.choose(rng) in ((3, StealRequest()), (4, StealRequest()))
        if last_answer == "work":
            victims.served()
        else:
            assert victims.refused(), "now it is time to wait"
    assert whom(victims, rng) in (1, 2)


def test_other_ranks_make_their_leader_pass_requests_on() -> None:
    nodes, rng = [0, 1, 1, 1, 0], Random(3)
    victims = NearestVictims(Locality(3, nodes))
    firsts = set()
    for _ in range(30):
        first = victims.choose(rng)
        assert first in ((2, StealRequest()), (1, StealRequest(onward=True)))
        firsts.add(first)
        if first == (2, StealRequest()):
            assert not victims.refused()
            assert victims.choose(rng) == (1, StealRequest(onward=True))
        assert victims.refused(), "the leader has asked for us: now it is time to wait"
    assert len(firsts) == 2
    leader = NearestVictims(Locality(1, nodes))
    assert {leader.outward(rng) for _ in range(50)} == {0, 4}


def test_on_one_node_no_request_is_passed_on() -> None:
    victims, rng = NearestVictims(Locality(1, [0, 0, 0])), Random(5)
    for _ in range(5):
        assert victims.choose(rng) in ((0, StealRequest()), (2, StealRequest()))
        assert victims.refused()
    assert NearestVictims(Locality(0, [0, 0, 0])).outward(rng) is None


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_alone_on_its_node_requests_from_other_nodes(rank: int) -> None:
    victims = NearestVictims(Locality(rank, [0, 1]))
    for _ in range(4):
        assert whom(victims, Random(0)) == 1 - rank
        assert victims.refused()
        assert whom(victims, Random(0)) == 1 - rank
        victims.served()


@pytest.mark.parametrize(
    ("nodes", "policy"),
    [
        ([0], RandomVictims),
        ([0, 0, 0], RandomVictims),
        ([0, 1, 2], RandomVictims),
        ([0, 1, 1], NearestVictims),
        ([0, 0, 1, 1], NearestVictims),
    ],
)
def test_auto_prefers_the_nearest_on_shared_nodes(nodes: list[int], policy: type) -> None:
    assert type(victims_of("auto", Locality(0, nodes))) is policy
    assert type(victims_of("random", Locality(0, nodes))) is RandomVictims
    assert type(victims_of("nearest", Locality(0, nodes))) is NearestVictims


def test_a_leader_without_work_passes_on_only_requests_for_another_node() -> None:
    queue, joins = Queue[int](), Joins[int, int](operator.add)
    settings = EngineSettings(victims="nearest")
    leader = WorkSharing(Locality(0, [0, 0, 1]), settings, queue, joins, Random(3))
    refusal = [(1, StealRefusal())]
    assert leader.answer(1, StealRequest(), works=True, lost=()) == refusal
    assert leader.answer(1, StealRequest(onward=True), works=False, lost=()) == refusal
    passed_on = [(2, StealRequest(thief=1))]
    assert leader.answer(1, StealRequest(onward=True), works=True, lost=()) == passed_on


def _remaining(sent: Iterable[tuple[int, Message]]) -> list[int]:
    return [message.remaining for _, message in sent if isinstance(message, WorkTransfer)]


def test_no_more_parcels_are_announced_than_there_are() -> None:
    queue, joins = Queue[int](), Joins[int, int](operator.add)
    sharing = WorkSharing(Locality(0, [0] * 8), EngineSettings(), queue, joins, Random(3))
    queue.push([Parcel(1, None), Parcel(2, None)])
    sharing.got(3, WorkTransfer(0, False, (), remaining=8))
    sharing.lifelines.add_waiter(1)
    assert _remaining(sharing.serve()) == [3], "half of ten parcels, of which two are sent"
    sharing.got(3, WorkTransfer(0, False, ((7,),)))
    queue.push([Parcel(7, None)])  # the other parcels were processed here
    assert _remaining(sharing.serve()) == [0]
