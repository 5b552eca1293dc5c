"""The two sides of a comparison, and the side that an error comes from."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import OPEN_FILE

T = TypeVar("T")
E = TypeVar("E", bound=OSError)
Fds = tuple[int, int]
"""Open files or directories of sides A and B."""

_SIDE = "side"  # attribute of an exception


def error_side(error: OSError) -> int:
    """Return the side that failed: 0 for A, 1 for B."""
    side: int = getattr(error, _SIDE, 0)
    return side


def set_error_side(error: E, side: int) -> E:
    """Record the side in an error, and return the error."""
    setattr(error, _SIDE, side)
    return error


def with_side(side: int, function: Callable[[int], T]) -> T:
    """Call a function with a side; an OSError gets that side."""
    try:
        return function(side)
    except OSError as error:
        set_error_side(error, side)
        raise


def both(function: Callable[[int], T]) -> tuple[T, T]:
    """Call a function with each side."""
    return with_side(0, function), with_side(1, function)


@contextmanager
def open_files(
    name: bytes, fds: Fds, other: bytes | None = None
) -> Iterator[tuple[Fds, tuple[os.stat_result, os.stat_result]]]:
    """Open the regular files with a name in two directories; yield descriptors and statuses.

    `other` is the name on side B if it differs. Links are not followed, and opening does not block.
    OSError with the side of the error.
    """
    first = with_side(0, lambda side: os.open(name, OPEN_FILE, dir_fd=fds[side]))
    try:
        second = with_side(1, lambda side: os.open(other or name, OPEN_FILE, dir_fd=fds[side]))
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
