"""The result of a run of fsum: the model that is shown and written, and its text."""

from __future__ import annotations

import msgspec

from pcircle.fsum.counters import totals
from pcircle.fsum.items import Failure
from pcircle.runtime import RankReport
from pcircle.ui.names import show
from pcircle.ui.report import FailedEntry, RankShare, plural
from pcircle.units import format_count, format_duration, format_rate, format_size

SCHEMA = 1


class Signed(msgspec.Struct, frozen=True):
    """A PATH and its signature; None if entries of it could not be read."""

    path: str
    signature: str | None


class Report(msgspec.Struct, frozen=True):
    """What was signed. Times in seconds; `entries` counts what has a digest."""

    schema: int
    tool: str
    version: str
    exit_code: int
    algorithm: str
    signatures: tuple[Signed, ...]
    entries: int
    files: int
    directories: int
    links: int
    special: int
    bytes: int
    failed: int
    elapsed_s: float
    bytes_per_s: float
    entries_per_s: float
    reasons: tuple[str, ...]
    failures: tuple[FailedEntry, ...]
    ranks: tuple[RankShare, ...]


def failed_entry(failure: Failure) -> FailedEntry:
    """A failure as the report has it."""
    return FailedEntry(show(failure.path), failure.doing, failure.errno, failure.reason)


def describe_failure(failure: Failure) -> str:
    """A failure in one line."""
    return f"fsum: cannot {failure.doing} '{show(failure.path)}': {failure.reason}"


def rank_share(report: RankReport) -> RankShare:
    """A rank's share, of its report."""
    counts = totals(report.counts)
    return RankShare(
        rank=report.rank,
        node=report.node,
        entries=counts.signed,
        bytes=counts.bytes_done,
        items=report.items,
        steals_asked=report.steals_asked,
        steals_got=report.steals_got,
        messages=report.messages,
        message_bytes=report.message_bytes,
        spilled_items=report.spilled,
        cpu_s=round(report.cpu_s, 3),
        peak_rss_bytes=report.peak_rss_bytes,
    )


def summary(report: Report) -> str:
    """What was read, in one line."""
    failed = f"{plural(report.failed, 'entry', 'entries')} failed; " if report.failed else ""
    rate = format_count(round(report.entries_per_s))
    return (
        f"{failed}signed {plural(report.entries, 'entry', 'entries')}, "
        f"{format_size(report.bytes)} in {format_duration(report.elapsed_s)}: "
        f"{format_rate(report.bytes_per_s)}, {rate} entries/s"
    )
