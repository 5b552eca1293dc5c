"""The options common to all tools that walk trees, including filters by entry attributes.

Errors name the option.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pcircle.cli.progress import Mode
from pcircle.cli.times import date_ns
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import (
    MAX_NS,
    MIN_NS,
    interval_s,
    invalid,
    number,
    number_of_jobs,
    number_of_threads,
    parse_duration,
    parse_number,
    parse_size,
    timestamp,
)
from pcircle.fs.status import birth_ns
from pcircle.transport.launch import TransportOption
from pcircle.walk.attributes import ANY, KINDS, Attributes, Moment

_ALL = 100
_OF_DIFF = frozenset(
    (
        *(
            "diff",
            "json",
            "quiet",
            "verbose",
            "stats",
            "progress",
            "interval",
            "jobs",
            "transport",
            "words",
        ),
        *("insecure_links", "syslog"),
    )
)


class CommonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The common options of tools that walk trees.

    `filters` contains arguments of `pcircle.cli.inputs.rules_of`, and `wanted` the attributes that
    entries must have. `files_from` restricts the job to the paths of a list; if `null` is set,
    lists are NUL-terminated. If `threads` is None, their number is adaptive; if `jobs` is None, it
    is the number of cores. `polite` is as in `TreePlan`. If `silent` is set, nothing is printed,
    for calls from programs. If `strict_operands` is set, PATHs must be absolute, normal and without
    links; if `insecure_links` is set, files that options name may be opened along any link.
    Operations that take longer than `op_timeout_s` fail.
    """

    filters: tuple[tuple[str, bytes], ...] = ()
    wanted: Attributes = ANY
    null: bool = False
    files_from: str | None = None
    one_file_system: bool = False
    threads: int | None = None
    jobs: int | None = None
    polite: float | None = None
    transport: TransportOption = "auto"
    quiet: bool = False
    verbose: int = 0
    stats: int = 0
    progress: Mode = "auto"
    interval_s: float = 10.0
    json: str | None = None
    error_log: str | None = None
    silent: bool = False
    strict_operands: bool = False
    insecure_links: bool = False
    op_timeout_s: float | None = None


def common(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `CommonOptions` from parsed options. Raises UsageError."""
    return {
        "filters": tuple((kind, os.fsencode(text)) for kind, text in args.filters or ()),
        "wanted": attributes_of(args),
        "null": args.null,
        "files_from": args.files_from,
        "one_file_system": args.one_file_system,
        "threads": None if args.threads is None else number_of_threads(args.threads),
        "jobs": None if args.jobs is None else number_of_jobs(args.jobs),
        "polite": _share(args.polite) if "polite" in args else None,  # not every tool has it
        "transport": args.transport,
        "quiet": args.quiet,
        "verbose": args.verbose,
        "stats": args.stats,
        "progress": args.progress,
        "interval_s": interval_s("--interval", args.interval),
        "json": args.json,
        "error_log": args.error_log,
        "strict_operands": args.strict_operands,
        "insecure_links": args.insecure_links,
        "op_timeout_s": _op_timeout_s(args.op_timeout) if "op_timeout" in args else None,
    }


def _op_timeout_s(text: str | None) -> float | None:
    """Return the value of --op-timeout, for tools that only read. Raises UsageError."""
    return None if text is None else interval_s("--op-timeout", text)


def _share(text: str | None) -> float | None:
    """Return the value of --polite. Raises UsageError."""
    if text is None:
        return None
    percent = number("--polite", text.removesuffix("%"), parse_number)
    if not 0 < percent <= _ALL:
        raise invalid("--polite", text, "must be a percentage, greater than 0")
    return percent / _ALL


def rate_of(text: str | None) -> float | None:
    """Return the value of --ops-limit. Raises UsageError."""
    if text is None:
        return None
    rate = number("--ops-limit", text, parse_number)
    if not 0 < rate < math.inf:
        raise invalid("--ops-limit", text, "rate must be positive and finite")
    return rate


def refuse_others(args: argparse.Namespace, takes: str, **defaults: str) -> None:
    """Raise UsageError if `--diff` is combined with options that it would ignore.

    `takes` names the permitted options; `defaults` contains the values of options that are never
    empty.
    """
    given = {name for name, value in vars(args).items() if value not in (None, False, [])}
    defaults |= {"progress": "auto", "transport": "auto", "interval": "10"}
    given -= {name for name, value in defaults.items() if getattr(args, name) == value}
    if given - _OF_DIFF:
        raise UsageError(f"--diff takes {takes} and no other option")


def refuse_useless_null(args: argparse.Namespace) -> None:
    """Raise UsageError for `--null` without an option that names a file of paths or patterns."""
    named = any(kind.endswith("-from") for kind, _ in args.filters or ())
    listed = getattr(args, "list_out", None)  # not every tool writes one
    idle = args.null and not getattr(args, "prints_null", False)
    if idle and not named and args.files_from is None and listed is None:
        raise UsageError("--null requires --files-from, --exclude-from or --include-from")


# ---- filters by attributes -----------------------------------------------------------------------

_FILE = "file:"
_LARGEST = (1 << 63) - 1  # the largest integer that plans can store
_MOMENTS = "must be like 30d, 2026-11-30, 2026-11-30T18:00, @1796061600 or file:PATH"


def attributes_of(args: argparse.Namespace) -> Attributes:
    """Return the attributes that the options require of entries. Raises UsageError."""
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


def refuse_without_birth_times(wanted: Attributes, paths: Iterable[bytes]) -> None:
    """Raise UsageError if birth times are required below a PATH whose file system keeps none."""
    if wanted.by_time != "btime":
        return
    for path in paths:
        if os.path.isdir(path) and birth_ns(path, None, follow=True) is None:
            reason = "its file system keeps no birth times"
            raise UsageError(f"--by-time=btime: '{show(path)}': {reason}")


def now_ns() -> int:
    """Return the time to which ages refer; rank 0 reads it once per job."""
    return time.time_ns()


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
            warnings.simplefilter("error", FutureWarning)  # for example, '[[a]' causes one
            re.compile(pattern)
    except FutureWarning as error:
        raise invalid("--match", text, f"ambiguous: {error}") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise invalid("--match", text, f"not a regular expression: {error}") from None
    return pattern


def _numbers(
    option: str, text: str | None, number_of: Callable[[str], int]
) -> tuple[int, ...] | None:
    """Return the numbers of users or groups. Raises UsageError."""
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
