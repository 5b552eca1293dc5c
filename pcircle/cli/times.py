"""Times in options: dates, and time limits of jobs."""

from __future__ import annotations

import re
import time

from pcircle.core.units import NS_PER_S, format_duration, invalid
from pcircle.runtime import TimeLimit

_CLOCK = r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?"
_DATE = r"\d{4}-\d\d-\d\d"
_ZONE = r"(Z|[+-]\d\d:?\d\d)?"
TIMES = "expected a value such as 2026-11-30, 2026-11-30T18:00 or @1796061600"


def stop_at_s(option: str, text: str) -> float:
    """Parse the time at which a job stops, in the future. Raises UsageError."""
    now_s = time.time()
    at_s = next_clock_s(text, now_s) if re.fullmatch(_CLOCK, text.strip()) else date_s(option, text)
    if at_s <= now_s:
        raise invalid(option, text, "must be in the future")
    return at_s


def limit_of(after_s: float | None, at_s: float | None) -> TimeLimit | None:
    """Return the limit of a job that starts now, from its duration or the time of its end."""
    now_s = time.monotonic()
    if after_s is not None:
        text = f"--stop-after {format_duration(after_s)}"
        return TimeLimit(now_s + after_s, f"time limit reached ({text})")
    if at_s is not None:
        text = time.strftime("--stop-at %Y-%m-%dT%H:%M:%S", time.localtime(at_s))
        return TimeLimit(now_s + at_s - time.time(), f"time limit reached ({text})")
    return None


def date_s(option: str, text: str) -> float:
    """Parse a date, in seconds; see `date_ns`."""
    return date_ns(option, text) / NS_PER_S


def date_ns(option: str, text: str, expected: str = TIMES) -> int:
    """Parse a date, in local time unless it has a zone, or `@SECONDS`. Raises UsageError."""
    from datetime import datetime  # few runs name a date

    stripped = text.strip()
    try:
        if re.fullmatch(r"@-?\d{1,19}(\.\d{1,9})?", stripped):
            whole, _, part = stripped[1:].partition(".")
            part_ns = int(part.ljust(9, "0")) if part else 0
            return int(whole) * NS_PER_S + (-part_ns if whole.startswith("-") else part_ns)
        if re.fullmatch(rf"{_DATE}(?:[T ]{_CLOCK}{_ZONE})?", stripped):
            if stripped.endswith("Z"):
                stripped = f"{stripped[:-1]}+00:00"
            zone = re.fullmatch(r"(.*T.*[+-]\d\d|.* .*[+-]\d\d)(\d\d)", stripped)
            if zone:
                stripped = f"{zone[1]}:{zone[2]}"
            found = datetime.fromisoformat(re.sub(r"([T ])(\d):", r"\g<1>0\2:", stripped))
            return int(found.timestamp()) * NS_PER_S
    except (ValueError, OverflowError, OSError):
        pass  # the day does not exist, or is out of range
    raise invalid(option, text, expected)


def next_clock_s(text: str, now_s: float) -> float:
    """Return when a clock will next show this time."""
    parts = [int(part) for part in text.split(":")]
    hour, minute, second = (*parts, 0)[:3]
    today = time.localtime(now_s)
    day = today.tm_mday
    while True:
        at_s = time.mktime((today.tm_year, today.tm_mon, day, hour, minute, second, 0, 0, -1))
        if at_s > now_s:
            return at_s
        day += 1
