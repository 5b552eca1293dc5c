"""Ranks for ``test_mpi``: ``mpi_programs NAME ARGUMENT...``, one process per rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from pcircle.errors import IntegrityError, UsageError
from pcircle.transport.contract import Transport
from pcircle.transport.launch import choose
from pcircle.transport.start import start


def ending(code: str) -> Callable[[Transport], int]:
    """All ranks end with *code*."""
    return lambda transport: int(code)


def raising(kind: str) -> Callable[[Transport], int]:
    """An exception leaves the body of the last rank; the others wait for ever."""

    def body(transport: Transport) -> int:
        if transport.rank == transport.size - 1:
            raise RuntimeError("no such luck") if kind == "defect" else IntegrityError("it differs")
        while True:
            transport.poll(None)

    return body


def aborting(code: str) -> Callable[[Transport], int]:
    """The last rank aborts; the others wait for ever."""

    def body(transport: Transport) -> int:
        if transport.rank == transport.size - 1:
            transport.poll(0.1)
            transport.abort(int(code))
        while True:
            transport.poll(None)

    return body


PROGRAMS: tuple[Callable[[str], Callable[[Transport], int]], ...] = (ending, raising, aborting)


def main(name: str, argument: str) -> int:
    named = {program.__name__: program for program in PROGRAMS}
    try:
        return start(choose("auto", None, os.environ), named[name](argument))
    except UsageError as error:
        print(f"refused: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
