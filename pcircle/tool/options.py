"""The options that the tools that walk have in common, with their meaning."""

from __future__ import annotations

import argparse
import math
import os
from typing import Any

import msgspec

from pcircle.errors import UsageError
from pcircle.tool.filters import attributes_of
from pcircle.transport.launch import TransportOption
from pcircle.ui.progress import Mode
from pcircle.ui.values import (
    interval_s,
    invalid,
    number,
    number_of_jobs,
    number_of_threads,
    parse_number,
)
from pcircle.walk.attributes import ANY, Attributes

_ALL = 100
_OF_DIFF = frozenset(
    (
        *("diff", "json", "quiet", "verbose", "progress", "interval", "jobs", "transport", "words"),
        *("insecure_links", "syslog"),
    )
)


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What every tool that walks is asked, and how it reports.

    `filters` are as of `pcircle.tool.inputs.rules_of`, and `wanted` is what entries must be. With
    `files_from` only what that list names is meant; `null`: such files are NUL-terminated.
    `threads` and `jobs` None: adaptive, and as many as there are cores. `polite` as of `TreePlan`.
    `silent`: nothing is printed, as a program has called. `strict_operands`: PATHs are absolute,
    normal and lead along no link; `insecure_links`: files that options name are opened along any.
    `op_timeout_s`: what takes longer has failed.
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


def common(typed: argparse.Namespace) -> dict[str, Any]:
    """The fields of `Common`, as typed. UsageError if they make no sense."""
    return {
        "filters": tuple((kind, os.fsencode(text)) for kind, text in typed.filters or ()),
        "wanted": attributes_of(typed),
        "null": typed.null,
        "files_from": typed.files_from,
        "one_file_system": typed.one_file_system,
        "threads": None if typed.threads is None else number_of_threads(typed.threads),
        "jobs": None if typed.jobs is None else number_of_jobs(typed.jobs),
        "polite": _share(typed.polite) if "polite" in typed else None,  # not every tool has it
        "transport": typed.transport,
        "quiet": typed.quiet,
        "verbose": typed.verbose,
        "progress": typed.progress,
        "interval_s": interval_s("--interval", typed.interval),
        "json": typed.json,
        "error_log": typed.error_log,
        "strict_operands": typed.strict_operands,
        "insecure_links": typed.insecure_links,
        "op_timeout_s": _op_timeout_s(typed.op_timeout) if "op_timeout" in typed else None,
    }


def _op_timeout_s(text: str | None) -> float | None:
    """The value of --op-timeout, which tools have that only read. UsageError."""
    return None if text is None else interval_s("--op-timeout", text)


def _share(text: str | None) -> float | None:
    """The value of --polite. UsageError."""
    if text is None:
        return None
    percent = number("--polite", text.removesuffix("%"), parse_number)
    if not 0 < percent <= _ALL:
        raise invalid("--polite", text, "must be a percentage, greater than 0")
    return percent / _ALL


def rate_of(text: str | None) -> float | None:
    """The value of --ops-limit. UsageError."""
    if text is None:
        return None
    rate = number("--ops-limit", text, parse_number)
    if not 0 < rate < math.inf:
        raise invalid("--ops-limit", text, "rate must be positive and finite")
    return rate


def refuse_others(typed: argparse.Namespace, takes: str, **defaults: str) -> None:
    """UsageError if `--diff` was typed with options that would do nothing. It `takes` this.

    `defaults` are those of options that are never empty.
    """
    given = {name for name, value in vars(typed).items() if value not in (None, False, [])}
    defaults |= {"progress": "auto", "transport": "auto", "interval": "10"}
    given -= {name for name, value in defaults.items() if getattr(typed, name) == value}
    if given - _OF_DIFF:
        raise UsageError(f"--diff takes {takes} and no other option")


def refuse_idle_null(typed: argparse.Namespace) -> None:
    """UsageError if `--null` was typed, but no option that names a file of paths or patterns.

    Unless it is also for what is printed.
    """
    named = any(kind.endswith("-from") for kind, _ in typed.filters or ())
    listed = getattr(typed, "list_out", None)  # not every tool writes one
    idle = typed.null and not getattr(typed, "prints_null", False)
    if idle and not named and typed.files_from is None and listed is None:
        raise UsageError("--null requires --files-from, --exclude-from or --include-from")
