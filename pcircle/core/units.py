"""Sizes, durations, rates and counts: read from a command line, shown in a report.

The idea: one reading of ``64k`` in every option of every tool, and one way to show it back.
Sizes follow GNU coreutils (``k`` and ``KiB`` are 1024, ``kB`` is 1000), except that case never
matters.  All of it is integer arithmetic where it can be, so no byte count is rounded on its way
through a float, and what is shown never reads ``1024.0 KiB``.

What this is not: a place that knows of options or exit codes.  A text that can't be read is a
``ValueError`` that quotes it; the caller says which option it came from.

A leaf of the package: it imports nothing of it.
"""

from __future__ import annotations

import math
import re

__all__ = [
    "format_count",
    "format_duration",
    "format_rate",
    "format_size",
    "parse_duration",
    "parse_size",
]

# Compiled by `re` when they are first used: most runs need none.
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
_DAY_S = 86400


def parse_size(text: str) -> int:
    """The bytes that *text* names: ``4096``, ``64k`` or ``1.5GiB`` (binary), ``2GB`` (decimal).

    A fraction is taken exactly and rounded down to a whole byte.  ValueError quotes what can't be
    read, and refuses what no file can be (2**63 and more).
    """
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"invalid size {text!r}: must be like 4096, 64k, 1.5MiB or 2GB")
    whole, fraction, _, prefix, suffix = match.groups(default="")
    base = 1000 if suffix.lower() == "b" else 1024
    unit_bytes = base ** (_PREFIXES.index(prefix.lower()) + 1) if prefix else 1
    size_bytes: int = int(whole + fraction) * unit_bytes // 10 ** len(fraction)
    if size_bytes > _MAX_SIZE_BYTES:
        raise ValueError(f"size too large: {text!r}")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """*size_bytes* with one decimal in the largest binary unit that fits: ``1.5 GiB``, ``12 B``."""
    if size_bytes < 0:
        return "-" + format_size(-size_bytes)
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = min((size_bytes.bit_length() - 1) // 10, len(_SIZE_UNITS) - 1)
    tenths = _tenths(size_bytes, power)
    # 1023.95 KiB would read 1024.0 KiB: the next unit says it better.
    if tenths >= 10240 and power < len(_SIZE_UNITS) - 1:
        power += 1
        tenths = _tenths(size_bytes, power)
    return f"{tenths // 10}.{tenths % 10} {_SIZE_UNITS[power]}"


def _tenths(size_bytes: int, power: int) -> int:
    """*size_bytes* in tenths of 1024 ** *power* bytes, rounded half up."""
    unit_bytes = 1 << (10 * power)
    return (size_bytes * 20 + unit_bytes) // (2 * unit_bytes)


def parse_duration(text: str) -> float:
    """The seconds that *text* names: ``30``, ``0.5s``, ``250ms``, ``5m``, ``1h30m``, ``2d``.

    Without a unit it is seconds.  ValueError quotes what can't be read; zero is a duration, and
    whether it makes sense is the caller's to say.
    """
    stripped = text.strip()
    if re.fullmatch(_PLAIN_SECONDS, stripped):
        return float(stripped)
    if not re.fullmatch(_DURATION, stripped, re.IGNORECASE | re.ASCII):
        raise ValueError(f"invalid duration {text!r}: must be like 30, 0.5s, 5m or 2h")
    return math.fsum(
        float(number) * _SECONDS_OF[unit.lower()]
        for number, unit in re.findall(_DURATION_PART, stripped, re.IGNORECASE | re.ASCII)
    )


def format_duration(duration_s: float) -> str:
    """*duration_s* seconds to some three digits: ``0.21s``, ``12.3s``, ``5m03s``, ``3d04h``.

    :func:`parse_duration` reads it back.  What is not finite is ``?``, as nobody knows it.
    """
    if not math.isfinite(duration_s):
        return "?"
    if duration_s < 0:
        return "-" + format_duration(-duration_s)
    # The limits are where rounding would carry: 9.995 must read 10.0, never 10.00.
    if duration_s < 9.995:
        return f"{duration_s:.2f}s"
    if duration_s < 59.95:
        return f"{duration_s:.1f}s"
    whole_s = int(duration_s + 0.5)
    if whole_s < _HOUR_S:
        return f"{whole_s // _MINUTE_S}m{whole_s % _MINUTE_S:02}s"
    whole_min = int(duration_s / _MINUTE_S + 0.5)
    if whole_min * _MINUTE_S < _DAY_S:
        return f"{whole_min // 60}h{whole_min % 60:02}m"
    whole_h = int(duration_s / _HOUR_S + 0.5)
    return f"{whole_h // 24}d{whole_h % 24:02}h"


def format_rate(rate_bytes_s: float) -> str:
    """*rate_bytes_s* bytes per second: ``372.1 MiB/s``; ``?`` for what is not finite."""
    if not math.isfinite(rate_bytes_s):
        return "?"
    return f"{format_size(round(rate_bytes_s))}/s"


def format_count(count: int) -> str:
    """*count* with its thousands apart: ``1,234,567``."""
    return f"{count:,}"


def plural(count: int, one: str, many: str) -> str:
    """A number of things, in words."""
    return f"{format_count(count)} {one if count == 1 else many}"
