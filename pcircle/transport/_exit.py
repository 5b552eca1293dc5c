"""How a rank's process ends when its body didn't return a code, and what it leaves behind.

The idea: an exception that leaves a rank's body has nobody above it to catch it: not in a forked
child, which must never return into its parent's code, nor under MPI, where a rank that just
unwinds leaves the others hanging.  Both ask here what to print and which code it means.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import termios
import threading
import time
from array import array
from contextlib import suppress

from pcircle.errors import Defect, Interrupted, PcircleError, StoppedEarly, package_problem

__all__ = [
    "explain_escape",
    "flush_standard_streams",
    "let_go",
    "program_name",
    "say",
    "signal_at_end_of",
    "wait_until_read",
]

_PR_SET_PDEATHSIG = 1
_READ_WITHIN_S = 1.0
_STANDARD = 3  # descriptors


def explain_escape(error: BaseException, rank: int) -> int:
    """Say on standard error what *error* left the body of *rank*; the exit code it stands for.

    A PcircleError is one line and its own code, an interrupt (no handler was installed yet) is
    silent, anything else is a defect with its traceback.
    """
    if isinstance(error, KeyboardInterrupt):
        return Interrupted.exit_code
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    if isinstance(error, PcircleError):
        say(f"rank {rank}: {error}")
        return error.exit_code
    if problem := package_problem(error):
        say(f"rank {rank}: {problem}")
        return StoppedEarly.exit_code
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    say(f"rank {rank}: {text.rstrip()}")
    return Defect.exit_code


def program_name() -> str:
    """Return the name of the command, or of the script that runs jobs of its own."""
    path = sys.argv[0] if sys.argv else ""
    folder, name = os.path.split(path)
    if name == "__main__.py":  # python -m pcircle.fcp
        name = os.path.basename(folder)
    return name.removesuffix(".py") if name not in ("", "-c", "-m") else "pcircle"


def say(text: str, name: str = "") -> None:
    """Print a line on standard error that begins with *name*, by default the program's."""
    # A closed standard error must not change how a process ends.
    with suppress(OSError, ValueError, AttributeError):
        print(f"{name or program_name()}: {text}", file=sys.stderr, flush=True)


def flush_standard_streams() -> None:
    """Write out what is buffered, as far as somebody still reads it."""
    for stream in (sys.stdout, sys.stderr):
        # A reader that went away (OSError) or a stream that is closed or None must not keep an
        # ending process from ending.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def let_go(kept: int = -1) -> None:
    """Close all descriptors but one, if there are threads that may outlive this process's end.

    One that hangs in the kernel keeps them open, and whoever reads a pipe to its end waits. The
    others work until the process ends: no number becomes free, or what one of them opens now could
    be what another one writes to. All calls on these numbers fail.
    """
    if threading.active_count() == 1:
        return
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(_STANDARD):
            os.dup2(null, fd)
        nothing = os.open(os.devnull, os.O_PATH)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd >= _STANDARD and fd not in (kept, nothing):
                os.dup2(nothing, fd)


def wait_until_read() -> None:
    """Where standard error is a launcher's pipe: until all in it was read, for a second at most.

    A launcher that is told to end all ranks may do so without another look into their pipes: the
    reason was lost in one of ten runs on a busy machine.
    """
    until_s = time.monotonic() + _READ_WITHIN_S
    with suppress(OSError):
        while stat.S_ISFIFO(os.fstat(2).st_mode) and time.monotonic() < until_s:
            waiting = array("i", [0])
            fcntl.ioctl(2, termios.FIONREAD, waiting)
            if not waiting[0]:
                return
            time.sleep(0.001)


def signal_at_end_of(parent: int, number: int) -> bool:
    """Have this process signalled when its parent ends; return whether the parent still lives."""
    import ctypes  # few processes need it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    return os.getppid() == parent
