"""Fields that the reports of all tools share: failures by kind, and statistics of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar

import msgspec
from msgspec import UNSET, UnsetType

from pcircle.core.errors import EntriesFailed
from pcircle.core.units import format_count, format_size, plural
from pcircle.fs.entry_errors import error_name
from pcircle.jobs.failures import FailedEntry

FAILURES_KEPT = 1000
"""The maximum number of failures that a report lists; `failures_omitted` counts the others."""

MATRIX_RANKS = 8
"""The maximum number of ranks whose messages are printed as a matrix."""

PAIRS_SHOWN = 20

ACCOUNTS: ContextVar[Callable[[str, int, int, int], None] | None] = ContextVar(
    "ACCOUNTS", default=None
)
"""A callback for the totals of a job, if the command is logged.

Its arguments are a name, and the numbers of entries, bytes and failures.
"""


class ToolReport(msgspec.Struct, frozen=True):
    """The first fields of the result of every tool."""

    schema: int
    tool: str
    version: str
    exit_code: int


class RootSignature(msgspec.Struct, frozen=True):
    """A root and its signature, or None if entries below it have failed."""

    path: str
    signature: str | None


class Sent(msgspec.Struct, frozen=True):
    """The messages sent to a rank, or to a block of ranks that begins with this rank."""

    rank: int
    messages: int
    bytes: int


def only_signature(signatures: Sequence[RootSignature]) -> str:
    """Return the signature of the only root.

    Raises EntriesFailed if the root has none, and ValueError if there are several roots, or none.
    """
    if len(signatures) != 1:
        raise ValueError(f"the report has {len(signatures)} signatures")
    (root,) = signatures
    if root.signature is None:
        raise EntriesFailed(f"no signature of '{root.path}': some entries could not be read")
    return root.signature


class RankShare(msgspec.Struct, frozen=True):
    """Statistics of one rank.

    `work_per_s` contains the rates that were measured while the number of threads was tuned: by
    kind of work, then by number of threads. `sent` contains the messages by receiver; a job of more
    than 256 ranks counts them by blocks of `sent_block` receivers.
    """

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
    threads: int = 1
    work_per_s: dict[str, dict[str, float]] = {}
    sent: tuple[Sent, ...] = ()
    sent_block: int = 1


class FigureStatistics(msgspec.Struct, frozen=True):
    """The distribution of a figure over all ranks.

    `bins` contains pairs of a lower edge and a number of ranks. Quantiles are exact to the width of
    a bin; the other values are exact.
    """

    sum: int | float
    mean: float
    min: int | float
    min_rank: int
    p5: int | float
    median: int | float
    p95: int | float
    max: int | float
    max_rank: int
    bins: tuple[tuple[int | float, int], ...]


class RankSummary(msgspec.Struct, frozen=True):
    """Statistics of many ranks: figures by name, with times in seconds."""

    ranks: int
    figures: dict[str, FigureStatistics]


class ReadReport(ToolReport, frozen=True, kw_only=True):
    """The result of a tool that reads files. Times are in seconds.

    `entries` counts the entries that succeeded. Of the files whose data is in an archive, `offline`
    counts the excluded files and `recalled` the files that were read. `atime_not_kept` counts the
    files for which --open-noatime was not permitted. `failures_omitted` counts failures beyond the
    first `FAILURES_KEPT`. For very many ranks `rank_summary` replaces `ranks`.
    """

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
    failures_omitted: int
    ranks: tuple[RankShare, ...]
    rank_summary: RankSummary | UnsetType = UNSET
    offline: int = 0
    recalled: int = 0
    atime_not_kept: int = 0


def by_kind(rates: Sequence[tuple[str, int, float]]) -> dict[str, dict[str, float]]:
    """Return the rates of a rank's thread tuning for its report."""
    found: dict[str, dict[str, float]] = {}
    for kind, threads, rate in rates:
        found.setdefault(kind, {})[str(threads)] = round(rate, 1)
    return found


