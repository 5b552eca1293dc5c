"""Ranks for ``test_mpi``: ``mpi_programs NAME ARGUMENT...``, one process per rank."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pcircle.core.errors import IntegrityError, UsageError
from pcircle.transport.contract import Transport
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start


def ending(code: str) -> Callable[[Transport], int]:
    """End all ranks with *code*."""
    return lambda transport: int(code)


def raising(kind: str) -> Callable[[Transport], int]:
    """Raise an exception in the body of the last rank; the other ranks wait forever."""

    def body(transport: Transport) -> int:
        if transport.rank == transport.size - 1:
            raise RuntimeError("no such luck") if kind == "defect" else IntegrityError("it differs")
        while True:
            transport.poll(None)

    return body


def aborting(code: str) -> Callable[[Transport], int]:
    """Abort the last rank; the other ranks wait forever."""

    def body(transport: Transport) -> int:
        if transport.rank == transport.size - 1:
            transport.poll(0.1)
            transport.abort(int(code))
        while True:
            transport.poll(None)

    return body


class _Asked:
    """A request that counts the tests of all requests."""

    times = 0

    def __init__(self, request: Any) -> None:
        self._request = request

    def Test(self) -> bool:
        _Asked.times += 1
        return bool(self._request.Test())


class _Communicator:
    """A communicator whose sends count how often they are tested."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def Isend(self, *arguments: Any) -> _Asked:
        return _Asked(self._comm.Isend(*arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)


def crowding(folder: str) -> Callable[[Transport], int]:
    """Send much from rank 0 to a rank that polls only after it has seen that, and poll often."""
    gate, messages, looks = Path(folder, "gate"), 3000, 200

    def body(transport: Transport) -> int:
        if transport.rank:
            while not gate.exists():
                time.sleep(0.005)
            heard = 0
            while heard < messages:
                heard += len(transport.poll(None))
            return 0
        mine: Any = transport
        mine._channel._comm = _Communicator(mine._channel._comm)
        payload = bytes(200_000)  # too long to be sent before it is received
        for _ in range(messages):
            transport.send(1, payload)
        for _ in range(looks):
            transport.poll(0)
        gate.touch()
        print(_Asked.times, messages + looks, flush=True)
        return 0

    return body


PROGRAMS: tuple[Callable[[str], Callable[[Transport], int]], ...] = (
    ending,
    raising,
    aborting,
    crowding,
)


def main(name: str, argument: str) -> int:
    named = {program.__name__: program for program in PROGRAMS}
    try:
        return start(choose("auto", None, launched()), named[name](argument))
    except UsageError as error:
        print(f"refused: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
