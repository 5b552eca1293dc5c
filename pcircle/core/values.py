"""Parse values of options: numbers, sizes, durations. UsageError if invalid."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.core.units import parse_duration, parse_size

CHUNK_UNIT_BYTES = 4 << 20  # the block of the signature

MAX_THREADS = 1024
MAX_DIGITS = 30  # int() has a limit of its own


def number(option: str, text: str, parse: Callable[[str], float]) -> float:
    """Return the number that `parse` reads from the text. UsageError if it is invalid."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def interval_s(option: str, text: str) -> float:
    """Return a time in seconds greater than 0."""
    found = number(option, text, parse_duration)
    if not 0 < found < math.inf:
        raise invalid(option, text, "must be greater than 0")
    return found


def number_of_jobs(text: str) -> int:
    """Return the value of --jobs."""
    return positive("--jobs", text)


def number_of_threads(text: str) -> int:
    """Return the value of --threads."""
    return positive("--threads", text, MAX_THREADS)


def positive(option: str, text: str, most: int | None = None) -> int:
    """Return a whole number from 1 to *most*."""
    if not text.isdecimal() or int(text[:MAX_DIGITS]) < 1:
        raise invalid(option, text, "must be a positive integer")
    if len(text) > MAX_DIGITS or (most is not None and int(text) > most):
        limit = 10**MAX_DIGITS - 1 if most is None else most
        raise invalid(option, text, f"must be at most {limit:,}")
    return int(text)


def parse_number(text: str) -> float:
    """Parse any number. ValueError quotes text that is not a number."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"invalid value {_quoted(text)}: must be a number") from None


def chunk_bytes(text: str) -> int:
    """Return the value of --chunksize, a multiple of 4 MiB."""
    size = number("--chunksize", text, parse_size)
    if size < 1:
        raise invalid("--chunksize", text, "must be at least 1 byte")
    return -(-int(size) // CHUNK_UNIT_BYTES) * CHUNK_UNIT_BYTES


def invalid(option: str, text: str, expected: str) -> UsageError:
    """Return the error for an invalid value of an option."""
    return UsageError(f"{option}: invalid value {_quoted(text)}: {expected}")


def _quoted(text: str) -> str:
    shown = text if len(text) <= MAX_DIGITS else text[:MAX_DIGITS] + "..."
    return f"'{show(os.fsencode(shown))}'"
