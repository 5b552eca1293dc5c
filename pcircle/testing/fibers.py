"""The threads of one simulated rank: its main thread and its workers, in virtual time.

Each thread is a `Stepwise`. Only one of them runs at a time, until it waits for a message, for a
call, or for time to pass. The work between two waits takes no virtual time. The order in which the
threads resume depends only on the drawn times.

During a simulation, `time.sleep`, `time.monotonic` and `time.perf_counter` use the virtual clock on
these threads, and the real clock on all other threads.

A `Stepwise` is a call that can be suspended at any depth of its stack and resumed later. It runs on
its own thread, but never at the same time as its owner: one of the two is always waiting for the
other. The order of events is therefore deterministic, and a seed defines one run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import TypeVar

from pcircle.transport._sim import SimTransport
from pcircle.transport.contract import Delivery, LostRank

T = TypeVar("T")

_TICK_S = 1e-6  # the shortest pause; without it, a loop that waits for the clock would not end
_FIRST_S = 1000.0  # the initial time; real clocks do not start at 0


class CurrentFiber(threading.local):
    """The identity of the running thread; `rank_fibers` is None outside a simulation."""

    rank_fibers: RankFibers | None = None
    number = 0  # of this worker
    is_main = False


class Fiber:
    """One thread of a rank. `due_s` is when it resumes unless it is woken earlier."""

    def __init__(self, steps: Stepwise) -> None:
        self.steps = steps
        self.due_s: float = 0.0
        self.ended = False


class RankFibers:
    """The threads of one rank. `item_s` is the average duration of an item.

    `arrivals` contains the messages that the main thread has not taken yet.
    """

    def __init__(
        self, here: CurrentFiber, transport: SimTransport, rng: Random, item_s: float
    ) -> None:
        self.here = here
        self.transport = transport
        self.arrivals: list[Delivery | LostRank] = []
        self._rng = rng
        self._item_s = item_s
        self._woken = False
        self._due: list[tuple[float, int, Fiber]] = []
        self._serial = 0
        self._fibers: list[Fiber] = []
        self._current: Fiber | None = None
        self._main: Fiber | None = None
        self._ignores_messages = False  # the main thread is sleeping, and no message wakes it

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return _FIRST_S + self.transport.now_s

    # ---- for the network -------------------------------------------------------

    def play(self, main: Callable[[], T]) -> Generator[float | None, list[Delivery | LostRank], T]:
        """Run the rank's program: its main thread, and the fibers that it starts."""
        values: list[T] = []
        first = self._main = self.begin(lambda: values.append(main()), is_main=True)
        try:
            while True:
                self._advance(first)
                if first.ended:
                    return values[0]
                due_s = min(first.due_s, self._due[0][0] if self._due else inf)
                arrivals = yield None if due_s == inf else max(0.0, due_s - self.now_s)
                self.arrivals += arrivals
                self._woken = self._woken or bool(arrivals)
        finally:
            self.close()

    def _advance(self, main: Fiber) -> None:
        """Run all fibers that are due."""
        while not main.ended:
            if (self._woken and not self._ignores_messages) or main.due_s <= self.now_s:
                self._woken = False
                main.due_s = self._step(main)
            elif self._due and self._due[0][0] <= self.now_s:
                fiber = heappop(self._due)[2]
                self._push(fiber, self._step(fiber))
            else:
                return

    def _step(self, fiber: Fiber) -> float:
        """Run a fiber until it waits; return when it resumes unless it is woken earlier."""
        self._current = fiber
        wait_s = fiber.steps.step()
        self._current = None
        if wait_s is None:
            fiber.ended = True
            return inf
        return self.now_s + max(wait_s, _TICK_S)

    def _push(self, fiber: Fiber, due_s: float) -> None:
        if due_s < inf:
            self._serial += 1
            heappush(self._due, (due_s, self._serial, fiber))

    def close(self) -> None:
        """Abandon all fibers, because the job has ended or the rank was killed."""
        for fiber in self._fibers:
            self._current = fiber
            fiber.steps.close()
        self._current = None
        self._fibers.clear()

    # ---- for threads -----------------------------------------------------------

    def begin(self, work: Callable[[], None], number: int = 0, *, is_main: bool = False) -> Fiber:
        """Start a fiber."""

        def run() -> None:
            here = self.here
            here.rank_fibers, here.number, here.is_main = self, number, is_main
            work()

        fiber = Fiber(Stepwise(run, lambda value: None))
        self._fibers.append(fiber)
        if not is_main:
            self._push(fiber, self.now_s)
        return fiber

    def pause(self, wait_s: float) -> None:
        """Let time pass; called on any fiber."""
        if self._current is not None:
            self._current.steps.pause(wait_s)

    def sleep(self, wait_s: float) -> None:
        """Let time pass even if messages arrive; called on any fiber."""
        self._ignores_messages = self.here.is_main
        self.pause(wait_s)
        self._ignores_messages = False

    def pause_randomly(self, share: float = 1.0) -> None:
        """Let a random time pass on a worker, possibly none; do nothing on the main thread.

        The average is half of the average item's duration, times `share`.
        """
        if not self.here.is_main:
            often = self._rng.random() < 0.5
            self.pause(share * self._item_s * self._rng.expovariate(1.0) if often else 0.0)

    def resume(self, fiber: Fiber) -> None:
        """Resume a fiber that is waiting indefinitely."""
        self._push(fiber, self.now_s)

    # ---- for the main thread ----------------------------------------------------

    def wake(self) -> None:
        """Wake the main thread."""
        self._woken = True

    def wait(self, timeout_s: float | None) -> None:
        """Wait for a message, for `wake` or for the timeout; called on the main thread."""
        if not self.arrivals and not self._woken:
            self.pause(inf if timeout_s is None else timeout_s)
        self._woken = False

    def taken(self) -> list[Delivery | LostRank]:
        """Return the messages that have arrived, and forget them."""
        arrivals, self.arrivals = self.arrivals, []
        return arrivals


