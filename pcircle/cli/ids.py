"""Users, groups and times on the command line.

Users and groups are OWNER:GROUP as in chown, and maps as in rsync. Times are dates, and how long a
job may run.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import NS_PER_S, format_duration, interval_s, invalid
from pcircle.fs.attributes.owners import IdRule
from pcircle.runtime import TimeLimit

_MAX_ID = (1 << 32) - 2  # the last one means "as it is" to the kernel
_MAX_DIGITS = 10
_WILD = frozenset("*?[")


class Owner(NamedTuple):
    """A user and a group; None if not specified."""

    uid: int | None
    gid: int | None


def number_of(kind: str, name: str) -> int:
    """Return the number of a user ("u") or a group ("g"), by name or number. ValueError."""
    if not name.startswith("+"):
        try:
            if kind == "u":
                import pwd  # few runs name one

                return pwd.getpwnam(name).pw_uid
            import grp  # as above

            return grp.getgrnam(name).gr_gid
        except (KeyError, UnicodeEncodeError):
            pass  # not a name: it must be a number
    number = _number(name.removeprefix("+"))
    if number is not None and number <= _MAX_ID:
        return number
    raise ValueError(f"unknown {'user' if kind == 'u' else 'group'} '{_shown(name)}'")


def _number(digits: str) -> int | None:
    """Return the value of decimal digits, at most `_MAX_ID` + 1; None for any other text."""
    if not (digits.isascii() and digits.isdecimal()):
        return None
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MAX_DIGITS else _MAX_ID + 1


def _shown(text: str) -> str:
    return show(os.fsencode(text))


def user_of(option: str, name: str) -> int:
    """Return the number of a user. UsageError."""
    return _known(option, "u", name)


def group_of(option: str, name: str) -> int:
    """Return the number of a group. UsageError."""
    return _known(option, "g", name)


def _known(option: str, kind: str, name: str) -> int:
    try:
        return number_of(kind, name)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def read_owner(option: str, text: str, *, login: bool = True) -> Owner:
    """Parse OWNER, OWNER:GROUP, OWNER: or :GROUP. UsageError.

    With `login`, `OWNER:` stands for the login group of the user.
    """
    user, colon, group = text.partition(":")
    uid = user_of(option, user) if user else None
    if group:
        return Owner(uid, group_of(option, group))
    if not (colon and user and login):
        return Owner(uid, None)
    import pwd

    try:
        return Owner(uid, pwd.getpwnam(user).pw_gid)
    except KeyError:
        raise UsageError(
            f"{option}: '{_shown(user)}' has no login group: write OWNER:GROUP"
        ) from None


def read_map(option: str, text: str) -> tuple[IdRule, ...]:
    """Parse a list of FROM:TO, as in ``rsync --usermap``. UsageError.

    FROM is a name with ``*``, ``?`` and ``[]``, a number, a range such as 0-99, or empty for
    numbers without a name.
    """
    kind = "u" if option == "--usermap" else "g"
    return tuple(_rule(option, kind, word) for word in text.split(","))


def _rule(option: str, kind: str, text: str) -> IdRule:
    origin, colon, target = text.partition(":")
    if not colon or not target:
        raise UsageError(f"{option}: invalid value '{_shown(text)}': must be FROM:TO")
    to = _known(option, kind, target)
    if origin == "*":
        return IdRule(0, _MAX_ID, to)
    if not origin:
        return IdRule(0, 0, to, "[0-9]*")  # a number stands in place of a name
    low, dash, high = origin.partition("-")
    first, last = _number(low), _number(high if dash else low)
    if first is not None and last is not None:
        if not first <= last <= _MAX_ID:
            shown = _shown(text)
            raise UsageError(f"{option}: invalid value '{shown}': not a range of numbers")
        return IdRule(first, last, to)
    if _WILD.isdisjoint(origin):
        number = _known(option, kind, origin)
        return IdRule(number, number, to)
    return IdRule(0, 0, to, origin)


# ---- times ---------------------------------------------------------------------------------------

_CLOCK = r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?"
_DATE = r"\d{4}-\d\d-\d\d"
_ZONE = r"(Z|[+-]\d\d:?\d\d)?"
TIMES = "must be like 2026-11-30, 2026-11-30T18:00 or @1796061600"


class StopTime(msgspec.Struct, frozen=True):
    """The end of a job: seconds after its start, or seconds since the epoch."""

    after_s: float | None = None
    at_s: float | None = None


def stop_of(after: str | None, at: str | None) -> StopTime:
    """Parse the values of --stop-after and --stop-at. UsageError."""
    if after is not None and at is not None:
        raise UsageError("--stop-after cannot be combined with --stop-at")
    if after is not None:
        return StopTime(after_s=interval_s("--stop-after", after))
    if at is None:
        return StopTime()
    now_s = time.time()
    at_s = next_clock_s(at, now_s) if re.fullmatch(_CLOCK, at.strip()) else date_s("--stop-at", at)
    if at_s <= now_s:
        raise invalid("--stop-at", at, "must be in the future")
    return StopTime(at_s=at_s)


def limit_of(stop: StopTime) -> TimeLimit | None:
    """Return the time limit of a job that starts now."""
    now_s = time.monotonic()
    if stop.after_s is not None:
        text = f"--stop-after {format_duration(stop.after_s)}"
        return TimeLimit(now_s + stop.after_s, f"time limit reached ({text})")
    if stop.at_s is not None:
        text = time.strftime("--stop-at %Y-%m-%dT%H:%M:%S", time.localtime(stop.at_s))
        return TimeLimit(now_s + stop.at_s - time.time(), f"time limit reached ({text})")
    return None


def date_s(option: str, text: str) -> float:
    """Parse a date, in seconds; see `date_ns`."""
    return date_ns(option, text) / NS_PER_S


def date_ns(option: str, text: str, expected: str = TIMES) -> int:
    """Parse a date, in local time unless it has a zone, or `@SECONDS`. UsageError."""
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
