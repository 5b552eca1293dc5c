"""Searches for parameters that reproduce results of LaFon et al. 2012 if the default costs do not.

- `hybrid`: H-DRQS is the fastest in the paper. At an equal number of cores its rounds cost it time.
  It is faster if each other rank on a node adds to a rank's cost of an element. It is also faster
  at an equal number of *processes*, each of which has two threads.
- `pause`: PA-DRQS sends as few messages as H-DRQS in the paper. Here idle ranks send requests to
  the ranks of their node without end; a pause after each refusal prevents that.
- `overload`: with DRQS one rank has far more work than all others in the paper. Here that requires
  a huge directory, and ranks that check for messages only after each directory.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import msgspec

from examples.papers.lafon_cost import Costs
from examples.papers.lafon_plots import histograms
from examples.papers.lafon_runs import play
from examples.papers.lafon_steal import DRQS, H_DRQS, walk
from examples.papers.lafon_tree import grow
from examples.papers.output import Series, line_plot, write_table

__all__ = ["hybrid", "overload", "pause"]

CORES = 40
RANKS = 20
HUGE = 0.1  # of all files, in one directory


def _size(small: bool) -> int:
    return 6_000 if small else 10**6


def _seeds(small: bool) -> tuple[int, ...]:
    return (1,) if small else (1, 2, 3)


def hybrid(out: Path, small: bool) -> list[Path]:
    """Plot the time of H-DRQS over that of DRQS on as many cores, by the cost of neighbours."""
    costs_us = (0, 100) if small else (0, 50, 100, 150, 200)
    trees = [(seed, grow(_size(small), seed)) for seed in _seeds(small)]
    kinds = (
        ("2 threads", 2, 1, Costs()),
        ("4 threads", 4, 1, Costs()),
        ("8 threads", 8, 1, Costs()),
        ("2 threads, readdir in 0.2 ms", 2, 1, Costs(readdir_s=0.0002)),
        ("2 threads, as many processes", 2, 2, Costs()),
    )
    rows = []
    curves = []
    for name, threads, factor, base in kinds:
        ratios = []
        for cost_us in costs_us:
            costs = msgspec.structs.replace(base, neighbour_s=cost_us * 1e-6)
            plain = msgspec.structs.replace(DRQS, per_node=threads)
            mixed = msgspec.structs.replace(H_DRQS, threads=threads)
            found = [
                walk(tree, CORES // threads * factor, mixed, seed, costs).time_s
                / walk(tree, CORES, plain, seed, costs).time_s
                for seed, tree in trees
            ]
            ratios.append(mean(found))
            rows.append((name, cost_us, mean(found), min(found), max(found)))
        curves.append(Series(name, ratios))
    header = ["kind", "neighbour_us", "mean_ratio", "min_ratio", "max_ratio"]
    table = write_table(out / "lafon-hybrid.csv", header, rows)
    drawn = line_plot(
        out / "lafon-hybrid.svg",
        costs_us,
        curves,
        title="H-DRQS: time over that of DRQS",
        labels=("µs an element costs for each other rank on the node", "ratio"),
    )
    return [table, *drawn]


def pause(out: Path, small: bool) -> list[Path]:
    """Plot the messages of PA-DRQS, H-DRQS and DRQS by the pause after a refusal."""
    pauses_us = (10, 1000) if small else (1, 10, 100, 1000, 10000)
    trees = [(seed, grow(_size(small), seed)) for seed in _seeds(small)]
    rows = []
    curves = []
    for name in ("PA-DRQS", "DRQS", "H-DRQS"):
        sent = []
        for pause_us in pauses_us:
            costs = Costs(pause_s=pause_us * 1e-6)
            found = [play(name, tree, CORES, seed, costs) for seed, tree in trees]
            sent.append(mean(result.messages for result in found))
            seconds = mean(result.time_s for result in found)
            rows.append((name, pause_us, sent[-1], mean(r.total_bytes for r in found), seconds))
        curves.append(Series(name, sent))
    header = ["algorithm", "pause_us", "messages", "bytes", "time_s"]
    table = write_table(out / "lafon-pause.csv", header, rows)
    drawn = line_plot(
        out / "lafon-pause.svg",
        pauses_us,
        curves,
        title=f"Messages, {CORES} cores, {trees[0][1].elements:,} elements",
        labels=("µs of pause after a refusal", "messages"),
        scales=("log", "log"),
    )
    return [table, *drawn]


def overload(out: Path, small: bool) -> list[Path]:
    """Plot the ranks' shares by when messages are seen; one directory has a tenth of all files."""
    late = msgspec.structs.replace(DRQS, probe_directories=True)
    whole = msgspec.structs.replace(DRQS, in_place=True)
    kinds = (
        ("DRQS", 0.0, DRQS),
        ("DRQS, huge", HUGE, DRQS),
        ("looks late", 0.0, late),
        ("looks late, huge", HUGE, late),
        ("in place", 0.0, whole),
        ("in place, huge", HUGE, whole),
        ("H-DRQS, huge", HUGE, H_DRQS),
    )
    rows: list[tuple[str | float, ...]] = []
    shown: dict[str, list[float]] = {}
    for name, huge, scheme in kinds:
        shown[name] = []
        for seed in _seeds(small):
            result = walk(grow(_size(small), seed, huge), RANKS, scheme, seed)
            ordered = sorted((100 * share for share in result.shares), reverse=True)
            shown[name] += ordered
            rows.append((name, seed, *ordered[:3], ordered[-1], result.time_s))
    header = ["kind", "seed", "first_percent", "second_percent", "third_percent", "last_percent"]
    table = write_table(out / "lafon-overload.csv", [*header, "time_s"], rows)
    title = f"{RANKS} ranks, {_size(small):,} elements; huge: a tenth of the files in one directory"
    drawn = histograms(
        out / "lafon-overload.png", shown, title=title, label="share of the elements, %"
    )
    return [table, *drawn]
