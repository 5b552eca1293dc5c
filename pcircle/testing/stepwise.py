"""A call that can be suspended at any depth of its stack and resumed later.

It runs on a thread of its own, but never at the same time as its owner: one of the two always waits
for the other. The order of events is therefore deterministic, and a seed defines one run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class StopCall(BaseException):
    """The job has ended, and no result of this call is needed."""


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
