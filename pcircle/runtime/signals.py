"""SIGINT, SIGTERM and SIGHUP as events of the loop; SIGUSR1 and SIGTSTP as well.

The first one asks the job to stop: the handler only takes a note and wakes
the loop, which tells all ranks. A second SIGINT, from somebody who has had
enough, ends the process at once; unless it comes within half a second, as
some launchers deliver the one that was typed twice.

SIGUSR1 asks for a line about how far the job is, as of dd; and Ctrl-Z (SIGTSTP) to stop, when
what is on the terminal has been put in order.

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
    """While entered, `pending` is the first signal that came to end the job, else None.

    `asked`: SIGUSR1 came, and `suspended`: SIGTSTP did, where that is heard (`hear_suspends`).

    Entered on another thread than the main one, nothing is heard.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.pending: signal.Signals | None = None
        self.asked = False
        self.suspended = False
        self._wake = wake
        self._since_s = 0.0
        self._raises = False
        self._former: dict[signal.Signals, Any] = {}
        self._held: set[Any] = set()  # while not entered

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self  # which alone hears signals, and may do something else
        for number in (*CODES, signal.SIGUSR1):
            # A command under nohup ignores SIGHUP: leave it so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._handle)
        self._held = signal.pthread_sigmask(signal.SIG_UNBLOCK, (*CODES, signal.SIGUSR1))
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held)
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def hear_suspends(self) -> None:
        """From now on SIGTSTP is for who looks at `suspended`, and calls `suspend`."""
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        ):
            self._former[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._handle)

    def suspend(self) -> float:
        """Stop as SIGTSTP does; for how many seconds, when SIGCONT has come."""
        self.suspended = False
        began_s = time.monotonic()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        return time.monotonic() - began_s

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGUSR1, signal.SIGTSTP):
            self.asked = self.asked or number == signal.SIGUSR1
            self.suspended = self.suspended or number == signal.SIGTSTP
            self._wake()
            return
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
