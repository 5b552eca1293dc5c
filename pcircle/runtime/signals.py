"""SIGINT, SIGTERM and SIGHUP as events of the loop.

The first one asks the job to stop: the handler only takes a note and wakes
the loop, which tells all ranks. A second SIGINT, from somebody who has had
enough, ends the process at once; unless it comes within half a second, as
some launchers deliver the one that was typed twice.

A forked rank begins with them held, so that one that comes before it has
handlers is heard, and ends so: then the job's end is settled already.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pcircle.errors import Interrupted, Terminated

_SAME_S = 0.5

CODES = {
    signal.SIGINT: Interrupted.exit_code,
    signal.SIGTERM: Terminated.exit_code,
    signal.SIGHUP: Terminated.exit_code,
}


class Signals:
    """While entered, `pending` is the first stop signal that came, else None.

    Entered on another thread than the main one, nothing is heard.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.pending: signal.Signals | None = None
        self._wake = wake
        self._since_s = 0.0
        self._raises = False
        self._former: dict[signal.Signals, Any] = {}
        self._held: set[Any] = set()  # while not entered

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self  # which alone hears signals, and may do something else
        for number in CODES:
            # A command under nohup ignores SIGHUP: leave it so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._handle)
        self._held = signal.pthread_sigmask(signal.SIG_UNBLOCK, CODES)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held)
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.pending is signal.SIGINT and number == signal.SIGINT:
            if now_s - self._since_s > _SAME_S:
                os._exit(Interrupted.exit_code)
        elif self.pending is None:
            self._since_s = now_s
            self.pending = signal.Signals(number)
        self._wake()
        if self._raises:
            self.check()

    @contextmanager
    def raised(self) -> Iterator[None]:
        """What is within ends with the signal's error: it may wait long, and has no loop."""
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def check(self) -> None:
        """Interrupted or Terminated if a stop signal came before the job began."""
        if self.pending is not None:
            error = Interrupted if self.pending is signal.SIGINT else Terminated
            raise error(f"stopped by {self.pending.name} before the job began")

    @property
    def code(self) -> int | None:
        """The exit code that the pending signal stands for."""
        return None if self.pending is None else CODES[self.pending]
