"""Common parts of all tests of figures: matplotlib's fonts are opened before the first test."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.papers.output import Series, can_plot, line_plot


@pytest.fixture(scope="session", autouse=True)
def fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Draw once: matplotlib keeps font files open, which is not a leak of the first test."""
    if not can_plot():
        return
    folder: Path = tmp_path_factory.mktemp("fonts")
    decades, part = [Series("name", [1.0, 10.0])], [Series("name", [0.2, 0.5])]
    logs = ("log", "log")
    for ending in ("svg", "png"):
        path = folder / f"plot.{ending}"
        # Within one decade minor ticks have labels, in further fonts.
        for one in (decades, part):
            line_plot(path, [1, 10], one, title="t", labels=("x", "y"), scales=logs)
