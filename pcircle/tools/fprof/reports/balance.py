"""The balance of work among the ranks: the work of each rank, and how it spent its time.

LaFon, Misra and Bringhurst (SC12) judged their walk by the same figures: the entries, work requests
and messages of each rank, and the fractions of its time spent reading directories, looking up
names, running the protocol and waiting for work.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pcircle.cli import listing
from pcircle.cli.console import rank_share
from pcircle.cli.report import RankShare
from pcircle.core.units import format_count, format_size
from pcircle.runtime import RankReport
from pcircle.tools.fprof.plan import totals


class RankWork(RankShare, frozen=True, kw_only=True):
    """The work of one rank.

    `threads` is the number of workers at the end. Their time in seconds is divided into
    `readdir_s`, `stat_s`, `adding_s` (all other work) and `idle_s`. `protocol_s` is the processor
    time of the engine thread.
    """

    readdir_s: float
    stat_s: float
    adding_s: float
    protocol_s: float
    idle_s: float


def rank_work(report: RankReport) -> RankWork:
    """Return the work of a rank from its report."""
    counts = totals(report.counts)
    return RankWork(
        **msgspec.structs.asdict(rank_share(report, counts.settled, counts.bytes)),
        readdir_s=counts.readdir_us / 1e6,
        stat_s=counts.stat_us / 1e6,
        adding_s=counts.adding_us / 1e6,
        protocol_s=counts.protocol_us / 1e6,
        idle_s=counts.idle_us / 1e6,
    )


def render(ranks: Sequence[RankWork], entries: int, stats: int) -> str:
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
