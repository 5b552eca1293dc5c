"""What the values of options mean: numbers, sizes, durations. UsageError if nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

from pcircle.errors import UsageError
from pcircle.units import parse_duration, parse_size

_CHUNK_UNIT_BYTES = 4 << 20  # the block of the signature

MOST_THREADS = 64
_MOST_DIGITS = 30  # int() has a limit of its own


def number(option: str, text: str, parse: Callable[[str], float]) -> float:
    """A number, as `parse` has it."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def interval_s(option: str, text: str) -> float:
    """A time in seconds that is longer than nothing."""
    found = number(option, text, parse_duration)
    if not 0 < found < math.inf:
        raise UsageError(f"{option}: it must be longer than nothing")
    return found


def number_of_jobs(text: str) -> int:
    """The value of --jobs."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not int(text):
        raise UsageError(f"--jobs: {text!a} is not a number of processes")
    return int(text)


def number_of_threads(text: str) -> int:
    """The value of --threads."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not 0 < int(text) <= MOST_THREADS:
        raise UsageError(f"--threads: {text!a} is not a number from 1 to {MOST_THREADS}")
    return int(text)


def chunk_bytes(text: str) -> int:
    """The value of --chunksize, a multiple of 4 MiB."""
    size = number("--chunksize", text, parse_size)
    if size < 1:
        raise UsageError("--chunksize: chunks have at least one byte")
    return -(-int(size) // _CHUNK_UNIT_BYTES) * _CHUNK_UNIT_BYTES
