"""The workloads of the PXFS figures are as described, and each figure is generated small."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from examples.papers import pxfs
from examples.papers.command import DOCS, Figure
from examples.papers.output import can_plot
from examples.papers.pxfs_mount import KIB, MIB, faster, servers
from examples.papers.pxfs_paper import ASYNCHRONOUS_MS, LOST, SYNCHRONOUS_MS
from tests.fusefs.mounting import missing
from tests.fusefs.rules import Rule, Rules

MAX_PLOT_BYTES = 60_000

needs_fuse = pytest.mark.skipif(bool(missing()), reason=missing() or "there")


@pytest.mark.parametrize(("block_bytes", "ratio"), [(64 * KIB, 20.0), (MIB, 3.0)])
def test_the_servers_are_fitted_to_the_ratios_of_reads(block_bytes: int, ratio: float) -> None:
    rule = servers(16, block_bytes)
    service_s = rule.busy_s + block_bytes / rule.bytes_per_s
    synchronous = 24 / (rule.delay_s + service_s)
    assert 16 / service_s / synchronous == pytest.approx(ratio, rel=0.02)


def test_blocks_of_a_file_have_servers_in_turn() -> None:
    rules = Rules()
    rules.set([servers(4, MIB)._asdict()])
    delays_s = [rules.judge("read", [b"f"], at * MIB, MIB, 1.0).delay_s for at in range(8)]
    service_s = 0.004 + MIB * 0.004 / (64 * KIB)
    assert delays_s[4] - delays_s[0] == pytest.approx(service_s)
    assert len({round(delay_s, 9) for delay_s in delays_s}) == 2


def test_a_faster_rule_is_faster_in_all() -> None:
    rule = Rule(delay_s=5.0, servers=3, busy_s=1.0, bytes_per_s=100.0)
    quick = faster(rule)
    assert (quick.delay_s, quick.busy_s, quick.bytes_per_s, quick.servers) == (0.1, 0.02, 5000, 3)


@needs_fuse
@pytest.mark.parametrize("figure", pxfs.FIGURES, ids=lambda figure: figure.name)
def test_each_figure_small(figure: Figure, tmp_path: Path) -> None:
    table, *plots = figure.make(tmp_path, True)
    assert [plot.suffix for plot in plots] == [".svg"] * can_plot()
    assert (DOCS / table.with_suffix(".svg").name).stat().st_size < MAX_PLOT_BYTES
    whats = []
    for path in (table, DOCS / table.name):
        note, *lines = path.read_text(encoding="utf-8").splitlines()
        assert note.startswith("# ")
        rows = list(csv.DictReader(lines))
        assert all(row["asynchronous"] for row in rows)
        whats.append({row["what"] for row in rows})
    assert whats[0] == whats[1]


def test_the_papers_numbers_are_complete() -> None:
    """Each row of the thesis' tables, and each workload, has its reference values."""
    for what, lost in LOST.value.items():
        assert pxfs.CASES["case3"].paper(f"read, {what}") == lost[0:3:2]
    assert SYNCHRONOUS_MS.value.keys() == ASYNCHRONOUS_MS.value.keys()
    assert pxfs.CASES["latency"].paper("stat") == (0.93, 1.11)
    assert pxfs.CASES["case1"].paper("read, 1 thread") == ("", "")
