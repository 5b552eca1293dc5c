"""A rank's queue of parcels: the rank works at one end, thieves steal from the other.

The rank's own end is last-in first-out. So a walk is depth first, and holds the siblings along one
path in memory, not a whole level of the tree. The steal end is first-in first-out, so its parcels
are nearest the root and therefore usually the largest. Both ends are in memory. Beyond a threshold
the *middle* is spilled as segments to external storage and read back, in order, when an end is
empty. Unless a thief has requested more (`gathers`), a queue therefore holds at most about `1.75 *
high` parcels in memory.

    steal end                                                own end
    head (memory) | segment | segment | ... | segment | tail (memory)

This is pure bookkeeping. `spills` and `fetch` report which segments the caller must write or read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic

from pcircle.circle.messages import I, Parcel


class Queue(Generic[I]):
    """A queue of parcels whose middle can be spilled.

    `high` is the number of parcels that the own end may hold in memory. When it holds more, it
    passes the oldest on, a quarter of `high` at a time.
    """

    def __init__(self, high: int = 512) -> None:
        if high < 4:
            raise ValueError("a queue holds at least four parcels in memory")
        self._high = high
        self._segment = high // 4
        self._head: deque[Parcel[I]] = deque()
        self._tail: deque[Parcel[I]] = deque()
        self._segments: deque[tuple[int, int]] = deque()  # (number, parcels), steal end first
        self._next_segment = 0
        self._spilled = 0  # parcels in segments, including the segment being fetched
        self._requested = 0  # parcels requested at the steal end if it lacks them, else 0
        self._max_wanted = 0
        self._fetching: tuple[int, int, bool] | None = None  # (number, parcels, for the own end)
        self.spills: list[tuple[int, tuple[Parcel[I], ...]]] = []

    def __len__(self) -> int:
        return len(self._head) + self._spilled + len(self._tail)

    @property
    def in_memory(self) -> int:
        """The number of parcels that are not in segments."""
        return len(self._head) + len(self._tail)

    @property
    def fetching(self) -> bool:
        """Return whether a segment is being read back, so that an end may have to wait."""
        return self._fetching is not None

    @property
    def segments_made(self) -> int:
        """The number of segments spilled so far."""
        return self._next_segment

    def push(self, parcels: Iterable[Parcel[I]]) -> None:
        """Add parcels at the own end; segments that this spills are appended to `spills`."""
        tail = self._tail
        tail.extend(parcels)
        while len(tail) > self._high:
            moved = [tail.popleft() for _ in range(self._segment)]
            middle_empty = not self._segments and self._fetching is None
            if middle_empty and len(self._head) < self._segment:
                self._head.extend(moved)
            else:
                number = self._next_segment
                self._next_segment += 1
                self._segments.append((number, len(moved)))
                self._spilled += len(moved)
                self.spills.append((number, tuple(moved)))

    def pop(self) -> Parcel[I] | None:
        """Remove and return the parcel at the own end, or None if no parcel is in memory there."""
        if self._tail:
            return self._tail.pop()
        if self._segments or self._fetching:
            return None
        return self._head.pop() if self._head else None

    def steal(self, count: int) -> list[Parcel[I]]:
        """Remove and return up to `count` parcels that are in memory at the steal end."""
        self._requested = 0
        count = min(count, self.stealable())
        head, tail = self._head, self._tail
        stolen = [head.popleft() for _ in range(min(count, len(head)))]
        return stolen + [tail.popleft() for _ in range(count - len(stolen))]

    def stealable(self) -> int:
        """Return the number of parcels that `steal` could return now."""
        middle = self._segments or self._fetching
        return len(self._head) + (0 if middle else len(self._tail))

    def gathers(self, count: int) -> bool:
        """Request `count` parcels at the steal end; return whether segments must be read first."""
        if len(self._head) >= count or not self._segments:
            return False
        self._requested = count
        self._max_wanted = max(self._max_wanted, count)  # the thief may take fewer
        return True

    def fetch(self) -> int | None:
        """Return the number of the segment to read back now, or None, and mark it as being read.

        Only one segment is read at a time. The own end has priority, because a worker is waiting.
        """
        if self._fetching is not None or not self._segments:
            return None
        if not self._tail:
            number, count = self._segments.pop()
            own = True
        elif not self._head or len(self._head) < self._requested:
            number, count = self._segments.popleft()
            own = False
        else:
            return None
        self._fetching = (number, count, own)
        return number

    def fetched(self, number: int, parcels: Iterable[Parcel[I]]) -> None:
        """Return a segment's parcels to memory, or spill them again if newer ones were spilled."""
        if self._fetching is None or self._fetching[0] != number:
            raise ValueError(f"segment {number} was not asked for")
        _, count, own = self._fetching
        self._fetching = None
        parcels = tuple(parcels)
        if len(parcels) != count:
            raise ValueError(f"segment {number} came back with {len(parcels)} of {count} parcels")
        if own and self._segments and self._segments[-1][0] > number:
            # The own end has meanwhile spilled newer segments, so this one belongs to the middle.
            older = sum(other < number for other, _ in self._segments)
            self._segments.insert(older, (number, count))
            self.spills.append((number, parcels))
            return
        self._spilled -= count
        if own:
            self._tail.extendleft(reversed(parcels))
        else:
            self._head.extend(parcels)

    def clear(self) -> list[int]:
        """Drop everything and return the numbers of the segments that are no longer needed.

        A segment that is being read is not included, because the reader discards it.
        """
        dropped = [number for number, _ in self._segments]
        self._head.clear()
        self._tail.clear()
        self._segments.clear()
        self._spilled = 0
        self._fetching = None
        self._requested = 0
        self.spills.clear()
        return dropped

    def check(self) -> None:
        """Raise AssertionError unless the invariants hold."""
        coming = self._fetching[1] if self._fetching else 0
        assert self._spilled == coming + sum(count for _, count in self._segments)
        assert len(self._head) <= (self._max_wanted // self._segment + 2) * self._segment
        assert len(self._tail) <= self._high + self._segment
        assert all(count > 0 for _, count in self._segments)
        numbers = [number for number, _ in self._segments]
        assert numbers == sorted(numbers), "segments out of order"
