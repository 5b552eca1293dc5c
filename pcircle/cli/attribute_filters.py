"""The values of the options that filter entries by their attributes.

Errors name the option.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence

from pcircle.cli.times import date_ns
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import MAX_NS, MIN_NS, invalid, parse_duration, timestamp
from pcircle.fs.status import birth_ns
from pcircle.walk.attributes import KINDS, Moment

_FILE = "file:"
_LARGEST = (1 << 63) - 1  # the largest integer that plans can store
_MOMENTS = "expected a value such as 30d, 2026-11-30, 2026-11-30T18:00, @1796061600 or file:PATH"


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
            chosen = int(word) if word.isdecimal() else number_of(word)
        except (KeyError, ValueError):
            chosen = _LARGEST + 1
        if chosen > _LARGEST:
            raise UsageError(f"{option}: unknown '{show(os.fsencode(word))}'")
        found.add(chosen)
    return tuple(sorted(found))
