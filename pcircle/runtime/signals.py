"""Signals as events of the loop, and reports of exceptions that no code expects.

The first SIGINT, SIGTERM or SIGHUP requests that the job stop: the handler only records it and
wakes the loop, which informs all ranks. A second SIGINT ends the process at once, unless it arrives
within half a second, because some launchers deliver a single Ctrl-C twice.

SIGUSR1 requests a line about the job's progress, as with dd. Ctrl-Z (SIGTSTP) suspends the process
after the terminal has been restored.

A forked rank starts with these signals blocked, so that a signal that arrives before it has
handlers is not lost; it also ends with them blocked, because the job's exit code is settled by
then.

For a defect of a tool, a report is written to a file that the user can send in. For a bug in a
user's own task, the traceback is printed on standard error, once, even if every rank has met it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pcircle.core.errors import Defect, Interrupted, Terminated, package_problem
from pcircle.core.writing import write_all
from pcircle.transport._exit import print_error

_SAME_S = 0.5

CODES = {
    signal.SIGINT: Interrupted.exit_code,
    signal.SIGTERM: Terminated.exit_code,
    signal.SIGHUP: Terminated.exit_code,
}


class Signals:
    """While entered, `pending` is the first signal that stops the job, or None.

    `asked` is set by SIGUSR1, and `suspended` by SIGTSTP after `hear_suspends`. On a thread other
    than the main thread no signals are handled.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.pending: signal.Signals | None = None
        self.asked = False
        self.suspended = False
        self._wake = wake
        self._since_s = 0.0
        self._raises = False
        self._former: dict[signal.Signals, Any] = {}
        self._held: set[int | signal.Signals] = set()  # while not entered

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread can handle signals
        for number in (*CODES, signal.SIGUSR1):
            # SIGHUP stays ignored under nohup.
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
        """Handle SIGTSTP from now on: set `suspended`, for a caller of `suspend`."""
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
                os._exit(Interrupted.exit_code)
        elif self.pending is None:
            self._since_s = now_s
            self.pending = signal.Signals(number)
        self._wake()
        if self._raises:
            self.check()

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise the signal's error inside the block, which may wait long without a loop."""
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
            raise error(f"stopped by {self.pending.name} before the job began")

    @property
    def code(self) -> int | None:
        """The exit code that the pending signal stands for."""
        return None if self.pending is None else CODES[self.pending]


# ---- reports of exceptions -----------------------------------------------------------------------


def write_report(error: BaseException, doing: str) -> str:
    """Write the error with its traceback to a new file; return a sentence that names the file."""
    import platform
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    facts = f"python {platform.python_version()} on {platform.platform()}\n{sys.argv!r}\n"
    summary = f"{type(error).__name__}: {error}"
    try:
        directory = report_directory()
        os.makedirs(directory, 0o700, exist_ok=True)
        descriptor, path = tempfile.mkstemp(".txt", "pcircle-defect-", directory)
        try:
            whole = f"{facts}while {doing}\n\n{text}"
            write_all(descriptor, whole.encode(errors="backslashreplace"))
        finally:
            os.close(descriptor)
    except OSError as trouble:
        return f"{summary} (no report could be written: {trouble})\n{text}"
    return f"{summary}; a report is in {path}"


def report_directory() -> str:
    """Return the directory of reports, which does not depend on the working directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "pcircle")


class CrashReporter:
    """Reports unexpected exceptions of a tool in a file, which the message names."""

    def package_problem(self, error: BaseException) -> str:
        """Return what is wrong with a required package, if that is the cause."""
        return package_problem(error)

    def explain(self, error: BaseException, doing: str) -> str:
        """Return the reason why the job ends, for rank 0 to print."""
        return write_report(error, doing)

    def late(self, rank: int, reason: str, code: int) -> None:
        """Print a reason that came too late for rank 0; `code` is the job's exit code so far."""
        print_error(f"rank {rank}: {reason}")


_MAX_DOING = 300  # characters: an item may be long
_BEGIN = "Traceback (most recent call last):\n"


class TracebackReporter(CrashReporter):
    """Reports unexpected exceptions of a user's own task: the user sees the traceback."""

    def package_problem(self, error: BaseException) -> str:
        """Return nothing: the task may import the same packages."""
        return ""

    def explain(self, error: BaseException, doing: str) -> str:
        """Return the traceback, below a description of what was being done."""
        import traceback

        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return f"exception while {_short(doing)}:\n{''.join(lines).rstrip()}"

    def late(self, rank: int, reason: str, code: int) -> None:
        """Print the reason, but not what several ranks have met at the same time."""
        if code != Defect.exit_code:
            super().late(rank, reason, code)


def without_repeated_tracebacks(reasons: Sequence[str]) -> list[str]:
    """Return the reasons to print for the author of a task: of the tracebacks only the first."""
    tracebacks = [reason for reason in reasons if _BEGIN in reason]
    shown = [reason for reason in reasons if reason not in tracebacks]
    if tracebacks:
        shown.append(tracebacks[0])
    if len(tracebacks) > 1:
        ends = {reason.rpartition("\n")[2] for reason in tracebacks}
        description = "the same" if len(ends) == 1 else "another exception"
        shown.append(f"(and {description} on {len(tracebacks) - 1} other ranks or items)")
    return shown


def _short(doing: str) -> str:
    return doing if len(doing) <= _MAX_DOING else doing[:_MAX_DOING] + "..."
