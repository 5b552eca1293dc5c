"""Figures 1, 3, 4, 5 and 6 of LaFon et al. 2012: a run, a table and a plot for each.

Figs 1, 3(a) and 5 use the paper's FS1 at its size, and fig. 6 uses its FS3. Both are the largest
sizes of fig. 4, in which CP is computed rather than simulated for FS3. Only fig. 3(b) has a smaller
tree, `HALF`. Fig. 3(b) and the smaller sizes of fig. 4 have three seeds, each with its own tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from examples.papers.lafon_central import traffic_of
from examples.papers.lafon_cost import Costs, Result
from examples.papers.lafon_paper import CP_RANKS, FS1, FS3, RANKS
from examples.papers.lafon_plots import heat_maps, histograms, two_panels
from examples.papers.lafon_runs import DISTRIBUTED, EVERY, THREADS, Walk, play, play_all
from examples.papers.lafon_steal import H_DRQS, walk
from examples.papers.lafon_tree import ELEMENTS_PER_DIRECTORY, grow
from examples.papers.output import Series, line_plot, write_table

__all__ = ["balance", "breakdown", "heat", "messages", "pairs", "times"]

CORES = 40
SMALL = 6_000
HALF = 3_000_000
SEEDS = (1, 2, 3)
LOOK_S = 1e-5  # chosen by us: the cost of a check for messages in the second part of fig. 3(b)


def _seeds(small: bool) -> Sequence[int]:
    return SEEDS[:1] if small else SEEDS


def pairs(out: Path, small: bool) -> list[Path]:
    """Fig. 1: the bytes that each pair of ranks exchanges in CP, with 30 ranks."""
    ranks = CP_RANKS.value
    result = play("CP", grow(SMALL if small else FS1.value, 1), ranks, 1)
    table = _pair_table(out / "lafon-fig1.csv", [("CP", result)])
    drawn = heat_maps(out / "lafon-fig1.svg", [("CP, 30 ranks", result.pair_bytes)])
    return [table, *drawn]


def heat(out: Path, small: bool) -> list[Path]:
    """Fig. 5: the same for CP, DRQS, H-DRQS and pcircle on 40 cores, with one colour scale."""
    tree = grow(SMALL if small else FS1.value, 1)
    runs = [(name, play(name, tree, CORES, 1)) for name in ("CP", "DRQS", "H-DRQS", "pcircle")]
    table = _pair_table(out / "lafon-fig5.csv", runs)
    drawn = heat_maps(
        out / "lafon-fig5.svg",
        [
            (f"{name}: at most {result.busiest_bytes / 1e6:.3g} MB", result.pair_bytes)
            for name, result in runs
        ],
    )
    return [table, *drawn]


def _pair_table(path: Path, runs: Sequence[tuple[str, Result]]) -> Path:
    rows = [
        (name, source, dest, sent)
        for name, result in runs
        for source, row in enumerate(result.pair_bytes)
        for dest, sent in enumerate(row)
        if sent
    ]
    return write_table(path, ["algorithm", "from", "to", "bytes"], rows)


def times(out: Path, small: bool) -> list[Path]:
    """Fig. 3(a): the time by number of cores."""
    cores = (8, 40) if small else (8, 14, 20, 40, 64)
    elements = SMALL if small else FS1.value
    walks = [Walk(name, elements, number, 1) for name in EVERY for number in cores]
    results = play_all(walks, 1 if small else None)
    rows = [
        (one.name, one.cores, result.time_s) for one, result in zip(walks, results, strict=True)
    ]
    curves = [Series(name, [row[2] for row in rows if row[0] == name]) for name in EVERY]
    table = write_table(out / "lafon-fig3a.csv", ["algorithm", "cores", "seconds"], rows)
    drawn = line_plot(
        out / "lafon-fig3a.svg",
        cores,
        curves,
        title=f"LaFon fig. 3(a): walk of {elements:,} elements",
        labels=("cores", "seconds"),
        scales=("linear", "log"),
    )
    return [table, *drawn]


def breakdown(out: Path, small: bool) -> list[Path]:
    """Fig. 3(b): how H-DRQS spends its time, by cores; a look at the messages is free or LOOK_S."""
    cores = (8, 64) if small else (8, 16, 32, 48, 64)
    trees = [(seed, grow(SMALL if small else HALF, seed)) for seed in _seeds(small)]
    parts = ("user function", "lstat", "readdir", "network", "waiting for threads")
    rows: list[tuple[float | str, ...]] = []
    for look_s in (0.0, LOOK_S):
        costs = Costs(poll_s=look_s)
        for each in cores:
            shares = [
                _shares(walk(tree, each // THREADS, H_DRQS, seed, costs)) for seed, tree in trees
            ]
            rows.append((look_s, each, *(mean(part) for part in zip(*shares, strict=True))))
    table = write_table(out / "lafon-fig3b.csv", ["look_s", "cores", *parts], rows)
    curves = [
        Series(name, [float(row[2 + column]) for row in rows[: len(cores)]])
        for column, name in enumerate(parts)
        if column
    ]
    looking = [float(row[5]) for row in rows[len(cores) :]]
    curves.append(Series(f"network, {LOOK_S * 1e6:.0f} µs a look", looking, style="--"))
    drawn = line_plot(
        out / "lafon-fig3b.svg",
        cores,
        curves,
        title=f"LaFon fig. 3(b): H-DRQS, walk of {trees[0][1].elements:,} elements",
        labels=("cores", "share of the time of all threads"),
        scales=("linear", "log"),
    )
    return [table, *drawn]


def _shares(result: Result) -> tuple[float, ...]:
    """Return shares of thread time: user's function, lstat, readdir, network, other threads."""
    ranks = len(result.elements)
    process_s = result.time_s * ranks
    network_s = sum(result.idle_s) + sum(result.serve_s)
    return (
        0.0,
        sum(result.lstat_s) / process_s / THREADS,
        sum(result.readdir_s) / process_s / THREADS,
        network_s / process_s,
        sum(result.barrier_s) / process_s / THREADS,
    )


