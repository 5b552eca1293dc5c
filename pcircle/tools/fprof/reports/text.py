"""The report as text: tables for people, with columns that `awk` can split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pcircle.cli import listing
from pcircle.core.units import format_count, format_duration, format_rates, format_size, plural

if TYPE_CHECKING:
    from pcircle.tools.fprof.profile.examinations import Blocks, Compression, InInode, Sparse
    from pcircle.tools.fprof.profile.groups import DirectoryTree, Group, Top
    from pcircle.tools.fprof.reports.report import Amount, ProfileReport, RankWork, SizeDistribution

_ROWS = 20  # maximum rows of a table
_TITLES = {
    "stripe": "Lustre layout",
    "ext": "extension",
    "dirsize": "size of directory",
    "age": "modified",
}
_BAR_CELLS = 20
_MIN_BAR_CELLS = 4
_STANDARD_PARTS = 3  # number of parts before those that options request
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, *, unicode: bool, cells: int = _BAR_CELLS) -> str:
    """Return a bar of at most `cells` cells, in proportion to the share; it is empty only for 0."""
    if share <= 0:
        return ""
    if not unicode:
        return "#" * max(1, round(share * cells))
    eighths = max(1, round(share * cells * 8))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def render(report: ProfileReport, *, unicode: bool, columns: int | None = None) -> list[str]:
    """Return the parts of the report, each of which ends with a newline.

    If `columns`, the width of a terminal, is given, the histogram comes first, because the first
    part may scroll out of view.
    """
    counts = _counts(report, columns)
    sizes = _sizes(report.sizes, unicode=unicode, columns=columns)
    standard = [counts, sizes] if columns is None else [sizes, counts]
    requested = _requested(report, unicode=unicode, columns=columns)
    return [*standard, _epilogue(report), *requested]


def insert_tree(parts: Sequence[str], tree: str) -> list[str]:
    """Return the parts of a report with the largest directories after the standard parts."""
    return [*parts[:_STANDARD_PARTS], tree, *parts[_STANDARD_PARTS:]]


def _requested(report: ProfileReport, *, unicode: bool, columns: int | None) -> Iterator[str]:
    """Yield the parts that options request."""
    if report.tree is not None:
        yield _tree(report.tree)
    for dimension, groups in (report.by or {}).items():
        yield _groups(dimension, groups, unicode=unicode, columns=columns)
    if report.top is not None:
        yield from _top(report.top)
    if report.data_in_inode is not None:
        yield _in_inode(report.data_in_inode)
    if report.blocks is not None:
        yield _blocks(report.blocks)
    if report.sparse is not None:
        yield _sparse(report.sparse)
    if report.stripes is not None:
        yield _groups("stripe", report.stripes, unicode=unicode, columns=columns)
    if report.compression is not None:
        yield _compression(report.compression)


def _tree(tree: DirectoryTree) -> str:
    rows = [
        [
            format_size(directory.bytes),
            f"{directory.share:.1%}",
            format_count(directory.entries),
            directory.path,
        ]
        for directory in tree.directories
    ]
    header = ("size", "share", "entries", "directory, including subdirectories")
    text = listing.render(rows, align="rrrl", header=header)
    if tree.complete:
        return text
    return text + f"Directories of at most {format_size(tree.omitted_bytes)} may be missing.\n"


def _amount(name: str, amount: Amount) -> list[str]:
    return [
        name,
        format_count(amount.number),
        format_size(amount.bytes),
        format_size(amount.allocated_bytes),
    ]


def _counts(report: ProfileReport, columns: int | None) -> str:
    counts = report.counts
    rows = [
        _amount("files", counts.files),
        _amount("directories", counts.directories),
        _amount("symbolic links", counts.links),
        _amount("special files", counts.special),
        *([f"  {kind}", format_count(number), "", ""] for kind, number in counts.specials.items()),
        _amount("all", counts.total),
    ]
    header = ("", "number", "size", "on disk")
    text = listing.render(rows, align="lrrr", header=header)
    if _fits(text, columns):
        return text
    return listing.render([row[:-1] for row in rows], align="lrr", header=header[:-1])


def _fits(text: str, columns: int | None) -> bool:
    """Return whether all lines of `text` fit on the terminal, or there is no terminal."""
    return columns is None or max(map(listing.cell_width, text.splitlines()), default=0) <= columns


_Amount = tuple[str, float]
"""An amount as text, and its share."""


def _shares(
    rows: Sequence[tuple[str, _Amount, _Amount]],
    header: tuple[str, str, str],
    align: str,
    *,
    unicode: bool,
    columns: int | None,
) -> str:
    """Return a table of amounts with their shares, as percentages and bars.

    A narrow terminal gets shorter bars, then no percentages, then no bars.
    """

    def made(cells: int, *, percent: bool) -> str:
        def row(label: str, *amounts: _Amount) -> list[str]:
            found = [label]
            for number, share in amounts:
                found += [number] + [f"{share:.2%}"] * percent
                found += [bar(share, unicode=unicode, cells=cells).ljust(cells)] * bool(cells)
            return found

        spare = [""] * (percent + bool(cells))
        head = [header[0], header[1], *spare, header[2], *spare]
        sides = "r" + "r" * percent + "l" * bool(cells)
        return listing.render([row(*r) for r in rows], align=align + sides * 2, header=head)

    bars = range(_BAR_CELLS, _MIN_BAR_CELLS - 1, -1)
    for percent in (True, False):
        for cells in bars:
            if _fits(text := made(cells, percent=percent), columns):
                return text
    return made(0, percent=False)


def _sizes(sizes: SizeDistribution, *, unicode: bool, columns: int | None) -> str:
    rows: list[tuple[str, _Amount, _Amount]] = []
    below = None
    for size_bin in sizes.bins:
        label = (
            f"> {format_size(below or 0)}"
            if size_bin.up_to is None
            else format_size(size_bin.up_to)
        )
        below = size_bin.up_to
        number, size = format_count(size_bin.number), format_size(size_bin.bytes)
        rows.append((label, (number, size_bin.number_share), (size, size_bin.bytes_share)))
    header = ("size up to", "files", "bytes")
    text = _shares(rows, header, "r", unicode=unicode, columns=columns)
    return text if sizes.exact else text + "Approximate edges: within 1/64 of a size.\n"


def _epilogue(report: ProfileReport) -> str:
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
    return listing.render(rows, align="ll")


def _groups(dimension: str, groups: Sequence[Group], *, unicode: bool, columns: int | None) -> str:
    of_directories = dimension == "dirsize"
    amount = format_count if of_directories else format_size
    rows = [
        (
            group.label,
            (format_count(group.number), group.number_share),
            (amount(group.bytes), group.bytes_share),
        )
        for group in groups[:_ROWS]
    ]
    counted = ("directories", "entries") if of_directories else ("files", "bytes")
    header = (_TITLES.get(dimension, dimension), counted[0], counted[1])
    text = _shares(rows, header, "l", unicode=unicode, columns=columns)
    more = len(groups) - _ROWS
    return text + (f"and {format_count(more)} more\n" if more > 0 else "")


def _top(top: Top) -> Iterator[str]:
    for title, files in (
        ("largest files", top.largest),
        ("newest files", top.newest),
        ("oldest files", top.oldest),
    ):
        values = [[item.modified or format_size(item.bytes or 0), item.path] for item in files]
        yield listing.render(values, align="rl", header=(title, ""))
    for title, listed in (
        ("directories by bytes", top.directories_by_bytes),
        ("directories by entries", top.directories_by_entries),
    ):
        rows = [
            [
                format_size(item.bytes),
                format_count(item.entries),
                format_size(item.all_bytes),
                format_count(item.all_entries),
                item.path,
            ]
            for item in listed
        ]
        header = ("in it", "entries", "including subdirectories", "entries", title)
        yield listing.render(rows, align="rrrrl", header=header)


def _in_inode(found: InInode) -> str:
    files = plural(found.number, "file", "files")
    text = (
        f"{files} ({found.number_share:.2%}) of at most {format_size(found.limit_bytes)} would fit "
        f"in their inodes: {format_size(found.bytes)} ({found.bytes_share:.2%})\n"
    )
    if found.limit_bytes == found.asked_bytes:
        return text
    asked, limit = map(format_count, (found.asked_bytes, found.limit_bytes))
    return text + f"{asked} bytes is rounded down to {limit}.\n"


def _blocks(blocks: Sequence[Blocks]) -> str:
    rows = [
        [
            format_size(estimate.block_bytes),
            format_size(estimate.space_bytes),
            f"{estimate.efficiency:.2%}",
            format_size(estimate.subblock_bytes),
            format_count(estimate.subblocks),
            format_size(estimate.subblocks_space_bytes),
            f"{estimate.subblocks_efficiency:.2%}",
        ]
        for estimate in blocks
    ]
    header = ("block", "whole blocks", "used", "subblock", "subblocks", "space", "used")
    return listing.render(rows, align="rrrrrrr", header=header)


def _sparse(sparse: Sparse) -> str:
    rows = [
        ["files smaller on disk", plural(sparse.number, "file", "files")],
        ["their size", format_size(sparse.bytes)],
        ["on disk", format_size(sparse.allocated_bytes)],
        ["in holes", format_size(sparse.hole_bytes)],
        ["saved by compression", format_size(sparse.compressed_bytes)],
    ]
    if sparse.unknown:
        rows.append(["not examined", plural(sparse.unknown, "file", "files")])
    return listing.render(rows, align="lr")


def _compression(found: Compression) -> str:
    pieces = f"{format_count(found.pieces)} of {format_count(found.of_pieces)} pieces"
    unread = f", {format_count(found.unread)} unread" if found.unread else ""
    return (
        f"Compressed ({found.method}), files would take {found.ratio:.1%} +- {found.error:.1%} of "
        f"their bytes (95 % confidence),\nand save {format_size(found.saved_bytes)} +- "
        f"{format_size(found.saved_error_bytes)}; estimated from {pieces}{unread}.\n"
    )


def summary(report: ProfileReport) -> str:
    """Return a one-line summary of the report."""
    entries = plural(report.counts.entries, "entry", "entries")
    took = f"in {format_duration(report.elapsed_s)}"
    return f"profiled {entries} {took}: {format_rates(0, report.entries_per_s)}".removesuffix(": ")


def rank_table(ranks: Sequence[RankWork], entries: int, stats: int) -> str:
    """Return a table of the work of all ranks, with more columns if `stats` is above 1."""
    header = ["rank", "node", "entries", "share", "threads", "steals", "messages", "sent"]
    header += ["readdir", "stat", "adding", "idle", "protocol"]
    rows = []
    for rank in ranks:
        part = rank.entries / entries if entries else 0.0
        row = [
            str(rank.rank),
            str(rank.node),
            format_count(rank.entries),
            f"{part:.0%}",
            str(rank.threads),
            f"{rank.steals_got}/{rank.steals_asked}",
            format_count(rank.messages),
            format_size(rank.message_bytes),
        ]
        times = (rank.readdir_s, rank.stat_s, rank.adding_s, rank.idle_s, rank.protocol_s)
        row += [f"{time_s:.2f} s" for time_s in times]
        if stats > 1:
            row += [
                format_count(rank.items),
                format_count(rank.spilled_items),
                f"{rank.cpu_s:.2f} s",
                format_size(rank.peak_rss_bytes),
            ]
        rows.append(row)
    if stats > 1:
        header += ["items", "spilled", "cpu", "peak memory"]
    return listing.render(rows, align="r" * len(header), header=header)
