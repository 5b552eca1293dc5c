"""Real ranks walk every path once, and the figure of their messages is complete."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from examples.papers.command import DOCS, Figure, main
from examples.papers.lafon_ranks import Job, Run
from examples.papers.lafon_real import (
    HOSTS,
    HOSTS_RANKS,
    POLICIES,
    RANKS,
    REAL,
    SMALL_RANKS,
    build,
    obstacle,
    walked,
)
from examples.papers.lafon_tree import grow
from examples.papers.output import can_plot

MAX_PLOT_BYTES = 150_000


def walk(place: Path, elements: int, delay_s: float) -> Run:
    tree = grow(elements, 2)
    build(tree, place / "tree")
    run = walked(Job(str(place / "tree"), 4, 2, POLICIES["DRQS"], delay_s, 0.001))
    assert sum(run.elements) == tree.elements == elements
    assert sum(1 for _ in (place / "tree").rglob("*")) + 1 == elements
    return run


def test_a_message_takes_its_delay(tmp_path: Path) -> None:
    """The end is detected by a token that visits all four ranks: two messages between nodes."""
    run = walk(tmp_path, 1, 0.1)
    assert run.time_s >= 2 * 0.1
    assert sorted(run.elements) == [0, 0, 0, 1]
    assert 0 < run.idle < 1
    assert all(row[rank] == 0 for rank, row in enumerate(run.pair_messages))
    for messages, size_bytes in zip(run.pair_messages, run.pair_bytes, strict=True):
        assert [count > 0 for count in messages] == [size > 0 for size in size_bytes]


@pytest.mark.parametrize(
    ("figure", "scale", "how"),
    [
        pytest.param(REAL, RANKS, "added by the transport", id="local"),
        pytest.param(HOSTS, HOSTS_RANKS, "network namespaces", id="hosts", marks=pytest.mark.mpi),
    ],
)
def test_a_small_measurement(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    figure: Figure,
    scale: Sequence[int],
    how: str,
) -> None:
    if figure is HOSTS and (reason := obstacle()):
        pytest.skip(reason)
    words = [figure.name, "--small", "--delay", "2ms", "--out", str(tmp_path)]
    assert main("lafon", [figure], words) == 0
    assert how in capsys.readouterr().err
    assert len(list(tmp_path.glob("*.svg"))) == 3 * can_plot()
    name = f"lafon-{figure.name}"
    for place, ranks, delay in ((tmp_path, SMALL_RANKS, "2 ms"), (DOCS, scale, "1 ms")):
        note, *lines = (place / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        assert f"messages between nodes {delay}" in note
        rows = list(csv.DictReader(lines))
        assert [(int(row["ranks"]), row["policies"]) for row in rows] == [
            (number, policies) for number in ranks for policies in POLICIES
        ]
        note, *lines = (place / f"{name}-pairs.csv").read_text(encoding="utf-8").splitlines()
        pairs = list(csv.DictReader(lines))
        for policies in POLICIES:
            sources = {int(pair["from"]) for pair in pairs if pair["policies"] == policies}
            assert sources == set(range(ranks[-1])), "each rank sends its account"
    for label in ("", "-messages", "-bytes"):
        assert 0 < (DOCS / f"{name}{label}.svg").stat().st_size < MAX_PLOT_BYTES
