"""Wake-ups: a pipe through which a worker thread or a signal ends a wait.

A rank waits for its peers in a single system call. A pipe that is part of this wait lets a worker
thread end it. A flag reduces any number of wake-ups between two polls to one write, and lets a poll
that need not wait skip the pipe.

It is a pipe and not an eventfd because of signals: Python runs a handler between bytecodes, so a
signal that arrives just before the wait would be handled only when the wait ends. The interpreter
closes that gap by writing one byte to a descriptor (`signal.set_wakeup_fd`), which must not be an
eventfd.

This is not a queue: it reports that something has happened, not what.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress

_DRAIN_BYTES = 4096
# poll() has a resolution of milliseconds; select() is precise, but limited to small descriptors.
_POLL_RESOLUTION_S = 1e-3
_SELECT_LIMIT = 1024


class Wakeup:
    """A flag to wait for through a descriptor; on the main thread, a signal ends the wait too."""

    __slots__ = ("_closed", "_former_signal_fd", "_lock", "_poll", "_set", "_write_fd", "fd")

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)
        self._set = False
        self._closed = False
        # Held during each write to the pipe and while it is closed: a late wake-up must never write
        # to another file that has reused the descriptor's number. Reentrant, because a signal
        # handler may call set() on a thread that already holds it.
        self._lock = threading.RLock()
        self._former_signal_fd: int | None = None
        if threading.current_thread() is threading.main_thread():
            self._former_signal_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def set(self) -> None:
        """Make `fd` readable; callable on any thread, in signal handlers, and after `close`."""
        if self._set:
            return
        with self._lock:
            if not self._set:
                self._set = True
                # A pipe that is full of signals' bytes is already readable.
                with suppress(BlockingIOError):
                    os.write(self._write_fd, b"\0")

    def is_set(self) -> bool:
        """Return whether `set` was called since `clear`; signals are not included."""
        return self._set

    def clear(self) -> None:
        """Make `fd` unreadable again; the caller must then check all sources of events.

        The flag is reset after the pipe is empty. In the other order a `set` in between would leave
        the flag set and the pipe empty, and all later wakes would be lost.
        """
        with self._lock:
            if self._closed:
                return
            # The pipe is empty if only the flag was set, or a signal's byte was read before.
            with suppress(BlockingIOError):
                os.read(self.fd, _DRAIN_BYTES)
            self._set = False

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for `set` or a signal; return False if neither came within *timeout_s* seconds."""
        if timeout_s is None:
            return bool(self._poll.poll(None))
        if timeout_s < _POLL_RESOLUTION_S and self.fd < _SELECT_LIMIT:
            return bool(select.select([self.fd], [], [], timeout_s)[0])
        return bool(self._poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """Release both descriptors; a later `set` does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._set = True  # so that set() returns before it writes
            if self._former_signal_fd is not None:
                signal.set_wakeup_fd(self._former_signal_fd)
            os.close(self._write_fd)
            os.close(self.fd)
