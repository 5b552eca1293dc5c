"""Run a job in a child process, so that the command ends even if a thread hangs in the kernel.

A process ends only when its last thread does, and its parent waits until then. So a thread that
hangs in a system call forever would keep a shell or launcher waiting long after the job has ended.
Therefore the job runs in a child, which closes its descriptors and reports its exit code when all
output is written. The command then ends with that code, whether or not the child can end.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from pcircle.core.errors import Defect, RankLost
from pcircle.threads.deadline import operation_timeout
from pcircle.transport._exit import (
    close_descriptors,
    flush_standard_streams,
    print_error,
    report_exception,
    signal_on_parent_exit,
)
from pcircle.transport.launch import launched

_GRACE_S = 1.0  # enough time for a process to end if no thread is hanging
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_handlers: list[object] = []  # keeps exit handlers alive, because C stores only their addresses


def supervised(name: str, limit_s: float, run: Callable[[], int]) -> int:
    """Run a job in a child with a time limit for file operations; return its exit code."""
    flush_standard_streams()
    read_fd, write_fd = os.pipe()
    parent = os.getpid()
    former_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if not child:
        os.close(read_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)
        # If the parent has ended, no process is waiting for the job.
        if not signal_on_parent_exit(parent, signal.SIGKILL):
            os._exit(RankLost.exit_code)
        _be_child(write_fd, limit_s, run)
    os.close(write_fd)

    def forward(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):  # the child has just ended
            os.kill(child, number)

    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)
    with open(read_fd, "rb", buffering=0) as pipe:
        report = pipe.read(1)
    if report and launched().kind != "none":
        return report[0]  # a launcher kills all ranks soon after the first has ended
    status = _reaped(child, _GRACE_S if report else None)
    if report:
        if status is None:
            print_error(f"process {child} remains until the file system responds", name)
        return report[0]
    code = os.waitstatus_to_exitcode(status or 0)
    return code if code > 0 else RankLost.exit_code


def _reaped(child: int, patience_s: float | None) -> int | None:
    """Wait for a child and return its wait status; None if it does not end in time."""
    if patience_s is None:
        return os.waitpid(child, 0)[1]
    until_s = time.monotonic() + patience_s
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if time.monotonic() > until_s:
            return None
        time.sleep(0.005)


def _be_child(report_fd: int, limit_s: float, run: Callable[[], int]) -> None:
    """Run the job in the child; never returns."""
    code = Defect.exit_code

    def let_command_end() -> None:
        try:
            close_descriptors(report_fd)
            _say_code(report_fd, code & 0xFF)
        finally:
            os._exit(code & 0xFF)

    end = _after_libraries(let_command_end)
    try:
        with operation_timeout(limit_s):
            code = run()
    except BaseException as error:
        code = report_exception(error, 0)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # the exit code is final
        try:
            flush_standard_streams()
            atexit._run_exitfuncs()  # exit handlers of libraries
        finally:
            end()


def _after_libraries(last: Callable[[], None]) -> Callable[[], object]:
    """Return a function that ends this process and calls `last` as the very last step.

    Under a launcher, libraries have exit handlers in C that need the descriptors which `last`
    closes. For example, MPICH informs the launcher in an exit(3) handler that a rank has ended
    properly; without that, the launcher kills all other ranks. Handlers are called in reverse
    order, so a handler that is registered here, before MPI is loaded, is called last. Python's own
    finalisation is skipped, because it would wait for threads.
    """
    if launched().kind == "none":
        return last
    import ctypes

    libc = ctypes.CDLL(None)
    ending: list[int] = []

    def at_exit(_: int | None) -> None:
        # A library or a forked process may call exit(3) itself.
        if ending == [os.getpid()]:
            last()

    def end() -> None:
        ending.append(os.getpid())
        libc.exit(Defect.exit_code)  # `last` exits with its own code

    handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(at_exit)
    libc.__cxa_atexit(handler, None, None)
    _handlers.append(handler)
    return end


def _say_code(fd: int, code: int) -> None:
    with open(fd, "wb", buffering=0) as pipe:
        pipe.write(bytes([code]))
