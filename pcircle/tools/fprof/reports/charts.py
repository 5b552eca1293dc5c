"""The charts of a profile: an HTML page with the numbers behind them, and a picture.

The page (from the template `page.html`) contains the report as JSON, in the format of `--json`, and
the data behind its charts: the directory tree, files by age and size, and messages between ranks.
It loads no other resources, and its content security policy forbids loading any, so it can be
mailed and archived. Names are passed as data, so the browser never parses them as HTML.

The picture of `--plot` shows files and bytes by size, cumulative shares, and bytes by age and size.
Drawing it requires matplotlib (see `pcircle.cli.pictures`). The page requires no package and shows
more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.resources import files
from itertools import accumulate
from typing import Any

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.cli import pictures
from pcircle.core.encoding import show
from pcircle.core.units import DAY_S, format_size
from pcircle.tools.fprof.options import DIMENSIONS, Bins, ReportOptions
from pcircle.tools.fprof.profile.model import DirectoryRow, Profile
from pcircle.tools.fprof.reports.report import ProfileReport

_MARK = "{{data}}"
_AGES_WEEKS = (1, 4, 13, 26, 52, 104, 260, 520)
_AGE_LABELS = (
    "future", "1 week", "4 weeks", "3 months", "6 months", "1 year", "2 years", "5 years",
    "10 years", "older",
)  # fmt: skip
_ROWS = 12


class TreemapNode(msgspec.Struct, frozen=True, array_like=True):
    """A directory in the treemap.

    `above` is the index of its parent, or -1 if it has none. `bytes` and `entries` include
    subdirectories; `own_bytes` and `own_entries` count direct contents only.
    """

    above: int
    name: str
    bytes: int
    entries: int
    own_bytes: int
    own_entries: int


class Heat(msgspec.Struct, frozen=True):
    """The number and total size of files by age (rows) and size (columns)."""

    ages: tuple[str, ...]
    sizes: tuple[str, ...]
    number: tuple[tuple[int, ...], ...]
    bytes: tuple[tuple[int, ...], ...]


class PageData(msgspec.Struct, frozen=True):
    """All the data on the page; `sent` is the matrix of message counts by sender and receiver."""

    report: ProfileReport
    nodes: tuple[TreemapNode, ...]
    heat: Heat
    sent: tuple[tuple[int, ...], ...]


def page_options(top: int) -> ReportOptions:
    """Return the options for the report on the page.

    Its top lists have `top` rows, or 10 if that is 0.
    """
    return ReportOptions(bins=Bins("log2"), by=DIMENSIONS, top=top or 10, everything=True)


def write_page(profile: Profile, report: ProfileReport, path: str) -> None:
    """Write the page, replacing any existing file.

    The report must have been made with `page_options`.

    Raise OSError if the page cannot be written.
    """
    data = PageData(report, tuple(_nodes(profile)), heat_of(profile), _sent(report))
    # Escape text that would end the script element or begin a comment in it.
    text = msgspec.json.encode(data).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028")
    template = (
        files("pcircle.tools.fprof.reports").joinpath("page.html").read_text(encoding="utf-8")
    )
    before, _, after = template.partition(_MARK)
    jsonout.put((before + text + after).encode(), path)


def _nodes(profile: Profile) -> Iterator[TreemapNode]:
    """Yield the listed directories, each after its parent; several roots share a parent node."""
    rows = {(row.root, row.path): row for row in (*profile.weights, *profile.crowds)}
    ordered = sorted(rows.values(), key=lambda row: (row.depth, row.root, row.path))
    roots = [row for row in ordered if not row.path]
    places: dict[tuple[int, bytes], int] = {}
    count = 0
    if len(roots) != 1:
        yield TreemapNode(-1, "", *_numbers(roots), 0, 0)
        count = 1
    for row in ordered:
        above = places.get((row.root, row.path.rpartition(b"/")[0])) if row.path else None
        if row.path and above is None:
            continue  # the directory was moved during the walk
        name = show(row.path.rpartition(b"/")[2] or profile.roots[row.root])
        place = above if above is not None else count - 1 if len(roots) == 1 else 0
        yield TreemapNode(place, name, row.size_bytes, row.entries, row.own_bytes, row.own_entries)
        places[row.root, row.path] = count
        count += 1


def _numbers(rows: list[DirectoryRow]) -> tuple[int, int]:
    return sum(row.size_bytes for row in rows), sum(row.entries for row in rows)


def heat_of(profile: Profile) -> Heat:
    """Return the number and total size of a profile's files by age and size."""
    today = profile.taken_s // DAY_S // 7
    octaves = 1 + max((place % 64 for place in profile.age_sizes), default=0)
    number = [[0] * octaves for _ in _AGE_LABELS]
    size_bytes = [[0] * octaves for _ in _AGE_LABELS]
    for place, (count, size, _) in profile.age_sizes.items():
        week, octave = divmod(place, 64)
        age = today - week
        row = 0 if age < 0 else 1 + sum(age >= edge for edge in _AGES_WEEKS)
        number[row][octave] += count
        size_bytes[row][octave] += size
    labels = ["0"] + [format_size(1 << octave) for octave in range(octaves - 1)]
    return Heat(
        _AGE_LABELS, tuple(labels), tuple(map(tuple, number)), tuple(map(tuple, size_bytes))
    )


