"""The simulated network itself: its guarantees, and its documented bad behaviour.

The contract suite covers what it shares with the other transports; these tests cover virtual time,
order under the worst delays, ranks that are stuck, slow or killed, and the end of a run.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from pcircle.core.errors import Defect
from pcircle.transport._sim import Conditions, Kill, Network, SimTransport, Stall
from pcircle.transport.contract import Delivery, LostRank

pytestmark = pytest.mark.sim

Steps = Generator[float | None, list[Delivery | LostRank], Any]
NASTY = Conditions(
    jitter=100.0, tail=0.3, tail_s=0.5, burst=0.05, burst_s=2.0, lame=0.3, start_s=0.1
)


def network(ranks: int, conditions: Conditions, seed: int = 0, **options: Any) -> Network:
    return Network([0] * ranks, Random(seed), conditions, **options)


def sleeper(t: SimTransport) -> Steps:
    return (yield 1.0), t.now_s


def collector(t: SimTransport) -> Steps:
    """Collect on rank 0 what all other ranks send, in order of arrival."""
    if t.rank:
        for number in range(50):
            t.send(0, number)
            if number % 7 == 0:
                yield 0.01
        return None
    came: list[tuple[int, int]] = []
    while len(came) < 50 * (t.size - 1):
        for arrival in (yield None):
            assert isinstance(arrival, Delivery)
            came.append((arrival.source, int(arrival.payload)))
    return came


@pytest.mark.parametrize("seed", range(20))
def test_order_holds_per_pair_and_not_across(seed: int) -> None:
    came = network(5, NASTY, seed).run([collector] * 5)[0]
    for source in range(1, 5):
        assert [number for other, number in came if other == source] == list(range(50))
    assert came != sorted(came, key=lambda pair: pair[1])
    assert came != sorted(came)


def test_time_is_virtual_and_exact() -> None:
    assert network(1, Conditions(step_s=0.0)).run([sleeper]) == [([], 1.0)]


def test_same_seed_same_run() -> None:
    assert network(4, NASTY, 7).run([collector] * 4) == network(4, NASTY, 7).run([collector] * 4)
    assert network(4, NASTY, 7).run([collector] * 4) != network(4, NASTY, 8).run([collector] * 4)


def test_ranks_of_a_node_are_near() -> None:
    def ping(t: SimTransport) -> Steps:
        if t.rank == 0:
            t.send(1, b"near")
            t.send(2, b"far")
            return None
        yield None
        return t.now_s

    conditions = Conditions(near_s=0.001, far_s=1.0, jitter=0.0)
    _, near_s, far_s = Network([0, 0, 1], Random(0), conditions).run([ping] * 3)
    assert (near_s, far_s) == (0.001, 1.0)


def test_stalled_rank_makes_no_step() -> None:
    times: list[float] = []

    def ticking(t: SimTransport) -> Steps:
        while t.now_s < 10.0:
            times.append(t.now_s)
            yield 0.1

    network(1, Conditions(stalls=(Stall(0, 2.0, 5.0),))).run([ticking])
    assert not [time_s for time_s in times if 2.0 <= time_s < 5.0]
    assert sum(time_s < 2.0 for time_s in times) in (20, 21)
    assert 5.0 in times


def test_slow_rank_takes_longer_for_a_step() -> None:
    def busy(t: SimTransport) -> Steps:
        for _ in range(100):
            yield 0
        return t.now_s

    quick_s, slow_s = network(2, Conditions(step_s=0.001, slow=((1, 0.1),))).run([busy] * 2)
    assert quick_s == pytest.approx(0.1)
    assert slow_s == pytest.approx(10.0)


def test_killed_rank_is_lost_once_after_its_messages() -> None:
    def talk(t: SimTransport) -> Steps:
        if t.rank == 0:
            while True:
                t.send(1, b"word")
                t.send(2, b"word")
                yield 0.001
        heard: list[Any] = []
        while not heard or not isinstance(heard[-1], LostRank):
            heard += yield None
        heard += yield 5.0
        return heard

    conditions = Conditions(tail=0.5, tail_s=0.1, kills=(Kill(0, 1.0, "killed"),))
    dead, *survivors = network(3, conditions).run([talk] * 3)
    assert dead is None
    for heard in survivors:
        assert heard.index(LostRank(0, "killed")) == len(heard) - 1
        assert heard.count(Delivery(0, b"word")) > 500


def test_deadlock_and_lateness_are_defects() -> None:
    def wait(t: SimTransport) -> Steps:
        yield None

    def spin(t: SimTransport) -> Steps:
        while True:
            yield 0.5

    with pytest.raises(Defect, match="ranks 0, 1 wait forever"):
        network(2, Conditions()).run([wait] * 2)
    with pytest.raises(Defect, match="have not ended after"):
        network(2, Conditions(), limit_s=100.0).run([wait, spin])


def test_abort_ends_all_ranks_at_once() -> None:
    def stop(t: SimTransport) -> Steps:
        yield 1.0
        if t.rank == 2:
            t.abort(70)
        yield 1.0
        return "ended"

    sim = network(4, Conditions())
    assert sim.run([stop] * 4) == [None] * 4
    assert sim.aborted == (2, 70)
    assert sim.now_s < 1.1


def test_wake_ends_a_wait_of_another_or_the_next_of_ones_own() -> None:
    transports: list[SimTransport] = []

    def woken(t: SimTransport) -> Steps:
        transports.append(t)
        if t.rank == 1:
            yield 3.0
            transports[0].wake()
            return None
        assert (yield None) == []
        first_s = t.now_s
        t.wake()
        t.wake()
        assert (yield None) == []
        second_s = t.now_s
        assert (yield 1.0) == []
        return first_s, second_s, t.now_s

    first_s, second_s, third_s = network(2, Conditions(step_s=0.0)).run([woken] * 2)[0]
    assert first_s == second_s == 3.0
    assert third_s == 4.0


def test_unreceived_messages_are_left() -> None:
    def send(t: SimTransport) -> Steps:
        if t.rank == 0:
            yield 1.0
            t.send(1, "late")
        else:
            t.close()
        return None

    sim = network(2, Conditions())
    sim.run([send] * 2)
    assert sim.left() == [(0, 1, "late")]


def test_sizes_are_counted_by_pair_and_take_time() -> None:
    def sender(t: SimTransport) -> Steps:
        if t.rank == 0:
            t.send(1, b"x" * 1000)
            t.send(1, b"y" * 500)
            return None
        came = yield None
        return t.now_s, [*came, *(yield None)]

    conditions = Conditions(near_s=0.5, byte_s=0.001, jitter=0.0)
    net = network(2, conditions, size_bytes=len)
    at_s, _ = net.run([sender, sender])[1]
    assert at_s == pytest.approx(1.5)
    assert net.pair_messages == [[0, 2], [0, 0]]
    assert net.pair_bytes == [[0, 1500], [0, 0]]
