"""Helpers for the end of a rank's process: error reports, exit codes and open descriptors.

No caller can catch an exception that leaves a rank's body. A forked child must never return into
its parent's code, and under MPI a rank that just unwinds leaves the other ranks hanging. All
transports use this module to report the exception and to choose the exit code.
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

from pcircle.core.errors import Defect, Interrupted, PcircleError, StoppedEarly, package_problem
from pcircle.core.writing import standard_error

_PR_SET_PDEATHSIG = 1
_READ_WITHIN_S = 1.0
_STANDARD = 3  # descriptors 0 to 2


def report_exception(error: BaseException, rank: int) -> int:
    """Report the exception that left the body of *rank* on standard error; return its exit code.

    A PcircleError is reported in one line, and defines the exit code. An interrupt that arrives
    before a handler is installed is not reported. An unexpected exception is a defect, and is
    reported with its traceback.
    """
    if isinstance(error, KeyboardInterrupt):
        return Interrupted.exit_code
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    if isinstance(error, PcircleError):
        print_error(f"rank {rank}: {error}")
        return error.exit_code
    if problem := package_problem(error):
        print_error(f"rank {rank}: {problem}")
        return StoppedEarly.exit_code
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    print_error(f"rank {rank}: {text.rstrip()}")
    return Defect.exit_code


def program_name() -> str:
    """Return the name of the command, or of the script that runs its own jobs."""
    path = sys.argv[0] if sys.argv else ""
    folder, name = os.path.split(path)
    if name == "__main__.py":  # python -m pcircle.tools.fcp
        name = os.path.basename(folder)
    return name.removesuffix(".py") if name not in ("", "-c", "-m") else "pcircle"


def print_error(text: str, name: str = "") -> None:
    """Print *text* on standard error, prefixed with *name* (default: the program's name)."""
    # A closed standard error must not change how a process ends.
    with suppress(OSError, ValueError, AttributeError):
        print(f"{name or program_name()}: {text}", file=standard_error(), flush=True)


def flush_standard_streams() -> None:
    """Flush standard output and standard error, ignoring closed streams and broken pipes."""
    for stream in (sys.stdout, sys.stderr):
        # A broken pipe (OSError), or a stream that is closed or None, must not keep the process
        # from ending.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def close_descriptors(except_fd: int = -1) -> None:
    """Release all files except *except_fd*, if other threads could delay the end of this process.

    A thread that hangs in the kernel would keep the files open, so the reader of a pipe would wait
    for it. The other threads run until the process ends, so no descriptor number may become free.
    Otherwise a thread could write to a file that another thread has just opened. So the standard
    descriptors are redirected to /dev/null, and all others to a descriptor on which all calls fail.
    """
    if threading.active_count() == 1:
        return
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(_STANDARD):
            os.dup2(null, fd)
        path_fd = os.open(os.devnull, os.O_PATH)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd >= _STANDARD and fd not in (except_fd, path_fd):
                os.dup2(path_fd, fd)


def await_stderr_read() -> None:
    """If standard error is a pipe, wait for up to a second until its reader has emptied it.

    A launcher that is ordered to end all ranks may do so without reading their pipes again. Without
    this wait, the error message was lost in one of ten runs on a busy machine.
    """
    until_s = time.monotonic() + _READ_WITHIN_S
    with suppress(OSError):
        while stat.S_ISFIFO(os.fstat(2).st_mode) and time.monotonic() < until_s:
            waiting = array("i", [0])
            fcntl.ioctl(2, termios.FIONREAD, waiting)
            if not waiting[0]:
                return
            time.sleep(0.001)


def signal_on_parent_exit(parent: int, number: int) -> bool:
    """Request a signal at the end of the parent process; return whether the parent is alive."""
    import ctypes  # few processes need it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    return os.getppid() == parent
