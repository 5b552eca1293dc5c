"""Ranks for ``test_hybrid``: ``hybrid_programs NAME ARGUMENT...``, one MPI process each."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pcircle.core.errors import UsageError
from pcircle.transport.contract import LostRank, Transport
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start

EACH = 3
MANY = 20  # require 380 sockets


def _start(body: Callable[[Transport], int], jobs: int | None = EACH) -> int:
    choice = choose("auto", jobs, launched())
    try:
        return start(choice, body, partial(pickle.dumps, body), again=True)
    except UsageError as error:
        print(f"refused: {error}", file=sys.stderr)
        return error.exit_code


def ending(*codes: str) -> int:
    """End rank r with the r-th code; a negative one is the signal that it kills itself with."""

    def body(transport: Transport) -> int:
        code = int(codes[transport.rank])
        if code < 0:
            os.kill(os.getpid(), -code)
        return code

    return _start(body)


def raising(rank: str) -> int:
    """Raise an exception in the body of a rank; the other ranks end when they learn of it."""

    def body(transport: Transport) -> int:
        if transport.rank == int(rank):
            raise RuntimeError("no such luck")
        while True:
            for arrival in transport.poll(None):
                if isinstance(arrival, LostRank):
                    return 4

    return _start(body)


def aborting(rank: str, code: str) -> int:
    """Abort one rank; the other ranks wait for ever."""

    def body(transport: Transport) -> int:
        if transport.rank == int(rank):
            transport.poll(0.1)
            transport.abort(int(code))
        while True:
            transport.poll(None)

    return _start(body)


def waiting(folder: str) -> int:
    """Report the processes of the ranks, and wait."""

    def body(transport: Transport) -> int:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        made = Path(folder, f".{transport.rank}")
        made.write_text(str(os.getpid()))
        made.rename(Path(folder, str(transport.rank)))
        while True:
            transport.poll(None)

    return _start(body)


def inherited() -> int:
    """Check that a leaf does not inherit its gateway's connection to the launcher."""
    home, launchers = os.getpid(), _opened(os.environ.get("PMI_FD", ""))

    def body(transport: Transport) -> int:
        has = launchers in [_opened(str(fd)) for fd in range(256)]
        return 0 if not launchers or has == (os.getpid() == home) else 70

    return _start(body)


def _opened(fd: str) -> str:
    """Return the target of a descriptor; an empty string if it is closed."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}") if fd else ""
    except OSError:
        return ""


def _say(transport: Transport) -> int:
    for dest in range(transport.size):
        transport.send(dest, b"here")
    heard = 0
    while heard < transport.size:
        heard += len(transport.poll(None))
    print(transport.rank, flush=True)
    return 0


def fresh(how: str) -> int:
    """Start where the process must not be forked."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    if how == "begun":
        from mpi4py import MPI

        assert MPI.Is_initialized()
    else:
        thread.start()
    try:
        return _start(_say)
    finally:
        ended.set()
        if how != "begun":
            thread.join()


def limited() -> int:
    """Limit the open files of one of the two processes to less than it needs."""
    if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    return _start(_say, MANY)


def described(jobs: str, folder: str) -> int:
    """Report the numbers of the ranks."""

    def body(transport: Transport) -> int:
        text = json.dumps([transport.rank, transport.size])
        Path(folder, str(transport.rank)).write_text(text)
        return 0

    return _start(body, int(jobs) or None)


PROGRAMS: tuple[Callable[..., int], ...] = (
    ending,
    raising,
    aborting,
    waiting,
    inherited,
    fresh,
    limited,
    described,
)

if __name__ == "__main__":
    named = {program.__name__: program for program in PROGRAMS}
    sys.exit(named[sys.argv[1]](*sys.argv[2:]))
