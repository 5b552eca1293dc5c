"""The two sides of a comparison, and which of them an error came from."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pcircle.fs.trouble import Changed

T = TypeVar("T")
E = TypeVar("E", bound=OSError)
Fds = tuple[int, int]
"""Open files or directories of both sides."""

FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SIDE = "side"  # the attribute of an error


def side_of(error: OSError) -> int:
    """The side that refused: 0 is A, 1 is B."""
    side: int = getattr(error, _SIDE, 0)
    return side


def of_side(error: E, side: int) -> E:
    """An error, which is this side's."""
    setattr(error, _SIDE, side)
    return error


def asked(side: int, function: Callable[[int], T]) -> T:
    """What a function of a side returns; an OSError of it knows its side."""
    try:
        return function(side)
    except OSError as error:
        of_side(error, side)
        raise


def both(function: Callable[[int], T]) -> tuple[T, T]:
    """What a function of a side returns for each."""
    return asked(0, function), asked(1, function)


@contextmanager
def opened(
    name: bytes, fds: Fds, other: bytes | None = None
) -> Iterator[tuple[Fds, tuple[os.stat_result, os.stat_result]]]:
    """The regular files of a name in two directories, open, and what they are now.

    `other` is the name on side B, if that is another one.

    Never through a link; opening waits for nobody. OSError, which knows its side.
    """
    first = asked(0, lambda side: os.open(name, FLAGS, dir_fd=fds[side]))
    try:
        second = asked(1, lambda side: os.open(other or name, FLAGS, dir_fd=fds[side]))
        try:
            files = first, second
            yield files, both(lambda side: _regular(files[side]))
        finally:
            os.close(second)
    finally:
        os.close(first)


def _regular(fd: int) -> os.stat_result:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise Changed("it is no longer a regular file")
    return status
