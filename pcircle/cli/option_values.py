"""The values of options that name times, users, groups, kinds and patterns.

Most runs use none of these options, so `pcircle.cli.options.later` imports this module on demand.
Owners are given as in chown, and maps of owners as in rsync. Errors name the option.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Sequence

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import (
    MAX_NS,
    MIN_NS,
    NS_PER_S,
    format_duration,
    invalid,
    is_whole,
    parse_duration,
    timestamp,
)
from pcircle.fs.attributes.owners import IdRule
from pcircle.fs.status import birth_ns
from pcircle.runtime import TimeLimit
from pcircle.walk.attributes import KINDS, Moment

_FILE = "file:"
_LARGEST = (1 << 63) - 1  # the largest integer that plans can store
_MOMENTS = "expected a value such as 30d, 2026-11-30, 2026-11-30T18:00, @1796061600 or file:PATH"
_CLOCK = r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?"
_DATE = r"\d{4}-\d\d-\d\d"
_ZONE = r"(Z|[+-]\d\d:?\d\d)?"
TIMES = "expected a value such as 2026-11-30, 2026-11-30T18:00 or @1796061600"
_MAX_ID = (1 << 32) - 2  # to the kernel, the highest number means "unchanged"
_MAX_DIGITS = 10
_WILD = frozenset("*?[")


def refuse_without_birth_times(paths: Iterable[bytes]) -> None:
    """Raise UsageError if the file system of a PATH does not store birth times."""
    for path in paths:
        if os.path.isdir(path) and birth_ns(path, None, follow=True) is None:
            reason = "its file system does not store birth times"
            raise UsageError(f"--by-time=btime: '{show(path)}': {reason}")


def moment_of(option: str, text: str) -> Moment:
    """Parse a date, an age, or `file:PATH` for the modification time of a file.

    Raises UsageError.
    """
    if text.startswith(_FILE):
        path = os.fsencode(text[len(_FILE) :])
        try:
            return Moment(timestamp(os.stat(path).st_mtime_ns))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"{option}: cannot look up '{show(path)}': {reason}") from None
    try:
        ago_s = parse_duration(text)
    except ValueError:
        moment = Moment(timestamp(date_ns(option, text, _MOMENTS)))
    else:
        moment = Moment(timestamp(round(ago_s * 1e9)), ago=True)
    if not MIN_NS <= moment.time.ns <= MAX_NS:
        raise invalid(option, text, "out of range")
    return moment


def kinds_of(option: str, text: str) -> str:
    """Parse a comma-separated list of kinds. Raises UsageError."""
    letters = text.split(",")
    for letter in letters:
        if len(letter) != 1 or letter not in KINDS:
            raise invalid(option, text, f"must be a comma-separated list of {', '.join(KINDS)}")
    return "".join(sorted(set(letters)))


def expressions_of(option: str, texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return regular expressions as bytes. Raises UsageError if one is invalid."""
    return tuple(_expression(option, text) for text in texts)


def _expression(option: str, text: str) -> bytes:
    pattern = os.fsencode(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # for example, '[[a]' causes one
            re.compile(pattern)
    except FutureWarning as error:
        raise invalid(option, text, f"ambiguous: {error}") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise invalid(option, text, f"invalid regular expression: {error}") from None
    return pattern


def users_of(option: str, text: str) -> tuple[int, ...]:
    """Return the IDs of a list of users. Raises UsageError if one is unknown."""
    import pwd  # few runs name one

    return _numbers(option, text, lambda name: pwd.getpwnam(name).pw_uid)


def groups_of(option: str, text: str) -> tuple[int, ...]:
    """Return the IDs of a list of groups. Raises UsageError if one is unknown."""
    import grp  # as above

    return _numbers(option, text, lambda name: grp.getgrnam(name).gr_gid)


def _numbers(option: str, text: str, number_of: Callable[[str], int]) -> tuple[int, ...]:
    found = set()
    for word in text.split(","):
        try:
            chosen = int(word) if is_whole(word) else number_of(word)
        except (KeyError, ValueError):
            chosen = _LARGEST + 1
        if chosen > _LARGEST:
            raise UsageError(f"{option}: unknown '{show(os.fsencode(word))}'")
        found.add(chosen)
    return tuple(sorted(found))


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


class Owner(msgspec.Struct, frozen=True):
    """The IDs of a user and a group; an ID that is not specified is None."""

    uid: int | None
    gid: int | None


def number_of(kind: str, name: str) -> int:
    """Return the ID of a user ("u") or a group ("g"), by name or number. Raises ValueError."""
    if not name.startswith("+"):
        try:
            if kind == "u":
                import pwd  # imported late: few runs name a user or group

                return pwd.getpwnam(name).pw_uid
            import grp  # imported late like pwd

            return grp.getgrnam(name).gr_gid
        except (KeyError, UnicodeEncodeError):
            pass  # not a name: it must be a number
    number = _number(name.removeprefix("+"))
    if number is not None and number <= _MAX_ID:
        return number
    raise ValueError(f"unknown {'user' if kind == 'u' else 'group'} '{_shown(name)}'")


def _number(digits: str) -> int | None:
    """Return the value of decimal digits, or None for any other text.

    If there are more than `_MAX_DIGITS` digits, the result is `_MAX_ID` + 1.
    """
    if not is_whole(digits):
        return None
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MAX_DIGITS else _MAX_ID + 1


def _shown(text: str) -> str:
    return show(os.fsencode(text))


def user_of(option: str, name: str) -> int:
    """Return a user's ID. Raises UsageError."""
    return _known(option, "u", name)


def group_of(option: str, name: str) -> int:
    """Return a group's ID. Raises UsageError."""
    return _known(option, "g", name)


def _known(option: str, kind: str, name: str) -> int:
    try:
        return number_of(kind, name)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def read_owner(option: str, text: str, *, login: bool = True) -> Owner:
    """Parse OWNER, OWNER:GROUP, OWNER: or :GROUP. Raises UsageError.

    If `login` is set, `OWNER:` selects the user's login group.
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
    """Parse a list of FROM:TO, as in ``rsync --usermap``. Raises UsageError.

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
        return IdRule(0, 0, to, "[0-9]*")  # an ID without a name is matched as a number
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