def failures_by_kind(counted: Mapping[tuple[int | None, str], int]) -> str:
    """Return a line with the number of failures by error, the most frequent error first."""
    kinds = sorted((-count, number or 0, kind) for (number, kind), count in counted.items())
    parts = [
        f"{format_count(-count)} {error_name(number, kind)}"
        + (f" ({os.strerror(number)})" if number else "")
        for count, number, kind in kinds
    ]
    return f"{plural(sum(counted.values()), 'failure', 'failures')}: {', '.join(parts)}"


def shares(ranks: Sequence[RankShare], entries: int, stats: int) -> str:
    """Return per-rank statistics as a table, with more columns if `stats` is at least 2."""
    header = ["rank", "node", "entries", "bytes", "share", "threads"]
    climbed = any(len(rates) > 1 for rank in ranks for rates in rank.work_per_s.values())
    rows = []
    for rank in ranks:
        part = rank.entries / entries if entries else 0.0
        row = [str(rank.rank), str(rank.node), format_count(rank.entries)]
        row += [format_size(rank.bytes), f"{part:.0%}", str(rank.threads)]
        if climbed:
            row.append(_found(rank))
        if stats > 1:
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
    if climbed:
        header.append("work/s by threads")
    if stats > 1:
        header += ["items", "steals", "messages", "sent", "spilled", "cpu", "peak memory"]
    align = "r" * 6 + "l" * climbed + "r" * len(header)
    from pcircle.cli import listing

    return listing.render(rows, align=align[: len(header)], header=header)


def messages_by_pair(ranks: Sequence[RankShare]) -> str:
    """Return tables of the messages and bytes that ranks sent to each other.

    For up to `MATRIX_RANKS` ranks, the tables are matrices of at most 80 columns; for more ranks,
    the busiest pairs are listed.
    """
    from pcircle.cli import listing

    if len(ranks) > MATRIX_RANKS:
        return _busiest_pairs(ranks)
    header = ["from", *(f"to {rank.rank}" for rank in ranks), "all"]
    text = ""
    for title, shown in (("messages", _short), ("bytes", _human)):
        rows = []
        for rank in ranks:
            counts = {sent.rank: getattr(sent, title) for sent in rank.sent}
            row = [counts.get(receiver.rank, 0) for receiver in ranks]
            rows.append([*row, sum(row)])
        rows.append(list(map(sum, zip(*rows, strict=True))))
        names = [*(str(rank.rank) for rank in ranks), "all"]
        cells = [[name, *map(shown, row)] for name, row in zip(names, rows, strict=True)]
        text += f"{title} sent\n" + listing.render(cells, align="r" * len(header), header=header)
    return text


def _short(count: int) -> str:
    """Return a count in few characters, such as 12,345, 1,234k or 56M."""
    if count < 100_000:
        return format_count(count)
    thousands = round(count / 1000)
    return f"{thousands:,}k" if thousands < 10_000 else f"{round(count / 1e6)}M"


def _human(size: int) -> str:
    from pcircle.cli import listing

    return listing.human(size).decode()


def _busiest_pairs(ranks: Sequence[RankShare]) -> str:
    """Return a table of the pairs of ranks that sent the most bytes."""
    from pcircle.cli import listing

    pairs = [(sent.bytes, sent.messages, rank, sent.rank) for rank in ranks for sent in rank.sent]
    pairs.sort(key=lambda pair: (-pair[0], -pair[1], pair[2].rank, pair[3]))
    rows = []
    for size, messages, rank, receiver in pairs[:PAIRS_SHOWN]:
        last = min(receiver + rank.sent_block, len(ranks)) - 1
        receivers = str(receiver) if last == receiver else f"{receiver}-{last}"
        rows.append([str(rank.rank), receivers, format_count(messages), format_size(size)])
    omitted = pairs[PAIRS_SHOWN:]
    if omitted:
        count = format_count(sum(messages for _, messages, *_ in omitted))
        size_bytes = format_size(sum(size for size, *_ in omitted))
        rows.append([f"{format_count(len(omitted))} others", "", count, size_bytes])
    header = ["from", "to", "messages", "sent"]
    return listing.render(rows, align="rrrr", header=header)


def _found(rank: RankShare) -> str:
    """Return the rates by number of threads, as text."""
    return "; ".join(
        f"{kind} "
        + ", ".join(f"{threads}: {format_count(round(rate))}" for threads, rate in rates.items())
        for kind, rates in rank.work_per_s.items()
    )
