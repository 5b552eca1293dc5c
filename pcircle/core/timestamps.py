"""Times of files: seconds and nanoseconds, and formatting for any year.

A Linux file system stores 64 bits of seconds. The same time in nanoseconds needs 94 bits: Python's
integers hold it, but messages, packed records and most JSON parsers do not. Times that leave a
process are therefore sent as a `Timestamp`.

`time.strftime` fails for the last 1,900 years of the C library's calendar, and pads years
differently from ls. `format_time` covers every year that `time.localtime` can represent.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

NS_PER_S = 1_000_000_000
MIN_NS, MAX_NS = -(1 << 63) * NS_PER_S, (1 << 63) * NS_PER_S - 1
"""The earliest and the latest time that a file can have, in nanoseconds since the epoch."""

_MAX_INT = (1 << 31) - 1
_CALENDAR_YEARS = 400  # after which the Gregorian calendar repeats, days of the week included


class Timestamp(NamedTuple):
    """A time since the epoch; `nanoseconds` is from 0 to 999,999,999, also before the epoch."""

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
    """Format a time in the local time zone. OverflowError or OSError if the year is out of range.

    Years are `padded` to four digits, as in ls, or formatted as by the C library, as in find.
    """
    moment = time.localtime(second)
    year = moment.tm_year
    if 1000 <= year <= 9999 or (not padded and year <= _MAX_INT):
        return time.strftime(pattern, moment)
    twin_year = 2000 + year % _CALENDAR_YEARS
    twin = time.struct_time(
        (twin_year, *moment[1:]), {"tm_zone": moment.tm_zone, "tm_gmtoff": moment.tm_gmtoff}
    )
    wrapped = (year + _MAX_INT + 1) % (1 << 32) - _MAX_INT - 1  # as an int of the C library
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
