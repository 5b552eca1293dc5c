"""Plots that only LaFon's figures need: heat maps with one colour scale, two panels, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from examples.papers.output import draw

__all__ = ["heat_maps", "histograms", "two_panels"]

_Curve = tuple[str, Sequence[tuple[float, float]]]


def heat_maps(
    path: Path, maps: Sequence[tuple[str, Sequence[Sequence[int]]]], label: str = "bytes"
) -> list[Path]:
    """Draw matrices of bytes from row to column side by side; zeros stay white."""

    def paint(figure: Any) -> None:
        values = [value for _, matrix in maps for row in matrix for value in row if value]
        norm = import_module("matplotlib.colors").LogNorm(min(values), max(values))
        rows = 2 if len(maps) > 2 else 1
        panels = figure.subplots(rows, -(-len(maps) // rows), squeeze=False)
        for axes, (name, matrix) in zip(panels.flat, maps, strict=True):
            shown = [[value or float("nan") for value in row] for row in matrix]
            image = axes.imshow(shown, norm=norm, cmap="viridis_r", interpolation="none")
            every = range(0, len(matrix), 10)
            axes.set_xticks(every)
            axes.set_yticks(every)
            axes.set(title=name, xlabel="to rank", ylabel="from rank")
        figure.colorbar(image, ax=panels, label=label)

    size = (7.0, 6.2) if len(maps) > 2 else (6.0, 4.8)
    return draw(path, paint, size=size)


def two_panels(
    path: Path, curves: Sequence[Sequence[_Curve]], *, labels: tuple[str, str, str], title: str
) -> list[Path]:
    """Draw two sets of curves with separate x axes, on logarithmic scales. Labels: x, both y."""

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        for axes, each, label in zip(panels, curves, labels[1:], strict=True):
            for name, points in each:
                axes.plot(*zip(*points, strict=True), "-o", label=name, markersize=3)
            axes.set(xscale="log", yscale="log", xlabel=labels[0], ylabel=label)
            axes.grid(alpha=0.3)
        panels[0].legend()
        figure.suptitle(title)

    return draw(path, paint, size=(8.0, 4.0))


def histograms(
    path: Path, values: Mapping[str, Sequence[float]], *, title: str, label: str
) -> list[Path]:
    """Draw a histogram for each name, one below the other, with common bins."""

    def paint(figure: Any) -> None:
        low = min(map(min, values.values()))
        high = max(map(max, values.values()))
        width = (high - low) / 40 or 1.0
        bins = [low + width * number for number in range(41)]
        panels = figure.subplots(len(values), 1, sharex=True, squeeze=False)
        for axes, (name, each) in zip(panels.flat, values.items(), strict=True):
            axes.hist(each, bins=bins)
            axes.set_ylabel(name)
            axes.grid(alpha=0.3)
        axes.set_xlabel(label)
        figure.suptitle(title)

    return draw(path, paint, size=(6.0, 1.3 * len(values) + 0.8))