def _sent(report: ProfileReport) -> tuple[tuple[int, ...], ...]:
    """Return the matrix of messages; empty for one rank or for too many to draw."""
    size = len(report.ranks)
    if not 1 < size <= 256:
        return ()
    matrix: list[list[int]] = [[0] * size for _ in range(size)]
    for rank in report.ranks:
        for sent in rank.sent:
            matrix[rank.rank][sent.rank] = sent.messages
    return tuple(map(tuple, matrix))


_SIZE_INCHES = (11, 8)
_BLUE, _ORANGE = "#2a6fc9", "#c2571a"


def write_plot(profile: Profile, report: ProfileReport, path: str) -> None:
    """Draw the picture into a file; raise OSError if the file cannot be written."""
    figure = pictures.new_figure(_SIZE_INCHES)
    figure.suptitle(", ".join(report.roots), parse_math=False)
    (number, size), (sums, ages) = figure.subplots(2, 2)
    bins = report.sizes.bins
    labels = [
        format_size(size_bin.up_to) if size_bin.up_to is not None else "larger" for size_bin in bins
    ]
    _draw_bars(number, labels, [size_bin.number_share for size_bin in bins], "files by size")
    _draw_bars(size, labels, [size_bin.bytes_share for size_bin in bins], "bytes by size of file")
    _draw_sums(sums, labels, report)
    _draw_heat(ages, heat_of(profile))
    pictures.save(figure, path)


def _draw_ticks(axes: Any, labels: list[str]) -> None:
    every = max(1, -(-len(labels) // 9))
    axes.set_xticks(range(0, len(labels), every), labels[::every], rotation=30, ha="right")


def _draw_bars(axes: Any, labels: list[str], shares: list[float], title: str) -> None:
    axes.bar(range(len(shares)), [100 * share for share in shares], color=_BLUE)
    axes.set_title(title)
    axes.set_ylabel("%")
    _draw_ticks(axes, labels)


def _draw_sums(axes: Any, labels: list[str], report: ProfileReport) -> None:
    bins = report.sizes.bins
    for name, color, shares in (
        ("of the files", _BLUE, [size_bin.number_share for size_bin in bins]),
        ("of the bytes", _ORANGE, [size_bin.bytes_share for size_bin in bins]),
    ):
        axes.plot([100 * size_bin for size_bin in accumulate(shares)], color=color, label=name)
    axes.set_title("share in files up to this size")
    axes.set_ylabel("%")
    axes.legend()
    _draw_ticks(axes, labels)


def _draw_heat(axes: Any, heat: Heat) -> None:
    cells = [[math.log1p(value) for value in row] for row in heat.bytes]
    axes.imshow(cells, aspect="auto", cmap="Blues")
    axes.set_yticks(range(len(heat.ages)), heat.ages)
    axes.set_title("bytes by age and size (logarithmic)")
    _draw_ticks(axes, list(heat.sizes))
