"""The sets have the paper's proportions, corruption is repaired, each figure is generated."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from examples.papers import fcp, fcp_corrupted
from examples.papers.command import DOCS, Figure
from examples.papers.fcp import Copied, compared
from examples.papers.fcp_paper import SMALL_SHARE, TABLE_S
from examples.papers.fcp_sets import FULL, NOTHING, SMALL, DataSet, data_sets, fault, make
from examples.papers.output import can_plot
from tests.conftest import Run

MAX_PLOT_BYTES = 60_000


def test_the_sets_have_the_proportions_of_the_paper() -> None:
    one, large, equal, mixed = data_sets(FULL)
    assert one.total_bytes == 10 * large.total_bytes == 10 * equal.total_bytes
    assert [len(copied_set.sizes) for copied_set in (one, large, equal)] == [1, 1, 1_000]
    assert len(mixed.sizes) * 10 == 100_000
    scale = FULL.bytes_factor * 10  # of a file of the last set
    below = sum(size < 256 * 1024 * scale for size in mixed.sizes) / len(mixed.sizes)
    assert below == pytest.approx(SMALL_SHARE.value, abs=0.02)
    assert 4096 * scale - 1 <= min(mixed.sizes) < max(mixed.sizes) <= 100e6 * scale
    assert mixed.total_bytes == pytest.approx(equal.total_bytes, rel=0.3)


@pytest.mark.parametrize("one", [NOTHING, *data_sets(SMALL)], ids=lambda one: one.name)
def test_a_set_has_the_described_files(one: DataSet, tmp_path: Path) -> None:
    source = make(one, tmp_path)
    assert fault(one, source) is None
    longer = DataSet(one.name, (*one.sizes, 5))
    assert fault(longer, source) is not None


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_corruption_is_found_and_repaired(run: Run, tmp_path: Path, ranks: str) -> None:
    """Whole files and parts of a large file are repaired; the copies are correct."""
    sizes = (*[5_000] * 99, 40 << 20)
    source = make(DataSet("set", sizes), tmp_path)
    words = [sys.executable, "-m", "examples.papers.fcp_corrupted", "-j", ranks, "-T"]
    done = run([*words, "--chunksize", "1M", source, tmp_path / "copy"])
    assert done.returncode == 0, done.stderr
    again = done.stderr.count(fcp.AGAIN)
    names = [b"%d" % number for number in range(99)]
    files = sum(map(fcp_corrupted.is_chosen, names))
    assert files > 0
    assert again > files  # the first part of the large one, too
    for path in source.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "copy" / path.relative_to(source)).read_bytes()


def test_ratios_are_per_round_and_without_the_start() -> None:
    def runs(*seconds: float) -> list[Copied]:
        return [Copied(value_s, 0) for value_s in seconds]

    times = {
        "start": {"a": runs(1, 1, 1), "b": runs(2, 2, 2)},
        "set": {"a": runs(3, 30, 5), "b": runs(4, 40, 5)},
    }
    found = compared(times, "set", "a", "b")
    assert found == (5, 3, 30, 0.75, 4 / 3)
    assert compared(times, "start", "a", "b").net_ratio is None


@pytest.mark.parametrize("figure", fcp.MEASURED, ids=lambda figure: figure.name)
def test_each_figure_small(figure: Figure, tmp_path: Path) -> None:
    table, *plots = figure.make(tmp_path, True)
    assert [plot.suffix for plot in plots] == [".svg"] * can_plot()
    assert (DOCS / table.with_suffix(".svg").name).stat().st_size < MAX_PLOT_BYTES
    for path in (table, DOCS / table.name):
        note, *lines = path.read_text(encoding="utf-8").splitlines()
        assert note.startswith("# ")
        rows = list(csv.DictReader(lines))
        assert {row["set"] for row in rows} == {"start", *TABLE_S.value}
        assert all(float(row["min s"]) <= float(row["median s"]) for row in rows)
        assert "nan" not in path.read_text(encoding="utf-8")
