"""How the work was shared among the ranks: what each did, and what its time went to.

The figures are those by which LaFon, Misra and Bringhurst (SC12) judged their walk: entries, work
requests and messages of each rank, and the shares of its time in reading directories, in looking
names up, in the protocol and in waiting for work.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pcircle.fprof.counters import totals
from pcircle.runtime import RankReport
from pcircle.tool.console import rank_share
from pcircle.ui import table
from pcircle.ui.report import RankShare
from pcircle.units import format_count, format_size


class Sent(msgspec.Struct, frozen=True):
    """Messages to a rank, or to so many from it on as the report sums up."""

    rank: int
    messages: int
    bytes: int


class RankWork(RankShare, frozen=True, kw_only=True):
    """What one rank did. Times in seconds.

    `threads` is how many workers it came to. Their time is `readdir_s`, `stat_s`, `adding_s` (all
    else that they do) and `idle_s`; `protocol_s` is the processor time of the thread beside them
    that has the engine.
    """

    readdir_s: float
    stat_s: float
    adding_s: float
    protocol_s: float
    idle_s: float
    sent: tuple[Sent, ...]


def rank_work(report: RankReport) -> RankWork:
    """A rank's work, of its report."""
    counts = totals(report.counts)
    return RankWork(
        **msgspec.structs.asdict(rank_share(report, counts.settled, counts.bytes)),
        readdir_s=counts.readdir_us / 1e6,
        stat_s=counts.stat_us / 1e6,
        adding_s=counts.adding_us / 1e6,
        protocol_s=counts.protocol_us / 1e6,
        idle_s=counts.idle_us / 1e6,
        sent=tuple(Sent(*row) for row in report.sent),
    )


def render(ranks: Sequence[RankWork], entries: int, verbose: int) -> str:
    """A table of the ranks' work; from `verbose` 2 on with memory and what was laid off."""
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
        if verbose > 1:
            row += [
                format_count(rank.items),
                format_count(rank.spilled_items),
                f"{rank.cpu_s:.2f} s",
                format_size(rank.peak_rss_bytes),
            ]
        rows.append(row)
    if verbose > 1:
        header += ["items", "spilled", "cpu", "peak memory"]
    return table.render(rows, align="r" * len(header), header=header)
