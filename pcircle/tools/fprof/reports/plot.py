"""The picture of a profile: files and bytes by size, cumulative shares, and bytes by age and size.

Drawing it requires matplotlib (see `pcircle.cli.pictures`). The page of `--html` requires no
package and shows more.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from pcircle.cli import pictures
from pcircle.core.units import format_size
from pcircle.tools.fprof.reports.page import Heat
from pcircle.tools.fprof.reports.report import ProfileReport

_SIZE_INCHES = (11, 8)
_BLUE, _ORANGE = "#2a6fc9", "#c2571a"


def write(report: ProfileReport, heat: Heat, path: str) -> None:
    """Draw the picture into a file; raise OSError if the file cannot be written."""
    figure = pictures.new_figure(_SIZE_INCHES)
    figure.suptitle(", ".join(report.roots), parse_math=False)
    (number, size), (sums, ages) = figure.subplots(2, 2)
    bins = report.sizes.bins
    labels = [
        format_size(size_bin.up_to) if size_bin.up_to is not None else "larger" for size_bin in bins
    ]
    _bars(number, labels, [size_bin.number_share for size_bin in bins], "files by size")
    _bars(size, labels, [size_bin.bytes_share for size_bin in bins], "bytes by size of file")
    _sums(sums, labels, report)
    _heat(ages, heat)
    pictures.save(figure, path)


def _ticks(axes: Any, labels: list[str]) -> None:
    every = max(1, -(-len(labels) // 9))
    axes.set_xticks(range(0, len(labels), every), labels[::every], rotation=30, ha="right")


def _bars(axes: Any, labels: list[str], shares: list[float], title: str) -> None:
    axes.bar(range(len(shares)), [100 * share for share in shares], color=_BLUE)
    axes.set_title(title)
    axes.set_ylabel("%")
    _ticks(axes, labels)


def _sums(axes: Any, labels: list[str], report: ProfileReport) -> None:
    bins = report.sizes.bins
    for name, color, shares in (
        ("of the files", _BLUE, [size_bin.number_share for size_bin in bins]),
        ("of the bytes", _ORANGE, [size_bin.bytes_share for size_bin in bins]),
    ):
        axes.plot([100 * size_bin for size_bin in accumulate(shares)], color=color, label=name)
    axes.set_title("share in files up to this size")
    axes.set_ylabel("%")
    axes.legend()
    _ticks(axes, labels)


def _heat(axes: Any, heat: Heat) -> None:
    cells = [[math.log1p(value) for value in row] for row in heat.bytes]
    axes.imshow(cells, aspect="auto", cmap="Blues")
    axes.set_yticks(range(len(heat.ages)), heat.ages)
    axes.set_title("bytes by age and size (logarithmic)")
    _ticks(axes, list(heat.sizes))
