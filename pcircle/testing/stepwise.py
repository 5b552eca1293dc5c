"""A call that can be left in its middle and continued later, however deep it is by then.

It has a thread of its own, which never runs beside its owner: one of the two always waits for the
other. So what it does comes in one order, and a seed is still one run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Ended(BaseException):
    """The job is over, and nobody waits for this call."""


class Stepwise:
    """A call that can be left and continued: on a thread that never runs beside its owner."""

    def __init__(self, work: Callable[[], Any], ended: Callable[[Any], None]) -> None:
        self._work = work
        self._when_ended = ended
        self._turn, self._back = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._back.acquire()
        self._wait_s: float | None = None
        self._error: BaseException | None = None
        self._value: Any = None
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def step(self) -> float | None:
        """Go on; how long it pauses then, None if it has ended. What the work raises."""
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
        """On its thread: have the simulation go on for so long."""
        if self._over:
            raise Ended
        self._wait_s = wait_s
        self._back.release()
        self._turn.acquire()
        if self._over:
            raise Ended

    def close(self) -> None:
        """Leave it for good."""
        if self._thread.ident is None or not self._thread.is_alive():
            return
        self._over = True
        self._turn.release()
        self._thread.join()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            self._value = self._work()
        except Ended:
            pass  # the run was given up, and nobody waits for this value
        except BaseException as error:
            self._error = error
        self._wait_s = None
        self._back.release()
