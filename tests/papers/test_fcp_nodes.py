"""Copies on simulated nodes: no byte is lost, calibrated bars are met, others are predicted."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import pytest

from examples.papers import fcp_memory, fcp_nodes
from examples.papers.command import DOCS, Figure
from examples.papers.fcp_lustre import CALIBRATED, SETS, FileSet, calibrated, copy_set
from examples.papers.fcp_paper import FILE_BYTES, NODES, NODES_S
from examples.papers.output import can_plot

MAX_PLOT_BYTES = 60_000
BARS = sum(paper_s is not None for one in NODES_S.values() for bars in one.value.values()
           for paper_s in bars)  # fmt: skip


def shorter(name: str) -> FileSet:
    """Return a tenth of a set with one file."""
    return msgspec.structs.replace(SETS[name], file_bytes=SETS[name].file_bytes // 10)


@pytest.mark.parametrize(
    "files", [FileSet(1, (1 << 30) + 5), FileSet(7, 100_000_001), FileSet(700, 5)]
)
@pytest.mark.parametrize("nodes", [1, 3])
def test_every_byte_is_copied_once(files: FileSet, nodes: int) -> None:
    copied = copy_set(files, nodes, 5, calibrated())
    assert sum(copied.bytes) == files.files * files.file_bytes
    assert copied == copy_set(files, nodes, 5, calibrated())


@pytest.mark.parametrize(("name", "stripes", "nodes"), CALIBRATED[1:4])
def test_a_calibrated_bar_is_met(name: str, stripes: int, nodes: int) -> None:
    paper_s = NODES_S[name].value[stripes][NODES.value.index(nodes)]
    copied = copy_set(shorter(name), nodes, stripes, calibrated())
    assert 10 * copied.time_s == pytest.approx(paper_s, rel=0.02)


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 4.0), (8, 2.0)])
def test_the_slowest_queue_decides(nodes: int, seconds: float) -> None:
    """The time follows from one rate, whichever it is: a node's, or the network's."""
    setup = msgspec.structs.replace(
        calibrated(), target_bytes_per_s=1e12, node_s_per_byte=4e-9, stripe_s_per_byte=0.0,
        network_bytes_per_s=5e8,
    )  # fmt: skip
    copied = copy_set(FileSet(1, 10**9), nodes, 32, setup)
    assert copied.time_s == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize("figure", fcp_nodes.FIGURES, ids=lambda figure: figure.name)
def test_each_figure_small(figure: Figure, tmp_path: Path) -> None:
    table, *plots = figure.make(tmp_path, True)
    assert [plot.suffix for plot in plots] == [".svg"] * can_plot()
    assert (DOCS / table.with_suffix(".svg").name).stat().st_size < MAX_PLOT_BYTES
    assert "nan" not in table.read_text(encoding="utf-8")


def test_the_page_has_every_bar_and_how_well_the_model_fits() -> None:
    ratios: list[float] = []
    calibrations = 0
    for figure in fcp_nodes.FIGURES:
        text = (DOCS / f"fcp-{figure.name}.csv").read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines()[1:]):
            calibrations += row["paper's bar"] == "calibrated"
            if row["over paper"] and row["paper's bar"] == "predicted":
                ratios.append(float(row["over paper"]))
    assert (len(ratios) + calibrations, calibrations) == (BARS, len(CALIBRATED))
    assert fcp_nodes.deviation(ratios) < 0.15
    assert max(max(ratio, 1 / ratio) for ratio in ratios) < 1.65


def test_memory_is_measured(tmp_path: Path) -> None:
    [figure] = fcp_memory.FIGURES
    [table] = figure.make(tmp_path, True)
    for path in (table, DOCS / table.name):
        _, *lines = path.read_text(encoding="utf-8").splitlines()
        rows = {row["what"]: float(row["ours"]) for row in csv.DictReader(lines)}
        assert rows["each chunk in memory"] > rows["each chunk on disk"] > 0
    assert rows["each file"] < FILE_BYTES.value
