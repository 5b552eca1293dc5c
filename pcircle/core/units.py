"""Parse sizes, durations, rates, counts and times from options, and format them for reports.

Every option of every tool reads ``64k`` the same way, and every report shows it the same way. Sizes
follow GNU coreutils (``k`` and ``KiB`` are 1024, ``kB`` is 1000), except that case does not matter.
The arithmetic uses integers where possible, so no byte count is rounded by a conversion to float,
and no result reads ``1024.0 KiB``.

The parsers raise a ``ValueError`` that quotes invalid text; the caller adds the name of the option.
The functions for values of options raise `UsageError` instead.

File times consist of seconds and nanoseconds. A Linux file system stores 64 bits of seconds. The
same time in nanoseconds needs 94 bits, which Python's integers can hold, but messages, packed
records and most JSON parsers cannot. Times that leave a process are therefore sent as a
`Timestamp`.

`time.strftime` fails for the last 1,900 years of the C library's calendar, and pads years
differently from ls. `format_time` covers every year that `time.localtime` can represent.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError

# Compiled by `re` on first use, because most runs need none of them.
_SIZE = r"([0-9]{1,30})(?:\.([0-9]{1,30}))? ?(?:(b)|([kmgtpe])(b|ib)?)?"
_PREFIXES = "kmgtpe"
_MAX_SIZE_BYTES = 2**63 - 1
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

_DURATION = r"(?:[0-9]{1,15}(?:\.[0-9]{1,15})?(?:ms|s|m|h|d) ?)+"
_DURATION_PART = r"([0-9.]+)(ms|s|m|h|d)"
_PLAIN_SECONDS = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MINUTE_S = 60
_HOUR_S = 3600
DAY_S = 86400


def parse_size(text: str) -> int:
    """Parse a size in bytes: ``4096``, ``64k`` or ``1.5GiB`` (binary), ``2GB`` (decimal).

    A fraction is evaluated exactly and rounded down to a whole byte. Raises ValueError if the text
    is invalid, or the size is one that no file can have (2**63 or more).
    """
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(
            f"invalid size {text!r}: expected a value such as 4096, 64k, 1.5MiB or 2GB"
        )
    whole, fraction, _, prefix, suffix = match.groups(default="")
    base = 1000 if suffix.lower() == "b" else 1024
    unit_bytes = base ** (_PREFIXES.index(prefix.lower()) + 1) if prefix else 1
    size_bytes: int = int(whole + fraction) * unit_bytes // 10 ** len(fraction)
    if size_bytes > _MAX_SIZE_BYTES:
        raise ValueError(f"size too large: {text!r}")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """Format a size with one decimal in the largest fitting binary unit: ``1.5 GiB``, ``12 B``."""
    if size_bytes < 0:
        return "-" + format_size(-size_bytes)
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = min((size_bytes.bit_length() - 1) // 10, len(_SIZE_UNITS) - 1)
    tenths = _tenths(size_bytes, power)
    # 1023.95 KiB would be shown as 1024.0 KiB, so use the next unit.
    if tenths >= 10240 and power < len(_SIZE_UNITS) - 1:
        power += 1
        tenths = _tenths(size_bytes, power)
    return f"{tenths // 10}.{tenths % 10} {_SIZE_UNITS[power]}"


def _tenths(size_bytes: int, power: int) -> int:
    """Return a size in tenths of 1024 ** *power* bytes, rounded half up."""
    unit_bytes = 1 << (10 * power)
    return (size_bytes * 20 + unit_bytes) // (2 * unit_bytes)


def parse_duration(text: str) -> float:
    """Parse a duration in seconds: ``30``, ``0.5s``, ``250ms``, ``5m``, ``1h30m``, ``2d``.

    The default unit is seconds. Raises ValueError if the text is invalid. Zero is accepted, because
    only the caller knows whether it makes sense.
    """
    stripped = text.strip()
    if re.fullmatch(_PLAIN_SECONDS, stripped):
        return float(stripped)
    if not re.fullmatch(_DURATION, stripped, re.IGNORECASE | re.ASCII):
        raise ValueError(f"invalid duration {text!r}: expected a value such as 30, 0.5s, 5m or 2h")
    return math.fsum(
        float(number) * _SECONDS_OF[unit.lower()]
        for number, unit in re.findall(_DURATION_PART, stripped, re.IGNORECASE | re.ASCII)
    )


def format_duration(duration_s: float) -> str:
    """Format a duration to about three digits: ``0.21s``, ``12.3s``, ``5m03s``, ``3d04h``.

    `parse_duration` accepts the result unless it is negative. An infinite or undefined duration is
    shown as ``?``.
    """
    if not math.isfinite(duration_s):
        return "?"
    if duration_s < 0:
        return "-" + format_duration(-duration_s)
    # At these limits rounding carries: 9.995 must be shown as 10.0s, not 10.00s.
    if duration_s < 9.995:
        return f"{duration_s:.2f}s"
    if duration_s < 59.95:
        return f"{duration_s:.1f}s"
    whole_s = int(duration_s + 0.5)
    if whole_s < _HOUR_S:
        return f"{whole_s // _MINUTE_S}m{whole_s % _MINUTE_S:02}s"
    whole_min = int(duration_s / _MINUTE_S + 0.5)
    if whole_min * _MINUTE_S < DAY_S:
        return f"{whole_min // 60}h{whole_min % 60:02}m"
    whole_h = int(duration_s / _HOUR_S + 0.5)
    return f"{whole_h // 24}d{whole_h % 24:02}h"


def format_rate(rate_bytes_s: float) -> str:
    """Format a rate in bytes per second: ``372.1 MiB/s``; ``?`` if it is not finite."""
    if not math.isfinite(rate_bytes_s):
        return "?"
    return f"{format_size(round(rate_bytes_s))}/s"


def format_count(count: int) -> str:
    """Format a count with thousands separators: ``1,234,567``."""
    return f"{count:,}"


def format_rates(bytes_per_s: float, entries_per_s: float) -> str:
    """Format the rates of a job, ``372.1 MiB/s, 1,204 entries/s``, without rates of zero."""
    entries = round(entries_per_s)
    rates = [format_rate(bytes_per_s)] if round(bytes_per_s) else []
    rates += [plural(entries, "entry/s", "entries/s")] if entries else []
    return ", ".join(rates)


def plural(count: int, one: str, many: str) -> str:
    """Format a count with its noun, in the singular or plural."""
    return f"{format_count(count)} {one if count == 1 else many}"


# ---- values of options ---------------------------------------------------------------------------

CHUNK_UNIT_BYTES = 4 << 20  # chunk sizes are multiples of this, the block size of signatures

MAX_THREADS = 1024
MAX_DIGITS = 30  # int() rejects thousands of digits


def number(option: str, text: str, parse: Callable[[str], float]) -> float:
    """Return the number that `parse` reads from the text. Raises UsageError if it is invalid."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def interval_s(option: str, text: str) -> float:
    """Return a duration in seconds. Raises UsageError unless it is greater than 0."""
    found = number(option, text, parse_duration)
    if not 0 < found < math.inf:
        raise invalid(option, text, "must be greater than 0")
    return found


