"""Ending a wait from elsewhere: a pipe that a worker thread or a signal makes readable.

The idea: a rank waits in one system call for its peers; a pipe in the same wait lets a worker
thread end it.  A flag beside the pipe lets a thousand wakes between two polls cost one write, and
a poll that doesn't wait cost none.

A pipe and not an eventfd, for the sake of signals: Python runs a handler between bytecodes, so a
signal that lands just before the wait begins would be handled only when the wait ends.  The
interpreter closes that gap by writing one byte to a descriptor of our choice, which an eventfd
doesn't take.

What this is not: a queue.  It says that there is something to look at, never what.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress

__all__ = ["Wakeup"]

_DRAIN_BYTES = 4096
# poll() counts in milliseconds; select() is precise, but takes only descriptors below this.
_POLL_RESOLUTION_S = 1e-3
_SELECT_LIMIT = 1024


class Wakeup:
    """A flag that can be waited for by descriptor; the main thread's also catches signals."""

    __slots__ = ("_closed", "_former_signal_fd", "_lock", "_poll", "_set", "_write_fd", "fd")

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)
        self._set = False
        self._closed = False
        # Held while the pipe is written and while it is closed: a worker that wakes too late
        # must never write into whatever file got the descriptor's number next.  Reentrant,
        # because a signal handler may call set() while its own thread is in here.
        self._lock = threading.RLock()
        self._former_signal_fd: int | None = None
        if threading.current_thread() is threading.main_thread():
            self._former_signal_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def set(self) -> None:
        """Make ``fd`` readable; from any thread, from signal handlers, and after ``close``."""
        if self._set:
            return
        with self._lock:
            if not self._set:
                self._set = True
                # A full pipe (of signals) is readable already.
                with suppress(BlockingIOError):
                    os.write(self._write_fd, b"\0")

    def is_set(self) -> bool:
        """Whether ``set`` was called since ``clear``; signals don't show here."""
        return self._set

    def clear(self) -> None:
        """Make ``fd`` unreadable again; whoever clears must then look at everything.

        The flag falls after the pipe is empty: in the other order a set() in between would leave
        a risen flag over an empty pipe, and no wake would ever come through again.
        """
        with self._lock:
            if self._closed:
                return
            # Nothing to read: only the flag was up, or a signal's byte was taken before.
            with suppress(BlockingIOError):
                os.read(self.fd, _DRAIN_BYTES)
            self._set = False

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until set, a signal, or *timeout_s* seconds are over; whether it was a wake."""
        if timeout_s is None:
            return bool(self._poll.poll(None))
        if timeout_s < _POLL_RESOLUTION_S and self.fd < _SELECT_LIMIT:
            return bool(select.select([self.fd], [], [], timeout_s)[0])
        return bool(self._poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """Release both descriptors; a later ``set`` does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._set = True  # what makes set() return before it writes
            if self._former_signal_fd is not None:
                signal.set_wakeup_fd(self._former_signal_fd)
            os.close(self._write_fd)
            os.close(self.fd)
