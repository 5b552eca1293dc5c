"""The queue matches a list after any operations, and keeps few items in memory."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pcircle.circle.messages import Parcel
from pcircle.circle.queue import Queue


def parcels(numbers: range) -> list[Parcel[int]]:
    return [Parcel(number, None) for number in numbers]


class QueueAgainstList(RuleBasedStateMachine):
    """Items are numbers; the steal end is the start of the list, the own end its end."""

    def __init__(self) -> None:
        super().__init__()
        self.high = 8
        self.queue: Queue[int] = Queue(self.high)
        self.model: list[int] = []
        self.next = 0
        self.store: dict[int, tuple[Parcel[int], ...]] = {}
        self.reading: int | None = None

    def _keep_spills(self) -> None:
        for number, spilled in self.queue.spills:
            assert number not in self.store
            self.store[number] = spilled
        self.queue.spills.clear()

    @rule(count=st.integers(0, 25))
    def push(self, count: int) -> None:
        self.queue.push(parcels(range(self.next, self.next + count)))
        self.model += range(self.next, self.next + count)
        self.next += count
        self._keep_spills()

    @rule(count=st.integers(1, 6))
    def pop(self, count: int) -> None:
        for _ in range(count):
            parcel = self.queue.pop()
            if parcel is None:
                # The queue is empty, or a segment must be read first.
                assert not self.model or self.store or self.reading is not None
            else:
                assert parcel.item == self.model.pop()

    @rule(count=st.integers(1, 6))
    def steal(self, count: int) -> None:
        promised = self.queue.stealable()
        stolen = [parcel.item for parcel in self.queue.steal(count)]
        assert len(stolen) == min(promised, count)
        assert stolen == self.model[: len(stolen)]
        del self.model[: len(stolen)]

    @precondition(lambda self: self.reading is None)
    @rule()
    def fetch(self) -> None:
        self.reading = self.queue.fetch()
        assert (self.reading is not None) == self.queue.fetching
        assert self.reading is None or self.reading in self.store

    @precondition(lambda self: self.reading is not None)
    @rule()
    def fetched(self) -> None:
        assert self.reading is not None
        number, self.reading = self.reading, None
        self.queue.fetched(number, self.store.pop(number))
        self._keep_spills()

    @rule()
    def clear(self) -> None:
        for number in self.queue.clear():
            del self.store[number]
        # The reader discards the segment that is being read.
        self.store.pop(self.reading if self.reading is not None else -1, None)
        self.reading = None
        assert not self.store
        self.model.clear()

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.queue) == len(self.model)
        self.queue.check()

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.queue.in_memory <= 1.5 * self.high + self.high // 4

    def teardown(self) -> None:
        """Check that emptying it from the own end returns all items, in reverse."""
        while self.model:
            if self.reading is not None:
                self.fetched()
            parcel = self.queue.pop()
            if parcel is None:
                self.fetch()
                assert self.reading is not None, "an end is dry and nothing is read back"
            else:
                assert parcel.item == self.model.pop()
        assert self.queue.pop() is None
        assert self.queue.steal(1) == []
        super().teardown()


TestQueueAgainstList = QueueAgainstList.TestCase


def test_long_queue_keeps_only_its_ends_in_memory() -> None:
    queue: Queue[int] = Queue(64)
    segments: dict[int, tuple[Parcel[int], ...]] = {}
    most = 0
    for begin in range(0, 100_000, 50):
        queue.push(parcels(range(begin, begin + 50)))
        segments.update(queue.spills)
        queue.spills.clear()
        most = max(most, queue.in_memory)
    assert len(queue) == 100_000
    assert most <= 96
    assert queue.segments_made == len(segments)
    # Both ends hold items, so nothing is read.
    assert queue.steal(1)[0].item == 0
    last = queue.pop()
    assert last is not None
    assert last.item == 99_999


def test_a_thief_gets_spilled_parcels_in_order() -> None:
    queue: Queue[int] = Queue(8)
    segments: dict[int, tuple[Parcel[int], ...]] = {}
    queue.push(parcels(range(100)))
    segments.update(queue.spills)
    stolen: list[int] = []
    while len(stolen) < 100:
        stolen += [parcel.item for parcel in queue.steal(3)]
        number = queue.fetch()
        if number is not None:
            queue.fetched(number, segments.pop(number))
    assert stolen == list(range(100))
    assert not segments


def test_a_segment_that_is_read_too_late_returns_to_the_middle() -> None:
    """If the own end is emptied and refilled during the read, the order still holds."""
    queue: Queue[int] = Queue(4)
    queue.push(parcels(range(12)))
    segments = dict(queue.spills)
    queue.spills.clear()
    popped = []
    while (parcel := queue.pop()) is not None:
        popped.append(parcel.item)
    number = queue.fetch()
    assert number is not None
    late = segments.pop(number)
    queue.push(parcels(range(20, 32)))
    segments.update(queue.spills)
    queue.spills.clear()
    queue.fetched(number, late)
    assert queue.spills == [(number, late)]
    segments.update(queue.spills)
    queue.check()
    left = []
    while len(queue):
        while (parcel := queue.pop()) is not None:
            left.append(parcel.item)
        if (number := queue.fetch()) is not None:
            queue.fetched(number, segments.pop(number))
    assert left == sorted(left, reverse=True)
    assert sorted(popped + left) == [*range(12), *range(20, 32)]


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least four"):
        Queue(3)
    queue: Queue[int] = Queue(4)
    queue.push(parcels(range(20)))
    with pytest.raises(ValueError, match="was not asked for"):
        queue.fetched(0, [])
    while queue.pop() is not None:
        pass
    number = queue.fetch()
    assert number is not None
    with pytest.raises(ValueError, match="came back with"):
        queue.fetched(number, parcels(range(99)))
