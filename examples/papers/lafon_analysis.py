"""The analysis of communication in ``docs/scale.rst``, compared with simulated walks.

- The cost of a transfer, C(s) = alpha + s beta, is fitted to the answers of a walk: to the transfer
  alone, and to the time from the request to the arrival.
- The requests for work are counted for 4 to 256 ranks and compared with `bound`.

The derivation assumes that the work of a queue is its length. A single directory of equal files
meets this assumption, but the grown tree does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log, log2
from pathlib import Path
from statistics import linear_regression

from examples.papers.lafon_cost import Costs, Result
from examples.papers.lafon_engine import walk_by_engine
from examples.papers.lafon_steal import Scheme, walk
from examples.papers.lafon_tree import Tree, grow
from examples.papers.output import Series, line_plot, write_table

__all__ = ["analysis", "bound", "exponent", "fits", "requests_of"]

ALGORITHMS = ("DRQS", "DEQS", "in turn", "pcircle")
COST_RANKS = 40


def flat(files: int) -> Tree:
    """Return a tree with one directory."""
    return Tree([files], [()])


def bound(ranks: int, elements: int) -> float:
    """Return the bound on the requests of a walk by `ranks` ranks that send requests in turn."""
    costs = Costs()
    phases = (ceil(log2(elements)) + 1) * (ranks - 1) ** 2
    last_elements = ranks * costs.lstat_s / (2 * (costs.near_s + costs.serve_s))
    return phases + last_elements + 1.5 * ranks**2


def requests_of(name: str, tree: Tree, ranks: int, seed: int) -> Result:
    """Walk the tree, with one rank on each node except for requests in turn."""
    if name == "pcircle":
        return walk_by_engine(tree, ranks, 1, seed)
    schemes = {
        "DRQS": Scheme(per_node=1),
        "DEQS": Scheme(per_node=1, half=True),
        # Ranks of one node send requests to each other in turn, all in the same order.
        "in turn": Scheme(per_node=ranks, half=True, aware=True),
    }
    return walk(tree, ranks, schemes[name], seed)


def fits(result: Result, first_s: float) -> list[tuple[str, int, float, float]]:
    """Fit alpha and beta to the transfers, and to the steals that began after `first_s`."""
    later = [answer for answer in result.answers if answer.requested_s > first_s]
    times = {
        "transfer": [(one.size_bytes, one.received_s - one.sent_s) for one in result.answers],
        "steal": [(one.size_bytes, one.received_s - one.requested_s) for one in later],
    }
    found = []
    for name, points in times.items():
        line = linear_regression(*zip(*points, strict=True))
        found.append((name, len(points), line.intercept, line.slope))
    return found


def exponent(ranks: Sequence[int], requests: Sequence[float]) -> float:
    """Return the power of the number of ranks with which the requests grow."""
    return linear_regression([log(n) for n in ranks], [log(count) for count in requests]).slope


def analysis(out: Path, small: bool) -> list[Path]:
    """Write the fitted costs, the requests of each algorithm by number of ranks, and the bound."""
    elements = 2_000 if small else 100_000
    ranks = (4, 8, 16) if small else (4, 8, 16, 32, 64, 128, 256)
    directory = flat(elements - 1)
    costs = Costs()
    first_s = costs.lstat_s + costs.readdir_s + (elements - 1) * costs.entry_s
    cost_rows = [
        (algorithm, *row)
        for algorithm in ("DRQS", "DEQS")
        for row in fits(requests_of(algorithm, directory, COST_RANKS, 1), first_s)
    ]
    header = ["algorithm", "time", "samples", "alpha_s", "beta_s"]
    written = [write_table(out / "lafon-analysis-cost.csv", header, cost_rows)]

    rows: list[tuple[str | float, ...]] = []
    for shape, tree in (("directory", directory), ("tree", grow(elements, 1))):
        for name in ALGORITHMS:
            for number in ranks:
                result = requests_of(name, tree, number, 1)
                parts: tuple[str | int, ...] = ("", "")
                if name != "pcircle":  # the engine's walk counts only the total
                    parts = (result.first_requests, result.last_requests)
                total = (result.requests, bound(number, elements))
                rows.append((shape, name, number, *total, *parts))
    counts = ["requests", "bound", "first_requests", "last_requests"]
    written.append(
        write_table(out / "lafon-analysis.csv", ["tree", "algorithm", "ranks", *counts], rows)
    )
    curves = []
    for shape, style in (("directory", "-o"), ("tree", "--s")):
        for name in ALGORITHMS:
            sent = [float(row[3]) for row in rows if row[:2] == (shape, name)]
            label = f"{name}, {shape}: n^{exponent(ranks, sent):.2f}"
            curves.append(Series(label, sent, style=style))
    curves.append(Series("bound", [bound(number, elements) for number in ranks], style="k-"))
    drawn = line_plot(
        out / "lafon-analysis.svg",
        ranks,
        curves,
        title=f"Requests for work, {elements:,} elements",
        labels=("ranks", "requests"),
        scales=("log", "log"),
    )
    return [*written, *drawn]
