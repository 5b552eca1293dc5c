"""SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGTSTP as events of the main loop.

The first SIGINT, SIGTERM or SIGHUP requests that the job stop: the handler only records the signal
and wakes the loop, which informs all ranks. A second SIGINT ends the process at once, unless it
arrives within half a second, because some launchers deliver a single Ctrl-C twice.

SIGUSR1 requests a line about the job's progress, as with dd. On Ctrl-Z (SIGTSTP), the terminal is
restored before the process is suspended.

If a program has called a tool, the program can stop the job too. The signal that stopped the job is
recorded for the program, and a second SIGINT raises KeyboardInterrupt.

A forked rank starts with these signals blocked, so that none is lost before the handlers are
installed. It also ends with them blocked, because the job's exit code is final by then.
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

from pcircle.core.errors import Interrupted, Terminated
from pcircle.core.writing import CALLER

_SAME_S = 0.5

CODES = {
    signal.SIGINT: Interrupted.exit_code,
    signal.SIGTERM: Terminated.exit_code,
    signal.SIGHUP: Terminated.exit_code,
}


class Signals:
    """A context in which `pending` is the first signal that requested a stop, or None.

    `asked` is set by SIGUSR1, and `suspended` by SIGTSTP after `handle_suspends`. On threads other
    than the main thread, no signals are handled.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.pending: signal.Signals | None = None
        self.asked: bool = False
        self.suspended: bool = False
        self._wake = wake
        self._since_s = 0.0
        self._raises = False
        self._former: dict[signal.Signals, Any] = {}
        self._held: set[int | signal.Signals] = set()  # the signal mask outside the context
        self._caller = CALLER.get()
        self._is_cancelled = False
        self._end_watch: Callable[[], None] | None = None

    def __enter__(self) -> Signals:
        if self._caller is not None:
            self._end_watch = self._caller.watch(self._cancel)
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread can handle signals
        for number in (*CODES, signal.SIGUSR1):
            # Under nohup, SIGHUP must remain ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._handle)
        self._held = signal.pthread_sigmask(signal.SIG_UNBLOCK, (*CODES, signal.SIGUSR1))
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._end_watch is not None:
            self._end_watch()
        if self._caller is not None and not self._is_cancelled:
            self._caller.signal = self.pending
        if threading.current_thread() is not threading.main_thread():
            return
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held)
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def handle_suspends(self) -> None:
        """From now on, set `suspended` on SIGTSTP; the loop must then call `suspend`."""
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        ):
            self._former[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._handle)

    def suspend(self) -> float:
        """Stop the process as SIGTSTP does; return the seconds until SIGCONT."""
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
                if self._caller is not None:
                    raise KeyboardInterrupt
                os._exit(Interrupted.exit_code)
        elif self.pending is None:
            self._since_s = now_s
            self.pending = signal.Signals(number)
        self._wake()
        if self._raises:
            self.check()

    def _cancel(self) -> None:
        """Stop the job, as the program requests. May be called on any thread."""
        if self.pending is None:
            self._is_cancelled, self.pending = True, signal.SIGINT
            self._wake()

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise the signal's error inside the block, because the loop is not running yet."""
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def check(self) -> None:
        """Raise Interrupted or Terminated if a stop signal arrived before the job began."""
        if self.pending is not None:
            error = Interrupted if self.pending is signal.SIGINT else Terminated
            raise error(f"{self.reason} before the job began")

    @property
    def reason(self) -> str:
        """Return why the job stops."""
        name = "" if self.pending is None else self.pending.name
        return f"stopped by {'the program' if self._is_cancelled else name}"

    @property
    def code(self) -> int | None:
        """The exit code for the pending signal, or None."""
        return None if self.pending is None else CODES[self.pending]
