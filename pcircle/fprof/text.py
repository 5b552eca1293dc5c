"""The report as text: tables that a person reads and `awk` takes apart."""

from __future__ import annotations

from collections.abc import Iterator

from pcircle.fprof.report import Amount, Report, Sizes
from pcircle.ui import table
from pcircle.ui.report import plural, shares
from pcircle.units import format_count, format_duration, format_size

_BAR_CELLS = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, *, unicode: bool) -> str:
    """A bar as long as the share, at most `_BAR_CELLS` cells; something for any share at all."""
    if share <= 0:
        return ""
    if not unicode:
        return "#" * max(1, round(share * _BAR_CELLS))
    eighths = max(1, round(share * _BAR_CELLS * 8))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def render(report: Report, *, unicode: bool) -> Iterator[str]:
    """The report, part by part; each ends with a newline, parts are for empty lines between."""
    yield _counts(report)
    yield _sizes(report.sizes, unicode=unicode)
    yield _epilogue(report)


def _amount(name: str, amount: Amount) -> list[str]:
    return [
        name,
        format_count(amount.number),
        format_size(amount.bytes),
        format_size(amount.allocated_bytes),
    ]


def _counts(report: Report) -> str:
    counts = report.counts
    rows = [
        _amount("files", counts.files),
        _amount("directories", counts.directories),
        _amount("symbolic links", counts.links),
        _amount("special files", counts.special),
        _amount("all", counts.total),
    ]
    return table.render(rows, align="lrrr", header=("", "number", "size", "on disk"))


def _sizes(sizes: Sizes, *, unicode: bool) -> str:
    rows = []
    below = None
    for each in sizes.bins:
        label = f"> {format_size(below or 0)}" if each.up_to is None else format_size(each.up_to)
        below = each.up_to
        rows.append(
            [
                label,
                format_count(each.number),
                f"{each.number_share:.2%}",
                bar(each.number_share, unicode=unicode),
                format_size(each.bytes),
                f"{each.bytes_share:.2%}",
                bar(each.bytes_share, unicode=unicode),
            ]
        )
    for row in rows:
        row[3] = row[3].ljust(_BAR_CELLS)
    header = ("size up to", "files", "", "", "bytes", "", "")
    text = table.render(rows, align="rrrlrrl", header=header)
    return text if sizes.exact else text + "Edges beside the fine bins: to 1/64 of a size.\n"


def _epilogue(report: Report) -> str:
    counts, sizes = report.counts, report.sizes
    median = "none" if sizes.median is None else format_size(sizes.median)
    rows = [
        ["mean size", format_size(round(sizes.mean))],
        ["median size", median],
        ["largest file", format_size(sizes.largest)],
    ]
    widest = report.largest_directory
    if widest is not None:
        entries = plural(widest.entries, "entry", "entries")
        rows.append(["largest directory", f"{entries} in {widest.path}"])
    if counts.hard_linked_names:
        names = plural(counts.hard_linked_names, "name", "names")
        files = plural(counts.hard_linked_files, "file", "files")
        rows.append(["hard links", f"{names} of {files}, counted once in bytes"])
    if counts.unreadable:
        rows.append(["unreadable", plural(counts.unreadable, "directory", "directories")])
    if counts.failed:
        rows.append(["failed", plural(counts.failed, "entry", "entries")])
    return table.render(rows, align="ll")


def summary(report: Report) -> str:
    """What was done, in one line."""
    entries = plural(report.counts.entries, "entry", "entries")
    rate = format_count(round(report.entries_per_s))
    return f"profiled {entries} in {format_duration(report.elapsed_s)}: {rate} entries/s"


def balance(report: Report, verbose: int) -> str:
    """How the work was shared."""
    return shares(report.ranks, report.counts.entries, verbose)
