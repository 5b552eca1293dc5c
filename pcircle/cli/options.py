"""The options of several tools, each declared once.

A tool takes them by section (`CommonOptions.FILTERS`), by group (`CommonOptions.STOP`) or by name
(`taken("one_file_system")`). This module is imported before a command line is parsed.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcircle import __version__
from pcircle.cli.arguments import FILTERS as PATTERNS
from pcircle.cli.arguments import Filter, ShowVersion
from pcircle.cli.declarations import Option, Options, Section, option
from pcircle.core.errors import UsageError
from pcircle.core.units import (
    MAX_THREADS,
    NS_PER_S,
    invalid,
    is_whole,
    number,
    parse_duration,
    parse_number,
    parse_size,
    positive,
)
from pcircle.core.units import interval_s as seconds_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from pcircle.cli.progress import Mode
    from pcircle.jobs.change_task import MaxDelete
    from pcircle.runtime import TimeLimit
    from pcircle.transport.launch import TransportOption
    from pcircle.walk.attributes import AttributeFilter, Moment, Time

_ALL = 100
_MAX_SEED_DIGITS = 18
_WITHOUT_RANKS = frozenset(("json", "quiet", "insecure_links", "syslog"))
"""The common options of a command that reads a few files on rank 0, without a job."""


def _filters(_: str, given: Sequence[Filter]) -> tuple[tuple[str, bytes], ...]:
    return tuple((kind, os.fsencode(text)) for kind, text in given)


def later(function: str, module: str = "option_values") -> Callable[[str, Any], Any]:
    """Return a parser that imports its function from `pcircle.cli` when it is first called."""

    def parse(name: str, value: Any) -> Any:
        if value == ():  # of a repeatable option that is not given
            return value
        found = import_module(f"pcircle.cli.{module}")
        return getattr(found, function)(name, value)

    return parse


def size_of(name: str, text: str) -> int:
    """Return a size in bytes. Raises UsageError."""
    return int(number(name, text, parse_size))


def _share(name: str, text: str) -> float:
    percent = number(name, text.removesuffix("%"), parse_number)
    if not 0 < percent <= _ALL:
        raise invalid(name, text, "must be a percentage above 0 and up to 100")
    return percent / _ALL


def rate_of(name: str, text: str, parse: Callable[[str], float] = parse_number) -> float:
    """Return a number per second, such as operations or bytes. Raises UsageError."""
    rate = number(name, text, parse)
    if not 0 < rate < math.inf:
        raise invalid(name, text, "rate must be positive and finite")
    return rate


def window_ns_of(name: str, text: str) -> int:
    """Return the difference in nanoseconds that does not count, possibly 0. Raises UsageError."""
    window_s = number(name, text, parse_duration)
    if window_s == math.inf:
        raise invalid(name, text, "must be finite")
    return round(window_s * NS_PER_S)


def seed_of(name: str, text: str) -> int:
    """Return a seed of random numbers. Raises UsageError."""
    if not is_whole(text) or len(text) > _MAX_SEED_DIGITS:
        raise invalid(name, text, "must be 0 or a positive integer")
    return int(text)


def most_of(most: int) -> Any:
    """Return a parser of whole numbers from 1 to *most*."""
    return partial(positive, most=most)


def _kinds() -> str:
    from pcircle.walk.attributes import KINDS

    return KINDS


def _pattern_option(kind: str, metavar: str, text: str) -> Any:
    return Option(
        f"--{kind}",
        dest="filters",
        action="append",
        metavar=metavar,
        type=partial(Filter, kind),
        help=text,
        repeatable=True,
        parse=_filters,
    )


class CommonOptions(Options, root="PATH", done="done"):
    """The options of several tools.

    `filters` contains arguments of `pcircle.cli.inputs.rules_of`. `files_from` restricts the job to
    the paths of a list; if `null` is set, lists are NUL-terminated. If `threads` is None, their
    number is adaptive; if `jobs` is None, it depends on the work and the number of cores, up to 8.
    `polite` is as in `TreePlan`. If `silent` is set, nothing is printed, for calls from programs.
    If `strict_operands` is set, PATHs must be absolute, normal and without links. If
    `insecure_links` is set, files that options name may be opened through any symbolic link.
    Operations that take longer than `op_timeout_s` fail. `words` are the arguments as typed.
    """

    silent: bool = False
    words: tuple[str, ...] = ()

    FILTERS = Section("Filters", PATTERNS)
    filters: tuple[tuple[str, bytes], ...] = _pattern_option(
        "exclude", "GLOB", "exclude entries that match GLOB"
    ).changed(
        called="filters",
        same_on_resume="rules",
        also=(
            _pattern_option("exclude-from", "FILE", "read exclude patterns from FILE"),
            _pattern_option("include", "GLOB", "include entries that match GLOB"),
            _pattern_option("include-from", "FILE", "read include patterns from FILE"),
        ),
    )
    files_from: str | None = option(
        "--files-from",
        metavar="FILE",
        same_on_resume="listed",
        help="only the paths below {root} listed in FILE (-: stdin)",
    )
    null: bool = option("-0", "--null", help="end list entries with NUL, not newline")
    newer_than: Moment | None = option(
        "--newer-than",
        metavar="T",
        parse=later("moment_of"),
        same_on_resume=True,
        help="only entries newer than T: 30d, 2026-11-30, @0, file:PATH",
    )
    older_than: Moment | None = option(
        "--older-than",
        metavar="T",
        parse=later("moment_of"),
        same_on_resume=True,
        help="only entries that are not newer than T",
    )
    by_time: Time = option(
        "--by-time",
        choices=("mtime", "ctime", "atime", "btime"),
        otherwise="mtime",
        requires=("newer_than", "older_than"),
        same_on_resume=True,
        help="time that both filters use (default: mtime)",
    )
    min_bytes: int | None = option(
        "--min-size",
        metavar="SIZE",
        parse=size_of,
        same_on_resume=True,
        help="only files of SIZE or more",
    )
    max_bytes: int | None = option(
        "--max-size",
        metavar="SIZE",
        parse=size_of,
        same_on_resume=True,
        help="only files of SIZE or less",
    )
    owners: tuple[int, ...] | None = option(
        "--owner",
        metavar="LIST",
        dest="owner",
        takes="users",
        parse=later("users_of"),
        same_on_resume=True,
        help="only entries owned by these users (names or numbers)",
    )
    groups: tuple[int, ...] | None = option(
        "--group",
        metavar="LIST",
        dest="group",
        takes="groups",
        parse=later("groups_of"),
        same_on_resume=True,
        help="only entries with these groups (names or numbers)",
    )
    kinds: str | None = option(
        "--kind",
        metavar="LIST",
        parse=later("kinds_of"),
        word_list=_kinds,
        same_on_resume=True,
        help="only entries of these kinds: f, d, l, p, s, b, c",
    )
    match: tuple[bytes, ...] = option(
        "--match",
        metavar="REGEX",
        repeatable=True,
        parse=later("expressions_of"),
        same_on_resume=True,
        help="only entries whose path below {root} matches REGEX",
    )
    skip_offline: bool = option(
        "--skip-offline", same_on_resume=True, help="skip offline files, whose data is on tape"
    )

    SAFETY = Section("Safety")
    strict_operands: bool = option(
        "--strict-operands", help="require absolute operands without symbolic links"
    )
    insecure_links: bool = option(
        "--insecure-links", help="follow any symbolic link when opening a FILE argument"
    )

    PERFORMANCE = Section("Performance")
    jobs: int | None = option(
        "-j",
        "--jobs",
        metavar="N",
        parse=positive,
        help="number of processes (per rank under MPI; default: up to 8)",
    )
    transport: TransportOption = option(
        "--transport",
        choices=("auto", "mpi", "local"),
        default="auto",
        help="use MPI or local processes (default: auto)",
    )
    threads: int | None = option(
        "--threads",
        metavar="N",
        parse=most_of(MAX_THREADS),
        help="concurrent operations per process (default: adaptive)",
    )

    OUTPUT = Section("Output")
    quiet: bool = option("-q", "--quiet", help="report failures only")
    verbose: int = option(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="report what was done (-vv: also inter-process traffic)",
    )
    stats: int = option(
        "--stats",
        action="count",
        default=0,
        help="print a table of processes (given twice: with traffic)",
    )
    progress: Mode = option(
        "--progress",
        choices=("auto", "always", "never"),
        default="auto",
        help="show progress (default: auto)",
    )
    interval_s: float = option(
        "--interval",
        metavar="T",
        default="10",
        parse=seconds_of,
        help="time between progress lines (default: 10 s)",
    )
    json: str | None = option(
        "--json", metavar="FILE", help="write the result as JSON (-: standard output)"
    )
    error_log: str | None = option(
        "--error-log", metavar="FILE", help="write a line of JSON for each failed entry"
    )
    syslog: bool = option("--syslog", help="log a line to syslog at the end")
    version: Any = option(
        "--version",
        action=ShowVersion,
        version=__version__,
        help="show the version",
    )

    ONE_FILE_SYSTEM = Section()
    one_file_system: bool = option(
        "-x", "--one-file-system", called="-x", same_on_resume=True, help="stay on one file system"
    )

    RECURSIVE = Section()
    recursive: bool = option(
        "-r", "--recursive", help="with --files-from, include directory contents"
    )

    POLITE = Section()
    polite: float | None = option(
        "--polite",
        bare="50",
        metavar="LEVEL",
        takes="number",
        parse=_share,
        help="be busy at most LEVEL%% of the time (default: 50)",
    )

    NOATIME = Section()
    noatime: bool = option(
        "--open-noatime", help="do not update access times when reading, if permitted"
    )

    OP_TIMEOUT = Section()
    op_timeout_s: float | None = option(
        "--op-timeout",
        metavar="T",
        parse=seconds_of,
        help="give up on entries if a file system does not respond in T",
    )

    STOP = Section()
    stop_after_s: float | None = option(
        "--stop-after",
        metavar="T",
        parse=seconds_of,
        excludes=("stop_at_s",),
        help="stop cleanly after T (exit code 4)",
    )
    stop_at_s: float | None = option(
        "--stop-at",
        metavar="TIME",
        parse=later("stop_at_s"),
        help="stop cleanly at TIME: 18:30 or 2026-11-30T18:30",
    )

    OPS_LIMIT = Section()
    operations_per_s: float | None = option(
        "--ops-limit",
        metavar="N",
        parse=rate_of,
        help="total limit on operations per second",
    )

    BANDWIDTH = Section()
    bytes_per_s: float | None = option(
        "--bwlimit",
        metavar="RATE",
        parse=partial(rate_of, parse=parse_size),
        help="total limit on bytes per second",
    )

    RECORDS = Section()
    list_out: str | None = option(
        "--list-out",
        metavar="FILE",
        help="write a list of the {done} entries, for --files-from",
    )
    json_lines: str | None = option(
        "--json-lines",
        metavar="FILE",
        help="write a line of JSON for each action (-: standard output)",
    )

    PLANS = Section()
    plan: str | None = option(
        "--plan", metavar="FILE", help="write a plan for --apply instead of removing"
    )
    apply: str | None = option(
        "--apply",
        metavar="FILE",
        help="remove the entries in a plan, unless they have changed",
    )
    max_delete: MaxDelete | None = option(
        "--max-delete",
        metavar="N",
        parse=later("max_delete_of", "change_program"),
        excludes=("plan",),
        hints={"plan": "; add it to --apply"},
        help="remove nothing if more than N (or N%%) would be removed",
    )

    DRY_RUN = Section()
    dry: bool = option("--dry-run", help="show what would be done (with -v: list the entries)")

    @classmethod
    def of(cls, args: argparse.Namespace, **others: Any) -> Self:
        return super().of(args, **{"words": vars(args).get("words", ()), **others})

    @cached_property
    def attribute_filter(self) -> AttributeFilter:
        """The attributes that entries must have: the options that are named like its fields."""
        from pcircle.walk.attributes import AttributeFilter

        return AttributeFilter(**self.planned(AttributeFilter))

    def time_limit(self) -> TimeLimit | None:
        """Return the time limit of a job that starts now."""
        if self.stop_after_s is None and self.stop_at_s is None:
            return None
        from pcircle.cli.option_values import limit_of

        return limit_of(self.stop_after_s, self.stop_at_s)

    def refuse_without_birth_times(self, paths: Iterable[bytes]) -> None:
        """Raise UsageError if birth times select entries, but a PATH's file system stores none."""
        if self.attribute_filter.by_time == "btime":
            from pcircle.cli.option_values import refuse_without_birth_times

            refuse_without_birth_times(paths)

    @property
    def selects_by_attribute(self) -> bool:
        """Return whether entries are selected by attributes."""
        from pcircle.walk.attributes import ANY

        return self.attribute_filter != ANY

    @property
    def has_filters(self) -> bool:
        """Return whether entries are selected by patterns or attributes."""
        return bool(self.filters) or self.selects_by_attribute

    def refuse_conflicts(self) -> None:
        if self.max_bytes is not None and (self.min_bytes or 0) > self.max_bytes:
            raise UsageError("--min-size is larger than --max-size")
        is_used = self.list_out is not None or self.files_from is not None
        if self.null and not is_used and not self.prints_null and not self._reads_patterns:
            raise UsageError("--null requires --files-from, --exclude-from or --include-from")

    @property
    def prints_null(self) -> bool:
        """Return whether `null` also terminates names that are printed."""
        return False

    @property
    def _reads_patterns(self) -> bool:
        return any(kind.endswith("-from") for kind, _ in self.filters)

    @classmethod
    def refuse_others(
        cls, args: argparse.Namespace, option: str, takes: str, operands: int = 0
    ) -> None:
        """Raise UsageError if `option` is combined with options of jobs or too many operands.

        `takes` describes, in the message, what the option takes. Up to `operands` operands are
        accepted.
        """
        given = {name for name, declared in cls.offered() if declared.is_given(args)}
        if given - _WITHOUT_RANKS - {option} or len(args.operands) > operands:
            raise UsageError(f"--{option} takes {takes} and no other option")
