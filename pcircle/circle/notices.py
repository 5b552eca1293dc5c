"""What ranks tell rank 0 at once, packed, and no faster than rank 0 takes it in.

A failure is no message: where 40,000 files can't be read, 40,000 messages keep
every rank from its work, and rank 0's memory fills with what it has not read
yet. So what a rank has to tell waits in an `Outbox`, which its worker threads
write to, and leaves as packs, in the order in which it was told.

A rank has one pack under way at most: rank 0 answers each, once it has dealt
with it, and only then may the next one leave. So what is on its way to rank 0
is no more than a pack of each rank, `TOGETHER_BYTES` of them all, and who tells
more than rank 0 can take in waits for it (the runtime stops the worker that
does, see `pcircle.runtime.line`). The first notice after a silence leaves at
once; others wait until they fill a pack, or for `age_s` since the last one left.

A thread may also wait until rank 0 has *recorded* what it told, as a change must not be made before
it can be undone: what was told then leaves at once, and rank 0 brings all packs that have come to
disk together before it answers them. If it can't, it refuses them, and all that come later.

The alternatives cost more. Leaving out the answers needs a bound on memory at
rank 0 that MPI doesn't have. Spilling what waits to a file of each rank lets
nobody wait, but then an end that comes early finds most failures unsaid.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

TOGETHER_BYTES = 16 << 20  # on their way to rank 0, of all ranks
PACK_BYTES = 256 << 10
_SMALLEST_PACK_BYTES = 8 << 10
_AGE_S = 0.1
_ANSWERS_PER_S = 5000  # that rank 0 should have to give at the most, when no pack is full


def pack_bytes(ranks: int) -> int:
    """How large a pack may be in a job of so many ranks."""
    return max(_SMALLEST_PACK_BYTES, min(PACK_BYTES, TOGETHER_BYTES // ranks))


def age_s(ranks: int) -> float:
    """How long a notice may wait for others in a job of so many ranks."""
    return _AGE_S + ranks / _ANSWERS_PER_S


class Outbox:
    """What one rank has to tell, in order. Any thread may use it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Any, int]] = deque()
        self._open = False
        self._waiters = 0
        self._had_waiters = False
        self._recorded = 0  # values, ever
        self._wanted = 0  # by those who wait for them to be recorded
        self.size_bytes = 0
        self.added = 0  # values, ever

    def add(self, value: Any, size_bytes: int) -> int:
        """One more, of this size; the size of all before it."""
        with self._changed:
            before = self.size_bytes
            self._waiting.append((value, size_bytes))
            self.added += 1
            self.size_bytes = before + size_bytes
        return before

    def take(self, limit_bytes: int) -> tuple[Any, ...]:
        """The oldest ones, up to this size, but one at least if there are any."""
        taken: list[Any] = []
        rest = limit_bytes
        with self._changed:
            waiting = self._waiting
            while waiting and (waiting[0][1] <= rest or not taken):
                value, size_bytes = waiting.popleft()
                taken.append(value)
                rest -= size_bytes
                self.size_bytes -= size_bytes
            self._changed.notify_all()
        return tuple(taken)

    def __len__(self) -> int:
        return len(self._waiting)

    def await_room(self, limit_bytes: int) -> None:
        """Wait until it holds no more than this, or nobody is to wait any more."""
        with self._changed:
            self._waiters += 1
            while self.size_bytes > limit_bytes and not self._open:
                self._had_waiters = True
                self._changed.wait()
            self._waiters -= 1

    def had_waiters(self) -> bool:
        """Whether anybody has waited for room since this was asked last."""
        with self._changed:
            had, self._had_waiters = self._had_waiters, self._waiters > 0
            return had

    @property
    def is_urgent(self) -> bool:
        """Whether a thread waits until what it told is recorded."""
        return self._wanted > self._recorded

    def await_record(self, wake: Callable[[], None]) -> bool:
        """Wait until all that was added is recorded; False if it never will be.

        `wake` makes the owner look at what should leave now.
        """
        with self._changed:
            number = self._wanted = self.added
            while self._recorded < number and not self._open:
                wake()
                self._changed.wait()
            return self._recorded >= number

    def recorded(self, number: int) -> None:
        """Rank 0 has recorded so many values."""
        with self._changed:
            if number > self._recorded:
                self._recorded = number
                self._changed.notify_all()

    def let_go(self) -> None:
        """No thread is to wait from now on."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


class Flow:
    """When a rank's packs leave, by the rules above; pure."""

    def __init__(self, outbox: Outbox, rank: int, size: int) -> None:
        self._outbox = outbox
        self._pack_bytes = pack_bytes(size)
        self._age_s = age_s(size) if rank else _AGE_S
        self._is_root = rank == 0  # which answers itself
        self._answered = True
        self._sent = 0  # values, ever
        self.heard = 0  # of these by rank 0
        self.is_refused = False  # rank 0 could not record some
        self._due_s = 0.0  # of a pack that is not full

    @property
    def settled(self) -> bool:
        """Nothing is left to tell, and rank 0 has heard all that was told."""
        return self._answered and not self._outbox

    def packs(self, now_s: float, *, hurry: bool) -> Iterator[tuple[Any, ...]]:
        """What should leave now; with `hurry` nothing waits for more."""
        outbox = self._outbox
        while self._answered and outbox:
            waits = now_s < self._due_s and not (hurry or outbox.is_urgent)
            if outbox.size_bytes < self._pack_bytes and waits:
                return
            self._answered = self._is_root
            self._due_s = now_s + self._age_s
            values = outbox.take(self._pack_bytes)
            self._sent += len(values)
            yield values
            if self._is_root:
                self.heard = self._sent

    def answered(self, *, refused: bool = False) -> None:
        """Rank 0 has dealt with the pack, or `refused` it."""
        self._answered = True
        self.is_refused = self.is_refused or refused
        self.heard = self._sent

    def wakeup_s(self) -> float | None:
        """When `packs` should be asked again although nothing happened."""
        if not (self._answered and self._outbox):
            return None
        return 0.0 if self._outbox.is_urgent else self._due_s
