"""The guarantees of `pcircle.transport.contract`, one by one, on every transport."""

from __future__ import annotations

import zlib

import pytest

from tests.contract.transport import bodies
from tests.contract.transport.jobs import Job, on_every, on_real

MEGABYTE = 1_000_000
# Around the limits: a socket's buffer, MPI's eager sends, a fragment.
SIZES_BYTES = [0, 1, 65_535, 0, MEGABYTE, 65_536, 2**20, 2**20 + 1, 16 * 2**20 + 1, 7, 262_144]


@on_every(1, 2, 3)
def test_delivers_every_size_whole_and_in_order(job: Job) -> None:
    expected = [bodies.checksums(job.size, rank, SIZES_BYTES) for rank in range(job.size)]
    assert job.run(bodies.exchange, SIZES_BYTES) == expected


@pytest.mark.slow
@on_every(2)
def test_hundred_megabytes_both_ways_at_once(job: Job) -> None:
    sizes_bytes = [5, 100 * MEGABYTE, 5]
    expected = [bodies.checksums(job.size, rank, sizes_bytes) for rank in range(job.size)]
    assert job.run(bodies.exchange, sizes_bytes) == expected


@on_every(1, 2, 3, 4, 5, 6, 7, 8)
def test_all_to_all(job: Job) -> None:
    sizes_bytes = [10, 0, 300_000, 1]
    expected = [bodies.checksums(job.size, rank, sizes_bytes) for rank in range(job.size)]
    assert job.run(bodies.exchange, sizes_bytes) == expected


@on_every(1, 2, 4)
def test_order_holds_per_pair_while_all_send_and_poll(job: Job) -> None:
    per_source = [list(range(60))] * job.size
    assert job.run(bodies.interleave, 60) == [per_source] * job.size


@on_real(2)
def test_short_messages_do_not_overtake_long_ones_of_a_busy_sender(job: Job) -> None:
    sent, received = job.run(bodies.distracted)
    assert received == sent


@on_every(1, 2, 4)
def test_delivers_once(job: Job) -> None:
    assert job.run(bodies.nothing_more) == [0] * job.size


@on_every(1, 2)
def test_messages_to_oneself(job: Job) -> None:
    assert job.run(bodies.to_oneself) == [["first", "", "third"]] * job.size


@on_every(2, 4)
def test_questions_and_answers(job: Job) -> None:
    assert job.run(bodies.answer) == [30] * job.size


@on_every(1, 2, 4)
def test_ranks_and_nodes_are_numbered(job: Job) -> None:
    described = job.run(bodies.describe)
    assert [rank for rank, _, _ in described] == list(range(job.size))
    assert {size for _, size, _ in described} == {job.size}
    nodes = described[0][2]
    assert all(other == nodes for _, _, other in described)
    assert len(nodes) == job.size
    # Numbered in the order of first appearance, without gaps.
    assert list(dict.fromkeys(nodes)) == list(range(max(nodes) + 1))


@on_real(1, 2)
def test_a_rank_outside_the_job_is_rejected(job: Job) -> None:
    assert job.run(bodies.reject) == [2] * job.size


@on_every(1, 2)
def test_polls_return_nothing_at_their_timeout(job: Job) -> None:
    assert job.run(bodies.quiet) == [[0, 0, 0, 0]] * job.size


@on_real(1, 2)
def test_poll_uses_its_time(job: Job) -> None:
    assert min(job.run(bodies.lasting, 0.1)) >= 0.1


@on_real(1, 2)
def test_poll_zero_does_not_wait(job: Job) -> None:
    # A waiting process goes to sleep; involuntary context switches do not count.
    assert max(job.run(bodies.sleepless)) < 50


@pytest.mark.slow
@on_real(1, 2, 8)
def test_idle_ranks_cost_nearly_nothing(job: Job) -> None:
    for wakes_per_s, share in job.run(bodies.idle, 1.0):
        assert wakes_per_s < 100
        assert share < 0.5, "it never sleeps"


@on_real(1, 2)
def test_wake_ends_the_next_poll_and_only_that(job: Job) -> None:
    assert job.run(bodies.woken_before) == [[[], [], True]] * job.size


@on_real(1, 2)
def test_a_thread_wakes(job: Job) -> None:
    assert job.run(bodies.woken_by_thread) == ["woken"] * job.size


@on_real(1, 2)
def test_a_signal_handler_wakes(job: Job) -> None:
    assert job.run(bodies.woken_by_signal) == [4] * job.size


@on_real(1, 2)
def test_a_late_wake_touches_nothing(job: Job) -> None:
    assert job.run(bodies.woken_after_close) == [0] * job.size


@on_real(2, 4)
def test_messages_sent_before_close_arrive(job: Job) -> None:
    size_bytes = 10 * MEGABYTE
    expected = [
        [0, zlib.crc32(bodies.payload_of(0, rank, 0, size_bytes))] for rank in range(1, job.size)
    ]
    assert job.run(bodies.last_words, size_bytes) == [None, *expected]


@on_every(1, 2, 4)
def test_unreceived_messages_block_no_rank(job: Job) -> None:
    assert job.run(bodies.unheard) == ["ended"] * job.size


@on_every(2, 4)
def test_ranks_may_end_one_by_one(job: Job) -> None:
    assert job.run(bodies.staggered) == ["ended"] * job.size