def messages(out: Path, small: bool) -> list[Path]:
    """Fig. 4: messages and bytes by number of elements, also for the busiest pair."""
    sizes = (3_000, SMALL) if small else (100_000, 300_000, 10**6, 2_500_000, FS1.value, FS3.value)
    names = ("CP", "PA-DRQS", "H-DRQS", "DRQS", "pcircle")
    rows: list[tuple[float | str, ...]] = []
    for size in sizes:
        largest = size == FS3.value
        for seed in SEEDS[:1] if largest else _seeds(small):
            tree = grow(size, seed)
            for name in names[:3] if largest else names:
                if name != "CP":
                    result = play(name, tree, CORES, seed)
                    rows.append(_counts(name, size, seed, result))
                elif largest:
                    sent = traffic_of(size, size // ELEMENTS_PER_DIRECTORY, CORES)
                    rows.append((name, size, seed, *sent, 0, 0.0, "counted"))
                elif seed == 1:  # the messages of CP do not depend on the shape
                    rows.append(_counts(name, size, seed, play(name, tree, CORES, seed)))
    sent_header = ["messages", "bytes", "busiest_bytes"]
    header = ["algorithm", "elements", "seed", *sent_header, "time_s", "how"]
    table = write_table(out / "lafon-fig4.csv", header, rows)
    curves: list[list[tuple[str, list[tuple[float, float]]]]] = [
        [(name, _means(rows, name, column)) for name in names] for column in (3, 4)
    ]
    labels = ("elements", "messages", "bytes")
    drawn = two_panels(out / "lafon-fig4.png", curves, labels=labels, title="LaFon fig. 4")
    return [table, *drawn]


def _counts(name: str, size: int, seed: int, result: Result) -> tuple[float | str, ...]:
    sent = (result.messages, result.total_bytes, result.busiest_bytes)
    return (name, size, seed, *sent, result.time_s, "run")


def _means(
    rows: Sequence[tuple[float | str, ...]], name: str, column: int
) -> list[tuple[float, float]]:
    found: dict[float, list[float]] = {}
    for row in rows:
        if row[0] == name:
            found.setdefault(float(row[1]), []).append(float(row[column]))
    return [(size, mean(values)) for size, values in sorted(found.items())]


def balance(out: Path, small: bool) -> list[Path]:
    """Fig. 6: the ranks' shares of the elements, with 20 ranks, and their spans."""
    size = SMALL if small else FS3.value
    walks = [
        Walk(name, size, RANKS.value * (THREADS if name in ("H-DRQS", "pcircle") else 1), 1)
        for name in DISTRIBUTED
    ]
    walks.append(Walk("DRQS", size, CORES, 1))  # as many cores as H-DRQS has
    rows = []
    spans: list[tuple[str | float, ...]] = []
    shown: dict[str, list[float]] = {}
    for one, result in zip(walks, play_all(walks, 1 if small else None), strict=True):
        ranks = len(result.elements)
        spans.append((one.name, one.cores, ranks, 100 * result.span))
        if ranks == RANKS.value:
            shown[one.name] = [100 * share for share in result.shares]
            rows += [(one.name, rank, share) for rank, share in enumerate(shown[one.name])]
    table = write_table(out / "lafon-fig6.csv", ["algorithm", "rank", "share_percent"], rows)
    header = ["algorithm", "cores", "ranks", "span_percent_of_ideal"]
    span_table = write_table(out / "lafon-fig6-spans.csv", header, spans)
    title = f"LaFon fig. 6: {RANKS.value} ranks, {size:,} elements, ideal 5 %"
    drawn = histograms(out / "lafon-fig6.png", shown, title=title, label="share of the elements, %")
    return [table, span_table, *drawn]