@contextmanager
def virtual_time(here: CurrentFiber) -> Iterator[None]:
    """Replace the clocks of `time` with virtual clocks on the threads of the simulation."""
    sleep, monotonic, perf_counter = time.sleep, time.monotonic, time.perf_counter

    def slept(seconds: float) -> None:
        rank_fibers = here.rank_fibers
        sleep(seconds) if rank_fibers is None else rank_fibers.sleep(seconds)

    def clock(real: Callable[[], float]) -> Callable[[], float]:
        def virtual_clock() -> float:
            rank_fibers = here.rank_fibers
            if rank_fibers is None:
                return real()
            if not here.is_main:
                rank_fibers.pause(_TICK_S)
            return rank_fibers.now_s

        return virtual_clock

    changed: dict[str, Callable[[float], None] | Callable[[], float]] = {
        "sleep": slept,
        "monotonic": clock(monotonic),
        "perf_counter": clock(perf_counter),
    }
    before = {name: getattr(time, name) for name in changed}
    try:
        for name, function in changed.items():
            setattr(time, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(time, name, function)


class StopCall(BaseException):
    """Raised in a suspended call to unwind it, because it was abandoned."""


class Stepwise:
    """A call that can be suspended and resumed, on a thread that alternates with its owner."""

    def __init__(self, work: Callable[[], object], ended: Callable[[object], None]) -> None:
        self._work = work
        self._when_ended = ended
        self._turn, self._back = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._back.acquire()
        self._wait_s: float | None = None
        self._error: BaseException | None = None
        self._value: object = None
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def step(self) -> float | None:
        """Resume the call; return how long it pauses next, or None if it has ended.

        Raise the exception of the call, if any.
        """
        if self._thread.ident is None:
            self._thread.start()
        self._wait_s = None
        self._turn.release()
        self._back.acquire()
        if self._wait_s is None:
            self._thread.join()
            if self._error is not None:
                raise self._error
            self._when_ended(self._value)
        return self._wait_s

    def pause(self, wait_s: float) -> None:
        """Suspend the call for a virtual time; called on its own thread."""
        if self._over:
            raise StopCall
        self._wait_s = wait_s
        self._back.release()
        self._turn.acquire()
        if self._over:
            raise StopCall

    def close(self) -> None:
        """Abandon the call."""
        if self._thread.ident is None or not self._thread.is_alive():
            return
        self._over = True
        self._turn.release()
        self._thread.join()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            self._value = self._work()
        except StopCall:
            pass  # the run was abandoned; the value is not needed
        except BaseException as error:
            self._error = error
        self._wait_s = None
        self._back.release()
