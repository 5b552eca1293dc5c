"""Figures 6 to 9 of Wang et al. 2016: fcp on 1 to 8 nodes, with 1 to 512 stripes, simulated.

`examples.papers.fcp_lustre` contains the model, and states on which bars of the paper it is
calibrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from examples.papers.command import Figure
from examples.papers.fcp_lustre import CALIBRATED, SETS, FileSet, calibrated, copy_set
from examples.papers.fcp_paper import NODES, NODES_S
from examples.papers.output import Cell, Series, line_plot, write_table

__all__ = ["FIGURES", "deviation"]

_SMALL_FILES = 300
_SMALL_BYTES = 2 << 30
_NUMBERS = {"set 1": 6, "set 2": 7, "set 3": 8, "set 4": 9}
_TITLES = {
    "set 1": "one file of 1 TB",
    "set 2": "one file of 100 GB",
    "set 3": "1,000 files of 100 MB",
    "set 4": "100,000 small files",
}


def _files(name: str, small: bool) -> FileSet:
    full = SETS[name]
    if not small:
        return full
    if full.files == 1:
        return msgspec.structs.replace(full, file_bytes=_SMALL_BYTES)
    return msgspec.structs.replace(full, files=min(full.files, _SMALL_FILES))


def by_nodes(name: str, out: Path, small: bool) -> list[Path]:
    """Simulate a set by nodes and stripes; write the table, and lines with the paper's points."""
    setup, files = calibrated(), _files(name, small)
    nodes = NODES.value[:2] if small else NODES.value
    rows: list[list[Cell]] = []
    series: list[Series] = []
    for colour, (stripes, paper) in enumerate(NODES_S[name].value.items()):
        times_s: list[float] = []
        for number, paper_s in zip(nodes, paper, strict=False):
            copied = copy_set(files, number, stripes, setup)
            times_s.append(copied.time_s)
            fitted = "calibrated" if (name, stripes, number) in CALIBRATED else "predicted"
            known: list[Cell] = ["", ""] if paper_s is None else [paper_s, copied.time_s / paper_s]
            rows.append([stripes, number, copied.time_s, *known, fitted, copied.messages])
        unit = "stripe" if stripes == 1 else "stripes"
        series.append(Series(f"{stripes} {unit}", times_s, style=f"C{colour}-"))
        points = [float("nan") if paper_s is None else paper_s for paper_s in paper[: len(nodes)]]
        series.append(Series(f"{stripes} {unit}, paper", points, style=f"C{colour}s"))
    predicted = [float(row[4]) for row in rows if row[4] != "" and row[5] == "predicted"]
    note = f"median deviation of the predicted bars: {100 * deviation(predicted):.0f} %"
    note += f"; paper: {NODES_S[name].source}"
    header = ("stripes", "nodes", "seconds", "paper s", "over paper", "paper's bar", "messages")
    figure = f"fcp-fig{_NUMBERS[name]}"
    written = [write_table(out / f"{figure}.csv", header, rows, note)]
    return written + line_plot(
        out / f"{figure}.svg", nodes, series,
        title=f"FCP fig. {_NUMBERS[name]}: {_TITLES[name]}", labels=("nodes", "seconds"),
        scales=("log", "log"),
    )  # fmt: skip


def deviation(ratios: Sequence[float]) -> float:
    """Return by how much the median ratio deviates from 1, up or down."""
    return median(max(ratio, 1 / ratio) - 1 for ratio in ratios)


_DURATIONS_S = {"set 1": 45.0, "set 2": 8.0, "set 3": 8.0, "set 4": 30.0}
FIGURES = [
    Figure(
        f"fig{_NUMBERS[name]}",
        f"{_TITLES[name]} on 1 to 8 nodes, simulated",
        _DURATIONS_S[name],
        partial(by_nodes, name),
    )
    for name in SETS
]
