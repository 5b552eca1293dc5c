"""The options that all tools that walk have in common, with their meaning."""

from __future__ import annotations

import argparse
import math
import os
from typing import Any

import msgspec

from pcircle.cli.filters import attributes_of
from pcircle.cli.progress import Mode
from pcircle.core.errors import UsageError
from pcircle.core.values import (
    interval_s,
    invalid,
    number,
    number_of_jobs,
    number_of_threads,
    parse_number,
)
from pcircle.transport.launch import TransportOption
from pcircle.walk.attributes import ANY, Attributes

_ALL = 100
_OF_DIFF = frozenset(
    (
        *("diff", "json", "quiet", "verbose", "progress", "interval", "jobs", "transport", "words"),
        *("insecure_links", "syslog"),
    )
)


class CommonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The common options of tools that walk.

    `filters` are arguments of `pcircle.cli.inputs.rules_of`; `wanted` is what entries must be.
    `files_from` restricts the job to the paths of a list; with `null` lists are NUL-terminated.
    `threads` None is adaptive, `jobs` None the number of cores. `polite` is as in `TreePlan`. With
    `silent` nothing is printed, for calls from programs. With `strict_operands` PATHs must be
    absolute, normal and without links; with `insecure_links` files that options name may be opened
    along any link. Operations that take longer than `op_timeout_s` fail.
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
    progress: Mode = "auto"
    interval_s: float = 10.0
    json: str | None = None
    error_log: str | None = None
    silent: bool = False
    strict_operands: bool = False
    insecure_links: bool = False
    op_timeout_s: float | None = None


def common(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `CommonOptions` from parsed options. UsageError."""
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
        "progress": args.progress,
        "interval_s": interval_s("--interval", args.interval),
        "json": args.json,
        "error_log": args.error_log,
        "strict_operands": args.strict_operands,
        "insecure_links": args.insecure_links,
        "op_timeout_s": _op_timeout_s(args.op_timeout) if "op_timeout" in args else None,
    }


def _op_timeout_s(text: str | None) -> float | None:
    """Return the value of --op-timeout, for tools that only read. UsageError."""
    return None if text is None else interval_s("--op-timeout", text)


def _share(text: str | None) -> float | None:
    """Return the value of --polite. UsageError."""
    if text is None:
        return None
    percent = number("--polite", text.removesuffix("%"), parse_number)
    if not 0 < percent <= _ALL:
        raise invalid("--polite", text, "must be a percentage, greater than 0")
    return percent / _ALL


def rate_of(text: str | None) -> float | None:
    """Return the value of --ops-limit. UsageError."""
    if text is None:
        return None
    rate = number("--ops-limit", text, parse_number)
    if not 0 < rate < math.inf:
        raise invalid("--ops-limit", text, "rate must be positive and finite")
    return rate


def refuse_others(args: argparse.Namespace, takes: str, **defaults: str) -> None:
    """Raise UsageError if `--diff` is combined with options that it would ignore.

    `takes` are the permitted options; `defaults` are the values of options that are never empty.
    """
    given = {name for name, value in vars(args).items() if value not in (None, False, [])}
    defaults |= {"progress": "auto", "transport": "auto", "interval": "10"}
    given -= {name for name, value in defaults.items() if getattr(args, name) == value}
    if given - _OF_DIFF:
        raise UsageError(f"--diff takes {takes} and no other option")


def refuse_idle_null(args: argparse.Namespace) -> None:
    """Raise UsageError for `--null` without an option that names a file of paths or patterns."""
    named = any(kind.endswith("-from") for kind, _ in args.filters or ())
    listed = getattr(args, "list_out", None)  # not every tool writes one
    idle = args.null and not getattr(args, "prints_null", False)
    if idle and not named and args.files_from is None and listed is None:
        raise UsageError("--null requires --files-from, --exclude-from or --include-from")
