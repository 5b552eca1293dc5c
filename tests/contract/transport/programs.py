"""Whole local jobs for ``test_local``, each in its own process: ``programs NAME ARGUMENT...``.

They exit with the code that ``launch_local`` returned, like a tool.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pcircle.core.errors import IntegrityError, Terminated, UsageError
from pcircle.runtime.signals import Signals
from pcircle.transport import _fork
from pcircle.transport._fork import launch_local
from pcircle.transport.contract import Body, LostRank, Transport


def until_lost(transport: Transport) -> LostRank:
    """Poll until a rank is lost."""
    while True:
        for arrival in transport.poll(None):
            if isinstance(arrival, LostRank):
                return arrival


def codes(*texts: str) -> int:
    """End rank r with the r-th code; a negative one is the signal that it kills itself with."""

    def body(transport: Transport) -> int:
        code = int(texts[transport.rank])
        if code < 0:
            os.kill(os.getpid(), -code)
        return code

    return launch_local(len(texts), body)


def signalled() -> int:
    """Send SIGTERM to rank 1 before it can handle it, and again after its job."""

    def body(transport: Transport) -> int:
        if transport.rank == 0:
            return int(Terminated.exit_code)
        os.kill(os.getpid(), signal.SIGTERM)
        with Signals(transport.wake) as signals:
            code = signals.code
        os.kill(os.getpid(), signal.SIGTERM)
        return code or 0

    return launch_local(2, body)


def lost_code(code: str) -> int:
    """Kill rank 1; the other ranks notice and agree on *code*."""

    def body(transport: Transport) -> int:
        if transport.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        assert until_lost(transport).rank == 1
        return int(code)

    return launch_local(3, body)


def raising(kind: str, rank: str) -> int:
    """Raise an exception in the body of *rank*; the other ranks wait."""
    errors: dict[str, BaseException] = {
        "defect": RuntimeError("no such luck"),
        "known": IntegrityError("it differs"),
        "interrupt": KeyboardInterrupt(),
    }

    def body(transport: Transport) -> int:
        if transport.rank == int(rank):
            raise errors[kind]
        assert until_lost(transport).rank == int(rank)
        return 4

    try:
        return launch_local(3, body)
    except (RuntimeError, IntegrityError) as error:
        print(f"passed through: {error}")
        return 99


def aborting(rank: str, code: str) -> int:
    """Abort one rank while the other ranks wait."""

    def body(transport: Transport) -> int:
        if transport.rank == int(rank):
            transport.poll(0.2)
            transport.abort(int(code))
        until_lost(transport)
        return 4

    return launch_local(4, body)


def orphaned(folder: str) -> int:
    """Kill rank 0; the other ranks record the loss and end."""

    def body(transport: Transport) -> int:
        if transport.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        lost = until_lost(transport)
        (Path(folder) / str(transport.rank)).write_text(f"{lost.rank} {lost.reason}")
        return 4

    return launch_local(4, body)


def stubborn() -> int:
    """Let rank 2 ignore SIGTERM and never end; the parent's patience is shortened."""

    def body(transport: Transport) -> int:
        if transport.rank == 2:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            transport.send(0, b"ready")
            transport.poll(0)
            while True:
                time.sleep(60)
        if transport.rank == 0:
            transport.poll(None)
        return 0

    _fork._REAP_DEADLINE_S = 0.3
    return launch_local(3, body)


def printing() -> int:
    """Print before the fork and in each rank, without a flush."""
    sys.stdout.write("before;")

    def body(transport: Transport) -> int:
        sys.stdout.write(f"rank {transport.rank};")
        return 0

    return launch_local(3, body)


def limited(soft: str, hard: str, size: str) -> int:
    """Run a job of *size* ranks within these limits of open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)))
    try:
        return launch_local(int(size), lambda transport: 0)
    except UsageError as error:
        print(error)
        return error.exit_code


def tidy() -> int:
    """End jobs well and badly without leaving a process, descriptor or signal handler."""

    def killed(transport: Transport) -> int:
        if transport.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return 4 if until_lost(transport).rank == 1 else 0

    def failing(transport: Transport) -> int:
        if transport.rank == 0:
            raise RuntimeError("on purpose")
        return 4 if until_lost(transport).rank == 0 else 0

    before = _held()
    jobs: list[tuple[int, Body]] = [
        (1, lambda transport: 0),
        (2, lambda transport: 0),
        (5, lambda transport: 0),
        (5, killed),
        (3, failing),
    ]
    for size, body in jobs:
        try:
            launch_local(size, body)
        except RuntimeError as error:
            print(error)
        assert _held() == before, f"{size} {body}: {_held()} and not {before}"
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # there is no child, running or dead
            continue
        raise AssertionError("a child is left")
    return 0


def _held() -> tuple[object, ...]:
    wakeup_fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup_fd)
    descriptors = sorted(os.listdir("/proc/self/fd"))
    return wakeup_fd, descriptors, signal.pthread_sigmask(signal.SIG_BLOCK, ())


PROGRAMS: tuple[Callable[..., int], ...] = (
    codes,
    signalled,
    lost_code,
    raising,
    aborting,
    orphaned,
    stubborn,
    printing,
    limited,
    tidy,
)

if __name__ == "__main__":
    named = {program.__name__: program for program in PROGRAMS}
    sys.exit(named[sys.argv[1]](*sys.argv[2:]))
