"""A job that may leave threads behind in the kernel, and a command that ends all the same.

A process ends when its last thread does, and whoever waits for it waits for that. One that hangs in
a system call for good would keep a shell or a launcher waiting long after the job has ended. So the
job runs in a child, which lets go of all it has open when all is written, and says its exit code;
the command ends then, with that code, whether or not the child can.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from pcircle.errors import Defect, RankLost
from pcircle.transport._exit import (
    explain_escape,
    flush_standard_streams,
    let_go,
    say,
    signal_at_end_of,
)
from pcircle.transport.launch import launched
from pcircle.workers.deadline import operation_timeout

_GRACE_S = 1.0  # a process without such threads is gone by then
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_kept: list[object] = []  # C has but its address


def supervised(name: str, limit_s: float, run: Callable[[], int]) -> int:
    """Run a job in a child, with a time limit for calls on files; its exit code."""
    flush_standard_streams()
    heard, said = os.pipe()
    parent = os.getpid()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if not child:
        os.close(heard)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        # Nobody would wait for the job any more.
        if not signal_at_end_of(parent, signal.SIGKILL):
            os._exit(RankLost.exit_code)
        _be_child(said, limit_s, run)
    os.close(said)

    def forward(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(child, number)

    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    with open(heard, "rb", buffering=0) as pipe:
        told = pipe.read(1)
    if told and launched().kind != "none":
        return told[0]  # a launcher ends all others soon after the first, by a signal
    status = _reaped(child, _GRACE_S if told else None)
    if told:
        if status is None:
            say(f"process {child} stays behind until the file system answers", name)
        return told[0]
    code = os.waitstatus_to_exitcode(status or 0)
    return code if code > 0 else RankLost.exit_code


def _reaped(child: int, patience_s: float | None) -> int | None:
    """How a child ended; None if it does not do so in time."""
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


def _be_child(said: int, limit_s: float, run: Callable[[], int]) -> None:
    """Be the child, and never return."""
    code = Defect.exit_code

    def let_command_end() -> None:
        try:
            let_go(said)
            _say_code(said, code & 0xFF)
        finally:
            os._exit(code & 0xFF)

    end = _after_libraries(let_command_end)
    try:
        with operation_timeout(limit_s):
            code = run()
    except BaseException as error:
        code = explain_escape(error, 0)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # the code is settled
        try:
            flush_standard_streams()
            atexit._run_exitfuncs()  # the last words of libraries
        finally:
            end()


def _after_libraries(last: Callable[[], None]) -> Callable[[], object]:
    """Prepare the end of this process: a function that ends it, and calls `last` at the very end.

    Under a launcher libraries have last words of C as well, which need descriptors that `last` lets
    go of. MPICH tells the launcher by a handler of exit(3) that a rank has ended as it should, and
    one that did not has the launcher kill all others. The handlers are called in reverse order, so
    what is registered here, before there is MPI, comes last. Python does not end itself by this:
    it would wait for threads.
    """
    if launched().kind == "none":
        return last
    import ctypes

    libc = ctypes.CDLL(None)
    ending: list[int] = []

    def at_exit(_: int | None) -> None:
        # A library may call exit with a code of its own, and so may a process that is forked.
        if ending == [os.getpid()]:
            last()

    def end() -> None:
        ending.append(os.getpid())
        libc.exit(Defect.exit_code)  # `last` ends with its own

    handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(at_exit)
    libc.__cxa_atexit(handler, None, None)
    _kept.append(handler)
    return end


def _say_code(fd: int, code: int) -> None:
    with open(fd, "wb", buffering=0) as pipe:
        pipe.write(bytes([code]))
