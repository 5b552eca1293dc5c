"""The result of a copy: the model that is shown and written, and its text."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

import msgspec

from pcircle.errors import Defect
from pcircle.fcp.counters import Totals, totals
from pcircle.fcp.items import Failure
from pcircle.runtime import RankReport
from pcircle.runtime.defect import write_report
from pcircle.ui import table
from pcircle.ui.names import show
from pcircle.units import format_count, format_duration, format_rate, format_size

SCHEMA = 1
FAILURES_KEPT = 1000
"""Failures that the report lists; all are counted, and all were named when they came."""


class FailedEntry(msgspec.Struct, frozen=True):
    """A failure in the report; the path with odd bytes escaped."""

    path: str
    doing: str
    errno: int
    reason: str


class RankShare(msgspec.Struct, frozen=True):
    """What one rank did."""

    rank: int
    node: int
    entries: int
    bytes: int
    items: int
    steals_asked: int
    steals_got: int
    messages: int
    message_bytes: int
    spilled_items: int
    cpu_s: float
    peak_rss_bytes: int


class Signed(msgspec.Struct, frozen=True):
    """A root's copy and its signature; None if entries of it have failed."""

    path: str
    signature: str | None


class Report(msgspec.Struct, frozen=True):
    """A copy's result. Times in seconds; `entries` counts what was copied.

    `not_kept` counts entries by what of them the destination could not hold.
    `resumed` counts the entries, copied or skipped, that an earlier run has
    done; these and their bytes are in the counts, but not in the rates.
    """

    schema: int
    tool: str
    version: str
    exit_code: int
    dry_run: bool
    sources: tuple[str, ...]
    target: str
    entries: int
    files: int
    directories: int
    links: int
    special: int
    bytes: int
    found: int
    failed: int
    not_kept: dict[str, int]
    skipped: int
    resumed: int
    resumed_bytes: int
    elapsed_s: float
    bytes_per_s: float
    entries_per_s: float
    reasons: tuple[str, ...]
    failures: tuple[FailedEntry, ...]
    ranks: tuple[RankShare, ...]
    signatures: tuple[Signed, ...] = ()


def failed_entry(failure: Failure) -> FailedEntry:
    """A failure as the report has it."""
    return FailedEntry(show(failure.path), failure.doing, failure.errno, failure.reason)


def describe_failure(failure: Failure) -> str:
    """A failure in one line."""
    return f"fcp: cannot {failure.doing} '{show(failure.path)}': {failure.reason}"


def describe_losses(not_kept: dict[str, int]) -> list[str]:
    """What the destination could not hold, a line for each kind."""
    return [
        f"fcp: {kind} of {_plural(count, 'entry', 'entries')} were not kept: "
        "the destination does not hold them"
        for kind, count in not_kept.items()
    ]


def rank_share(report: RankReport) -> RankShare:
    """A rank's share, of its report."""
    counts = totals(report.counts)
    return RankShare(
        rank=report.rank,
        node=report.node,
        entries=counts.copied,
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


def add_up(reports: Sequence[RankReport]) -> Totals:
    """The counts of all ranks together."""
    columns = zip(*(report.counts for report in reports), strict=True)
    return totals(tuple(map(sum, columns)))


def account(
    total: Totals, reports: Sequence[RankReport], failures: Sequence[FailedEntry]
) -> str | None:
    """What is wrong with the counts of a job that ended well; None if nothing is.

    Found is counted where the source is read, and settled where the target is
    written: each entry, and each byte where no entry has failed, once on both
    sides. A report file then has all counts.
    """
    if total.found != total.settled:
        text = f"{total.found} entries were found, but {total.settled} accounted for"
    elif not total.failed and total.bytes_found != total.bytes_done:
        text = f"{total.bytes_found} bytes were found, but {total.bytes_done} accounted for"
    else:
        return None
    known = [f"all ranks: {total}"]
    known += [f"rank {report.rank}: {totals(report.counts)}" for report in reports]
    known += [f"failed: {failure}" for failure in failures]
    told = write_report(Defect(text), "adding up the accounts\n\n" + "\n".join(known))
    return told.removeprefix("Defect: ")


def failures_by_kind(by_errno: Mapping[int, int]) -> str:
    """How many failures there were of each kind, the most frequent first."""
    kinds = sorted(by_errno.items(), key=lambda kind: (-kind[1], kind[0]))
    told = [
        f"{format_count(count)} {errno.errorcode.get(number, 'other')}"
        + (f" ({os.strerror(number)})" if number else "")
        for number, count in kinds
    ]
    return f"{_plural(sum(by_errno.values()), 'failure', 'failures')}: {', '.join(told)}"


def _plural(count: int, one: str, many: str) -> str:
    return f"{format_count(count)} {one if count == 1 else many}"


def summary(report: Report) -> str:
    """The last line of a run: entries, bytes, time, rates."""
    kinds = [
        _plural(report.files, "file", "files"),
        _plural(report.directories, "directory", "directories"),
        _plural(report.links, "link", "links"),
    ]
    if report.special:
        kinds.append(_plural(report.special, "special file", "special files"))
    verb = "would copy" if report.dry_run else "copied"
    done = (
        f"{verb} {_plural(report.entries, 'entry', 'entries')} ({', '.join(kinds)}), "
        f"{format_size(report.bytes)} in {format_duration(report.elapsed_s)}"
    )
    if report.skipped:
        done = f"{_plural(report.skipped, 'entry', 'entries')} skipped; {done}"
    if report.resumed:
        done = f"{done}, of which {format_count(report.resumed)} by an earlier run"
    if report.failed:
        done = f"{_plural(report.failed, 'entry', 'entries')} failed; {done}"
    if report.dry_run:
        return done
    rate = format_count(round(report.entries_per_s))
    return f"{done}: {format_rate(report.bytes_per_s)}, {rate} entries/s"


def shares(report: Report, verbose: int) -> str:
    """A table of the ranks' shares; from `verbose` 2 on with how the work travelled."""
    header = ["rank", "node", "entries", "bytes", "share"]
    rows = []
    for rank in report.ranks:
        part = rank.entries / report.entries if report.entries else 0.0
        row = [str(rank.rank), str(rank.node), format_count(rank.entries)]
        row += [format_size(rank.bytes), f"{part:.0%}"]
        if verbose > 1:
            row += [
                format_count(rank.items),
                f"{rank.steals_got}/{rank.steals_asked}",
                format_count(rank.messages),
                format_size(rank.message_bytes),
                format_count(rank.spilled_items),
                f"{rank.cpu_s:.2f} s",
                format_size(rank.peak_rss_bytes),
            ]
        rows.append(row)
    if verbose > 1:
        header += ["items", "steals", "messages", "sent", "spilled", "cpu", "peak memory"]
    return table.render(rows, align="r" * len(header), header=header)
