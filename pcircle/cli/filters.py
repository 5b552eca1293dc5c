"""Filters by attributes of entries, from options. Errors name the option."""

from __future__ import annotations

import argparse
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable

from pcircle.cli.times import date_ns
from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.core.timestamps import MAX_NS, MIN_NS, timestamp
from pcircle.core.units import parse_duration, parse_size
from pcircle.core.values import invalid, number
from pcircle.fs.status import birth_ns
from pcircle.walk.attributes import KINDS, Attributes, Moment

_FILE = "file:"
_LARGEST = (1 << 63) - 1  # the largest integer that plans can carry
_MOMENTS = "must be like 30d, 2026-11-30, 2026-11-30T18:00, @1796061600 or file:PATH"


def attributes_of(args: argparse.Namespace) -> Attributes:
    """Return the attributes that the options require of entries. UsageError."""
    newer, older = args.newer_than, args.older_than
    if args.by_time is not None and newer is None and older is None:
        raise UsageError("--by-time requires --newer-than or --older-than")
    owners, groups = getattr(args, "owner_options", ("--owner", "--group"))
    smallest = _size("--min-size", args.min_size)
    largest = _size("--max-size", args.max_size)
    if smallest is not None and largest is not None and smallest > largest:
        raise UsageError("--min-size is larger than --max-size")
    return Attributes(
        newer=None if newer is None else moment_of("--newer-than", newer),
        older=None if older is None else moment_of("--older-than", older),
        by_time=args.by_time or "mtime",
        min_bytes=smallest,
        max_bytes=largest,
        owners=_numbers(owners, args.owner, _user),
        groups=_numbers(groups, args.group, _group),
        kinds=_kinds(args.kind),
        match=tuple(map(_expression, args.match or ())),
        online=args.skip_offline,
    )


def refuse_ageless(wanted: Attributes, paths: Iterable[bytes]) -> None:
    """Raise UsageError if birth times are required below a PATH that has none."""
    if wanted.by_time != "btime":
        return
    for path in paths:
        if os.path.isdir(path) and birth_ns(path, None, follow=True) is None:
            reason = "its file system keeps no birth times"
            raise UsageError(f"--by-time=btime: '{show(path)}': {reason}")


def now_ns() -> int:
    """Return the time from which ages are counted, read once per job, on rank 0."""
    return time.time_ns()


def moment_of(option: str, text: str) -> Moment:
    """Parse a date, an age, or `file:PATH` for the modification time of a file. UsageError."""
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


def _size(option: str, text: str | None) -> int | None:
    return None if text is None else int(number(option, text, parse_size))


def _kinds(text: str | None) -> str | None:
    if text is None:
        return None
    wanted = text.split(",")
    for letter in wanted:
        if len(letter) != 1 or letter not in KINDS:
            raise invalid("--kind", text, f"must be a list of {', '.join(KINDS)}")
    return "".join(sorted(set(wanted)))


def _expression(text: str) -> bytes:
    pattern = os.fsencode(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # such as for '[[a]'
            re.compile(pattern)
    except FutureWarning as error:
        raise invalid("--match", text, f"ambiguous: {error}") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise invalid("--match", text, f"not a regular expression: {error}") from None
    return pattern


def _numbers(
    option: str, text: str | None, number_of: Callable[[str], int]
) -> tuple[int, ...] | None:
    """Return the numbers of users or groups. UsageError."""
    if text is None:
        return None
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


def _user(name: str) -> int:
    import pwd  # few runs name one

    return pwd.getpwnam(name).pw_uid


def _group(name: str) -> int:
    import grp  # as above

    return grp.getgrnam(name).gr_gid
