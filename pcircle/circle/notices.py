"""Notices from ranks to rank 0: batched, acknowledged and, on request, recorded.

Failures are not sent as separate messages. If 40,000 files were unreadable, 40,000 messages would
delay the work, and unread messages would fill rank 0's memory. So the worker threads of a rank add
notices to an `Outbox`, and the rank sends them in batches, in order.

A rank has at most one batch in flight, because it sends the next batch only after rank 0 has
processed and acknowledged the previous one. Batches shrink as the number of ranks grows: with up to
2048 ranks, those in flight hold about `MAX_IN_FLIGHT_BYTES` at most. If a worker produces notices
faster than rank 0 can process them, the runtime blocks the worker (see
`pcircle.runtime.worker_channel`). The first notice after a pause is sent immediately. Later ones
wait until they fill a batch, or until `age_s` after the previous batch.

A thread can also wait until rank 0 has *recorded* its notices: a change, for example, must not be
made before its undo information is on disk. Such notices are sent immediately, and rank 0 writes
all batches that have arrived to disk together before it acknowledges them. If it cannot write them,
it refuses these batches and all later ones.

The alternatives are worse. Without acknowledgements, rank 0 would need a limit on its receive
memory, which MPI does not provide. Spilling notices to a file on each rank would block no worker,
but a job that is killed would then leave most failures unreported.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

MAX_IN_FLIGHT_BYTES = 16 << 20  # of all notices in flight to rank 0; see `pack_bytes`
PACK_BYTES = 256 << 10
_SMALLEST_PACK_BYTES = 8 << 10
_AGE_S = 0.1
_ANSWERS_PER_S = 5000  # acknowledgements that rank 0 sends at most while no batch is full


def pack_bytes(ranks: int) -> int:
    """Return the maximum size of a batch in a job with this number of ranks."""
    return max(_SMALLEST_PACK_BYTES, min(PACK_BYTES, MAX_IN_FLIGHT_BYTES // ranks))


def age_s(ranks: int) -> float:
    """Return how long a notice may wait for others in a job with this number of ranks."""
    return _AGE_S + ranks / _ANSWERS_PER_S


class Outbox:
    """The notices of one rank that are not sent yet, in order. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[object, int]] = deque()
        self._open = False
        self._waiters = 0
        self._had_waiters = False
        self._recorded = 0  # number of values recorded since the start
        self._awaited = 0  # number of values whose recording threads are waiting for
        self.size_bytes: int = 0
        self.added: int = 0  # number of values added since the start

    def add(self, value: object, size_bytes: int) -> int:
        """Append a value of this size and return the size of everything before it."""
        with self._changed:
            before = self.size_bytes
            self._waiting.append((value, size_bytes))
            self.added += 1
            self.size_bytes = before + size_bytes
        return before

    def take(self, limit_bytes: int) -> tuple[object, ...]:
        """Remove and return the oldest values up to this size, but at least one if there is any."""
        taken: list[object] = []
        remaining_bytes = limit_bytes
        with self._changed:
            waiting = self._waiting
            while waiting and (waiting[0][1] <= remaining_bytes or not taken):
                value, size_bytes = waiting.popleft()
                taken.append(value)
                remaining_bytes -= size_bytes
                self.size_bytes -= size_bytes
            self._changed.notify_all()
        return tuple(taken)

    def __len__(self) -> int:
        return len(self._waiting)

    def await_room(self, limit_bytes: int) -> None:
        """Block until the outbox holds at most this many bytes, or until `let_go`."""
        with self._changed:
            self._waiters += 1
            while self.size_bytes > limit_bytes and not self._open:
                self._had_waiters = True
                self._changed.wait()
            self._waiters -= 1

    def had_waiters(self) -> bool:
        """Return whether any thread has waited for room since the last call."""
        with self._changed:
            had, self._had_waiters = self._had_waiters, self._waiters > 0
            return had

    @property
    def is_urgent(self) -> bool:
        """Return whether a thread is waiting until its notices are recorded."""
        return self._awaited > self._recorded

    def await_record(self, wake: Callable[[], None]) -> bool:
        """Block until all values added so far are recorded; return False if they never will be.

        `wake` makes the owner of the outbox check which notices to send.
        """
        with self._changed:
            number = self._awaited = self.added
            while self._recorded < number and not self._open:
                wake()
                self._changed.wait()
            return self._recorded >= number

    def recorded(self, number: int) -> None:
        """Note that rank 0 has recorded the first `number` values."""
        with self._changed:
            if number > self._recorded:
                self._recorded = number
                self._changed.notify_all()

    def let_go(self) -> None:
        """Release all waiting threads and let no thread wait from now on."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


class NoticeSender:
    """Decides when a rank's batches are sent; performs no I/O."""

    def __init__(self, outbox: Outbox, rank: int, size: int) -> None:
        self._outbox = outbox
        self._pack_bytes = pack_bytes(size)
        self._age_s = age_s(size) if rank else _AGE_S
        self._is_root = rank == 0  # rank 0 acknowledges its own batches
        self._answered = True
        self._sent = 0  # number of values sent since the start
        self.heard: int = 0  # number of values that rank 0 has acknowledged
        self.is_refused: bool = False  # rank 0 could not record a batch
        self._due_s = 0.0  # when a batch that is not full is sent

    @property
    def settled(self) -> bool:
        """Return whether all notices are sent and acknowledged."""
        return self._answered and not self._outbox

    def packs(self, now_s: float, *, hurry: bool) -> Iterator[tuple[object, ...]]:
        """Yield the batches to send now. With `hurry`, no batch waits for more notices."""
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
        """Note that rank 0 has processed, or `refused`, the batch in flight."""
        self._answered = True
        self.is_refused = self.is_refused or refused
        self.heard = self._sent

    def wakeup_s(self) -> float | None:
        """Return when `packs` must be called if nothing else happens, or None."""
        if not (self._answered and self._outbox):
            return None
        return 0.0 if self._outbox.is_urgent else self._due_s
