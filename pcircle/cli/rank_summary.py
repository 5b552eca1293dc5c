"""The report of very many ranks: the distribution of each figure instead of a row per rank."""

from __future__ import annotations

from pcircle.cli import table
from pcircle.cli.report import RankSummary
from pcircle.core.units import format_count, format_size

_PLAIN = ("entries", "bytes", "threads")
_TIME = "_s"
_LABELS = {"message_bytes": "sent", "spilled_items": "spilled", "peak_rss_bytes": "peak memory"}


def render(summary: RankSummary, verbose: int) -> str:
    """Return the figures as a table; with `verbose` 2 all of them."""
    header = ["", "all", "mean", "min", "rank", "5 %", "median", "95 %", "max", "rank"]
    rows = []
    for name, figure in summary.figures.items():
        if verbose < 2 and name not in _PLAIN:
            continue
        values = (figure.sum, figure.mean, figure.min, figure.p5, figure.median, figure.p95)
        row = [_shown(name, value) for value in (*values, figure.max)]
        row.insert(3, str(figure.min_rank))
        label = _LABELS.get(name, name.removesuffix(_TIME).replace("_", " "))
        rows.append([label, *row, str(figure.max_rank)])
    head = f"{format_count(summary.ranks)} processes\n"
    return head + table.render(rows, align="l" + "r" * (len(header) - 1), header=header)


def _shown(name: str, value: float) -> str:
    if name.endswith(_TIME):
        return f"{value:.2f} s"
    if name == "bytes" or name.endswith("_bytes"):
        return format_size(round(value))
    return format_count(round(value))
