"""The result of a copy: the model that is shown and written, and its text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pcircle.copying.counts import HARD_LINKS
from pcircle.errors import Defect
from pcircle.fcp.counters import Totals, totals
from pcircle.fcp.items import Remark
from pcircle.runtime import RankReport
from pcircle.runtime.defect import write_report
from pcircle.tool.failures import Failure
from pcircle.ui.names import show
from pcircle.ui.report import (
    FailedEntry,
    RankShare,
    by_kind,
    error_name,
    plural,
)
from pcircle.units import format_count, format_duration, format_rate, format_size

SCHEMA = 1

_NOT_HELD = "destination does not support them"


class Signed(msgspec.Struct, frozen=True):
    """A root's copy and its signature; None if entries of it have failed."""

    path: str
    signature: str | None


class Report(msgspec.Struct, frozen=True):
    """A copy's result. Times in seconds; `entries` counts what was copied.

    `not_kept` counts entries by what of them could not be kept.
    `special_skipped` are special files, left out without -a, which are not in `skipped`.
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
    special_skipped: int
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
    error = error_name(failure.errno, failure.kind)
    return FailedEntry(show(failure.path), failure.doing, failure.errno, failure.reason, error)


def describe_failure(failure: Failure) -> str:
    """A failure in one line."""
    return f"fcp: cannot {failure.doing} '{show(failure.path)}': {failure.reason}"


def described(remark: Remark) -> str:
    """A remark in one line: its text behind the path, or around it."""
    path = f"'{show(remark.path)}'"
    if "{}" in remark.text:
        return remark.text.replace("{}", path, 1)
    return f"{path} {remark.text}"


def describe_losses(not_kept: dict[str, int]) -> list[str]:
    """What could not be kept, a line for each kind."""
    return [
        f"fcp: {kind} of {plural(count, 'entry', 'entries')} were not kept: "
        + ("each became a separate file" if kind == HARD_LINKS else _NOT_HELD)
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
        threads=report.threads,
        work_per_s=by_kind(report.rates),
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


def summary(report: Report) -> str:
    """The last line of a run: entries, bytes, time, rates."""
    kinds = [
        plural(report.files, "file", "files"),
        plural(report.directories, "directory", "directories"),
        plural(report.links, "link", "links"),
    ]
    if report.special:
        kinds.append(plural(report.special, "special file", "special files"))
    verb = "would copy" if report.dry_run else "copied"
    done = (
        f"{verb} {plural(report.entries, 'entry', 'entries')} ({', '.join(kinds)}), "
        f"{format_size(report.bytes)} in {format_duration(report.elapsed_s)}"
    )
    if report.skipped:
        done = f"{plural(report.skipped, 'entry', 'entries')} skipped; {done}"
    if report.special_skipped:
        left_out = plural(report.special_skipped, "special file", "special files")
        done = f"{left_out} skipped; {done}"
    if report.resumed:
        done = f"{done}, {format_count(report.resumed)} of them by an earlier run"
    if report.failed:
        done = f"{plural(report.failed, 'entry', 'entries')} failed; {done}"
    if report.dry_run:
        return done
    rate = format_count(round(report.entries_per_s))
    return f"{done}: {format_rate(report.bytes_per_s)}, {rate} entries/s"
