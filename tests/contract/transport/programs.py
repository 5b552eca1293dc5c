"""Whole local jobs for ``test_local``, each a process of its own: ``programs NAME ARGUMENT...``.

They end with the exit code that ``launch_local`` gave, as a tool does.
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
    """Poll, for ever if need be, until a rank is lost."""
    while True:
        for arrival in transport.poll(None):
            if isinstance(arrival, LostRank):
                return arrival


def codes(*texts: str) -> int:
    """Rank r ends with the r-th code; a negative one is the signal that it kills itself with."""

    def body(transport: Transport) -> int:
        code = int(texts[transport.rank])
        if code < 0:
            os.kill(os.getpid(), -code)
        return code

    return launch_local(len(texts), body)


def signalled() -> int:
    """Rank 1 gets SIGTERM before it can hear it, and once more when its job is over."""

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
    """Rank 1 is killed; the others notice and agree on *code*."""

    def body(transport: Transport) -> int:
        if transport.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        assert until_lost(transport).rank == 1
        return int(code)

    return launch_local(3, body)


def raising(kind: str, rank: str) -> int:
    """An exception leaves the body of *rank*; the others wait for what happens."""
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
    """One rank aborts while the others wait."""

    def body(transport: Transport) -> int:
        if transport.rank == int(rank):
            transport.poll(0.2)
            transport.abort(int(code))
        until_lost(transport)
        return 4

    return launch_local(4, body)


def orphaned(folder: str) -> int:
    """Rank 0 is killed; the others note whom they lost, and end."""

    def body(transport: Transport) -> int:
        if transport.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        lost = until_lost(transport)
        (Path(folder) / str(transport.rank)).write_text(f"{lost.rank} {lost.reason}")
        return 4

    return launch_local(4, body)


def stubborn() -> int:
    """Rank 2 neither ends nor heeds SIGTERM; the parent's patience is cut short."""

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
    """What was printed before the fork, and by each rank, none of it flushed."""
    sys.stdout.write("before;")

    def body(transport: Transport) -> int:
        sys.stdout.write(f"rank {transport.rank};")
        return 0

    return launch_local(3, body)


def limited(soft: str, hard: str, size: str) -> int:
    """A job of *size* ranks within these limits of open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)))
    try:
        return launch_local(int(size), lambda transport: 0)
    except UsageError as error:
        print(error)
        return error.exit_code


def tidy() -> int:
    """Jobs that end well and badly leave no process, descriptor or signal handling behind."""

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
        except ChildProcessError:  # there is none, running or dead
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