def is_whole(text: str) -> bool:
    """Return whether text consists of ASCII digits; `int` also reads ``1_000`` and ``+1``."""
    return text.isascii() and text.isdecimal()


def positive(option: str, text: str, most: int | None = None) -> int:
    """Return a whole number. Raises UsageError unless it is from 1 to *most*."""
    if not is_whole(text) or int(text[:MAX_DIGITS]) < 1:
        raise invalid(option, text, "must be a positive integer")
    if len(text) > MAX_DIGITS or (most is not None and int(text) > most):
        limit = 10**MAX_DIGITS - 1 if most is None else most
        raise invalid(option, text, f"must be at most {limit:,}")
    return int(text)


def parse_number(text: str) -> float:
    """Parse any number. Raises a ValueError that quotes the text if it is not a number."""
    try:
        return float(text if text.isascii() and "_" not in text else "")
    except ValueError:
        raise ValueError(f"invalid value {_quoted(text)}: must be a number") from None


def chunk_bytes(option: str, text: str) -> int:
    """Return a chunk size, rounded up to a multiple of 4 MiB."""
    size = number(option, text, parse_size)
    if size < 1:
        raise invalid(option, text, "must be at least 1 byte")
    return -(-int(size) // CHUNK_UNIT_BYTES) * CHUNK_UNIT_BYTES


def invalid(option: str, text: str, expected: str) -> UsageError:
    """Return the error for an invalid value of an option."""
    return UsageError(f"{option}: invalid value {_quoted(text)}: {expected}")


def _quoted(text: str) -> str:
    shown = text if len(text) <= MAX_DIGITS else text[:MAX_DIGITS] + "..."
    return f"'{show(os.fsencode(shown))}'"


# ---- times of files ------------------------------------------------------------------------------

NS_PER_S = 1_000_000_000
MIN_NS, MAX_NS = -(1 << 63) * NS_PER_S, (1 << 63) * NS_PER_S - 1
"""The earliest and the latest time that a file can have, in nanoseconds since the epoch."""

_MAX_INT = (1 << 31) - 1
_CALENDAR_YEARS = 400  # after which the Gregorian calendar repeats, including the days of the week


class Timestamp(NamedTuple):
    """A time since the epoch. `nanoseconds` is never negative, even before the epoch."""

    seconds: int
    nanoseconds: int

    @property
    def ns(self) -> int:
        """Return the time in nanoseconds."""
        return self.seconds * NS_PER_S + self.nanoseconds


def timestamp(time_ns: int) -> Timestamp:
    """Convert a time in nanoseconds to a `Timestamp`."""
    return Timestamp(*divmod(time_ns, NS_PER_S))


def format_time(pattern: str, second: int, *, padded: bool) -> str:
    """Format a time in the local time zone.

    Years are either `padded` to four digits, as in ls, or formatted by the rules of the C library,
    as in find. Raises OverflowError or OSError if the year is out of range.
    """
    moment = time.localtime(second)
    year = moment.tm_year
    if 1000 <= year <= 9999 or (not padded and year <= _MAX_INT):
        return time.strftime(pattern, moment)
    twin_year = 2000 + year % _CALENDAR_YEARS
    twin = time.struct_time(
        (twin_year, *moment[1:]), {"tm_zone": moment.tm_zone, "tm_gmtoff": moment.tm_gmtoff}
    )
    wrapped = (year + _MAX_INT + 1) % (1 << 32) - _MAX_INT - 1  # as a C int
    if padded:
        sign, size = "-" if year < 0 else "", abs(year)
        century, short = f"{sign}{size // 100}".zfill(2 - len(sign)), f"{size % 100:02d}"
        date_year = f"{year:+05d}" if year > 9999 else f"{year:04d}"
    else:
        year = wrapped
        century, short, date_year = str(year // 100), f"{twin_year % 100:02d}", str(year)
    width = 4 if padded else 0
    week_year = year + int(time.strftime("%G", twin)) - twin_year
    texts = {
        "C": century,
        "D": f"%m/%d/{short}",
        "F": f"{date_year}-%m-%d",
        "G": f"{week_year:0{width}d}",
        "Y": f"{year:0{width}d}",
        "c": f"%a %b %e %H:%M:%S {wrapped}",
        "s": str(second),
        "y": short,
    }
    expanded = re.sub("%(.)", lambda found: texts.get(found[1], found[0]), pattern)
    return time.strftime(expanded, twin)
