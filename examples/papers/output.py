"""Tables as CSV and plots as SVG or PNG, for the figures of all papers.

Plots are drawn by matplotlib, an extra (``pip install 'pcircle[plot]'``), which is imported when
the first plot is drawn. Without it only the tables are written. The same values yield the same
file, byte for byte, because an SVG contains no date and no random identifiers. Its text is stored
as text, so the file is small.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

Cell = str | int | float
Scale = str  # of an axis, as named by matplotlib: "linear", "log"

_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "pcircle", "font.size": 9.0}
_WIDTH_INCHES, _HEIGHT_INCHES = 6.0, 4.0
_DPI = 110
MISSING = "no plot: requires matplotlib: pip install 'pcircle[plot]'"


class Series(msgspec.Struct, frozen=True):
    """One curve, or the bars of one kind: a value for each x or group.

    *low* and *high*, if given, are the ends of the bar through each point. *style* is matplotlib's
    format of a line: "-o", "--", "s".
    """

    name: str
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: str = "-o"


def write_table(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[Cell]], note: str = ""
) -> Path:
    """Write a table as CSV; numbers with a fraction have six significant digits.

    A *note* becomes the first line, which begins with ``#``.
    """
    text = io.StringIO()
    if note:
        text.write(f"# {note}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_text(cell) for cell in row] for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def _text(cell: Cell) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(
    path: Path, paint: Callable[[Any], None], *, size: tuple[float, float] | None = None
) -> list[Path]:
    """Write the plot that *paint* draws; without matplotlib, print why there is none.

    *paint* receives a ``matplotlib.figure.Figure``. Return the paths written. *size* is in inches.
    """
    if not can_plot():
        print(MISSING, file=sys.stderr)
        return []
    picture = io.BytesIO()
    with import_module("matplotlib").rc_context(_SETTINGS):
        figure = import_module("matplotlib.figure").Figure(
            figsize=size or (_WIDTH_INCHES, _HEIGHT_INCHES), layout="constrained"
        )
        paint(figure)
        kind = path.suffix[1:]
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(picture, format=kind, dpi=_DPI, metadata=metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture.getvalue())
    return [path]


def line_plot(
    path: Path,
    x: Sequence[float],
    series: Sequence[Series],
    *,
    title: str,
    labels: tuple[str, str],
    scales: tuple[Scale, Scale] = ("linear", "linear"),
) -> list[Path]:
    """Draw curves over a common *x*. *labels* and *scales* are for x and y."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for one in series:
            _curve(axes, x, one)
        _finish(axes, title, labels)
        axes.set(xscale=scales[0], yscale=scales[1])
        if scales[1] == "linear":
            axes.set_ylim(bottom=0)

    return draw(path, paint)


def _curve(axes: Any, x: Sequence[float], one: Series) -> None:
    if one.low:
        below = [max(y - low, 0) for y, low in zip(one.y, one.low, strict=True)]
        above = [max(high - y, 0) for y, high in zip(one.y, one.high, strict=True)]
        axes.errorbar(
            x, one.y, yerr=(below, above), fmt=one.style, label=one.name, markersize=3, capsize=3
        )
    else:
        axes.plot(x, one.y, one.style, label=one.name, markersize=3)


class BarPanel(msgspec.Struct, frozen=True):
    """Groups of bars side by side, with one bar of each series in a group. *label* is that of y.

    *headroom* is the fraction of the height that is reserved for the legend.
    """

    title: str
    label: str
    series: Sequence[Series]
    headroom: float = 0.2


def bar_plot(
    path: Path,
    groups: Sequence[str],
    series: Sequence[Series],
    *,
    title: str,
    labels: tuple[str, str],
    size: tuple[float, float] | None = None,
    scale: Scale = "linear",
) -> list[Path]:
    """Draw one panel of bars.

    *size* is in inches, *scale* is that of y.
    """
    panel = BarPanel(title, labels[1], series)
    return bar_panels(path, groups, [panel], label=labels[0], size=size, scale=scale)


def bar_panels(
    path: Path,
    groups: Sequence[str],
    panels: Sequence[BarPanel],
    *,
    label: str = "",
    size: tuple[float, float] | None = None,
    scale: Scale = "linear",
) -> list[Path]:
    """Draw panels next to each other, with the same groups of bars. *label* is that of x."""

    def paint(figure: Any) -> None:
        [row] = figure.subplots(1, len(panels), squeeze=False)
        for axes, panel in zip(row, panels, strict=True):
            width = 0.8 / len(panel.series)
            for number, one in enumerate(panel.series):
                offset = (number - (len(panel.series) - 1) / 2) * width
                axes.bar([at + offset for at in range(len(groups))], one.y, width, label=one.name)
            axes.set_xticks(range(len(groups)), groups)
            axes.set(yscale=scale)
            axes.margins(y=panel.headroom)
            _finish(axes, panel.title, (label, panel.label))

    return draw(path, paint, size=size)


def heat_map(
    path: Path,
    matrix: Sequence[Sequence[float]],
    *,
    title: str,
    labels: tuple[str, str],
    unit: str,
) -> list[Path]:
    """Draw a matrix with a logarithmic colour scale; zeros stay white. *labels*: columns, rows."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        positive = [value for row in matrix for value in row if value > 0]
        shown = [[value if value > 0 else float("nan") for value in row] for row in matrix]
        norm = import_module("matplotlib.colors").LogNorm(min(positive), max(positive))
        image = axes.imshow(shown, norm=norm, cmap="viridis_r", interpolation="nearest")
        axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
        figure.colorbar(image, ax=axes, label=unit)

    return draw(path, paint, size=(_WIDTH_INCHES, 4.8))


def _finish(axes: Any, title: str, labels: tuple[str, str]) -> None:
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
    axes.grid(alpha=0.3)
    axes.legend()
