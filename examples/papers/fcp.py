"""The copies of Wang et al. (FCP, Cray User Group 2016): Table I, checksums and ranks, measured.

Figures 6 to 9, on 1 to 8 nodes, are simulated (`examples.papers.fcp_nodes`).

The paper copies four data sets with cp, rsync, dcp and its own fcp, with 8 processes on one node,
on a Lustre file system (section III-A). Further runs use checksums and more nodes. Here the same
sets, scaled down (`examples.papers.fcp_sets`), are copied in memory with cp, rsync, dcp if it is
installed, and pcircle's fcp. Only ratios are compared. The paper's numbers are in
`examples.papers.fcp_paper`.

All tools take turns in each round, the first round is dropped, and each copy is checked after its
time was measured. A tool's *start* is its time for one empty file. The tables also have the ratios
of the times without it, because it matters for such short copies.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree, which
from statistics import median
from typing import NamedTuple

from examples.papers import fcp_memory, fcp_nodes
from examples.papers.command import Figure, main
from examples.papers.fcp_paper import CHECKSUM_S, DEFAULT_STRIPES, NODES, NODES_S, TABLE_S
from examples.papers.fcp_sets import FULL, NOTHING, SMALL, DataSet, data_sets, fault, make
from examples.papers.measured import Surroundings, in_turns, scratch
from examples.papers.output import Cell, Series, bar_plot, line_plot, write_table
from tests.benchmarks import measure, tools

ROUNDS = 5
_TIMEOUT_S = 300.0
RANKS = (1, 2, 4, 8)
AGAIN = b"failed verification; copied again"
_WITHOUT_DCP = "no dcp: it is not on PATH, or no mpirun fits it"


class Way(NamedTuple):
    """A command: its name, and the words before source and target."""

    name: str
    words: tuple[str, ...]

    def command(self, source: Path, target: Path) -> list[str]:
        # Without the slash, rsync copies the directory itself instead of its contents.
        slash = "/" if self.words[0] == "rsync" and source.is_dir() else ""
        return [*self.words, f"{source}{slash}", str(target)]


class Copied(NamedTuple):
    """A copy: its seconds, and how many files or parts of files were copied again."""

    wall_s: float
    again: int


def fcp_way(name: str, ranks: int, *more: str, module: str = "pcircle.tools.fcp") -> Way:
    words = sys.executable, "-m", module, "-T", "--no-checkpoint", "-j", str(ranks), *more
    return Way(name, words)


def tool_ways(ranks: int, place: Path) -> tuple[list[Way], str]:
    """Return the tools of Table I that are installed, and why one is not."""
    found = [Way("cp", ("cp", "-r"))]
    missing = []
    if which("rsync"):
        found.append(Way("rsync", ("rsync", "-r")))
    else:
        missing.append("no rsync: it is not on PATH")
    launcher = tools.dcp_launcher("dcp", None, str(place)) if which("dcp") else ""
    if isinstance(launcher, list):
        found.append(Way("dcp", (*launcher, "-np", str(ranks), "dcp", "-q")))
    else:
        missing.append(_WITHOUT_DCP)
    return [*found, fcp_way("fcp", ranks)], "; ".join(missing)


@contextmanager
def working() -> Iterator[Path]:
    """Yield a directory for the copies."""
    with tempfile.TemporaryDirectory(prefix="pcircle-fcp-", dir=scratch()) as place:
        yield Path(place)


def copy(way: Way, one: DataSet, source: Path) -> Copied:
    """Copy once, check the copy, and remove it; raise RuntimeError if it is incomplete."""
    place = source.parents[1]
    target, log = place / "copy", place / "log"
    command, environment = way.command(source, target), tools.environment()
    cost = measure.run(command, environment, str(log), _TIMEOUT_S)
    wrong = f"exit code {cost.exit_code}" if cost.exit_code else fault(one, target)
    if wrong:
        raise RuntimeError(f"{way.name}, {one.name}: {wrong}; {measure.last_words(str(log))}")
    rmtree(target) if target.is_dir() else target.unlink()
    return Copied(cost.wall_s, log.read_bytes().count(AGAIN))


Times = dict[str, dict[str, list[Copied]]]  # by set and way


def times_of(ways: Sequence[Way], small: bool, place: Path) -> Times:
    """Copy all sets, and one empty file, in all ways."""
    named = {way.name: way for way in ways}
    found: Times = {}
    for one in [NOTHING, *data_sets(SMALL if small else FULL)]:
        print(f"{one.name}: {len(one.sizes):,} files, {one.total_bytes:,} bytes", file=sys.stderr)
        source = make(one, place)

        def once(name: str, one: DataSet = one, source: Path = source) -> Copied:
            return copy(named[name], one, source)

        rounds, dropped = (1, 0) if small else (ROUNDS, 1)
        found[one.name] = in_turns(list(named), rounds, once, dropped)
        rmtree(source.parent)
    return found


class Compared(NamedTuple):
    """A way compared with the reference: seconds, and the ratio with and without the start."""

    median_s: float
    min_s: float
    max_s: float
    ratio: float
    net_ratio: float | None  # None if the copy takes no longer than the start


def compared(times: Times, name: str, way: str, reference: str) -> Compared:
    """Compare two ways by the median of the ratios of each round, and otherwise by medians."""
    mine = [each.wall_s for each in times[name][way]]
    other = [each.wall_s for each in times[name][reference]]
    ratio = median(a / b for a, b in zip(mine, other, strict=True))
    net_s, other_net_s = (
        median(each.wall_s for each in times[name][which])
        - median(each.wall_s for each in times[NOTHING.name][which])
        for which in (way, reference)
    )
    net = net_s / other_net_s if net_s > 0 and other_net_s > 0 else None
    return Compared(median(mine), min(mine), max(mine), ratio, net)


_TIMES = ("median s", "min s", "max s")


def _cells(one: Compared) -> list[Cell]:
    net: Cell = "" if one.net_ratio is None else one.net_ratio
    return [one.median_s, one.min_s, one.max_s, one.ratio, net]


def _ranks() -> int:
    return len(os.sched_getaffinity(0))


def table(out: Path, small: bool) -> list[Path]:
    """Table I: all tools on all sets, and their times divided by fcp's."""
    before = Surroundings.now()
    with working() as place:
        ways, missing = tool_ways(_ranks(), place)
        times = times_of(ways, small, place)
    names = [way.name for way in ways]
    rows: list[list[Cell]] = []
    for one in times:
        for name in names:
            paper: list[Cell] = ["", ""]
            if one in TABLE_S.value:
                stated_s = TABLE_S.value[one]
                paper = [stated_s[name], stated_s[name] / stated_s["fcp"]]
            rows.append([one, name, *_cells(compared(times, one, name, "fcp")), *paper])
    setup = f"{_ranks()} ranks of fcp and dcp, tmpfs; {missing or 'all tools there'}"
    note = before.note(f"{setup}; paper: {TABLE_S.source}")
    header = ("set", "tool", *_TIMES, "over fcp", "over fcp without start", "paper s",
              "paper over fcp")  # fmt: skip
    written = [write_table(out / "fcp-table1.csv", header, rows, note)]
    groups = list(TABLE_S.value)
    others = [name for name in names if name != "fcp"]
    series = [
        Series(f"{name}, {label}", [_cell(rows, group, name, column) for group in groups])
        for name in others
        for label, column in (("paper", 8), ("ours", 5))
    ]
    return written + bar_plot(
        out / "fcp-table1.svg", groups, series,
        title="Table I: time over fcp's", labels=("", "times fcp's time"),
    )  # fmt: skip


def _cell(rows: Sequence[Sequence[Cell]], group: str, name: str, column: int) -> float:
    [found] = [row[column] for row in rows if row[:2] == [group, name]]
    return float(found)


def checksums(out: Path, small: bool) -> list[Path]:
    """Copy without checksums, with checksums, and with corruption before the verification."""
    before = Surroundings.now()
    corrupted = "examples.papers.fcp_corrupted"
    ways = [
        fcp_way("off", _ranks()),
        fcp_way("on", _ranks(), "--verify"),
        fcp_way("corrupted", _ranks(), module=corrupted),
    ]
    with working() as place:
        times = times_of(ways, small, place)
    rows: list[list[Cell]] = []
    for one in times:
        for way in ways:
            paper: Cell = ""
            if one in CHECKSUM_S.value:
                off_s, on_s, corrupted_s = CHECKSUM_S.value[one]
                paper = {"off": 1.0, "on": on_s / off_s, "corrupted": corrupted_s / off_s}[way.name]
            again = max(each.again for each in times[one][way.name])
            cells = _cells(compared(times, one, way.name, "off"))
            rows.append([one, way.name, *cells, paper, again])
    header = ("set", "checksums", *_TIMES, "over off", "over off without start", "paper over off",
              "copied again")  # fmt: skip
    note = before.note(f"{_ranks()} ranks, tmpfs; paper: {CHECKSUM_S.source}")
    written = [write_table(out / "fcp-checksums.csv", header, rows, note)]
    groups = list(TABLE_S.value)
    series = [
        Series(f"{name}, {label}", [_cell(rows, group, name, column) for group in groups])
        for name in ("on", "corrupted")
        for label, column in (("paper", 7), ("ours", 5))
    ]
    return written + bar_plot(
        out / "fcp-checksums.svg", groups, series,
        title="fcp with checksums, over without", labels=("", "times"),
    )  # fmt: skip


def ranks(out: Path, small: bool) -> list[Path]:
    """Copy with 1 to 8 ranks on this machine; the paper uses nodes (section III-B)."""
    before = Surroundings.now()
    ways = [fcp_way(str(number), number) for number in RANKS]
    with working() as place:
        times = times_of(ways, small, place)
    rows: list[list[Cell]] = []
    speed_ups: dict[str, list[float]] = {one: [] for one in TABLE_S.value}
    for one in times:
        for number in RANKS:
            seconds = _cells(compared(times, one, str(number), "1"))[:3]
            found = compared(times, one, "1", str(number))
            rows.append([one, number, *seconds, *_cells(found)[3:], _nodes_speed_up(one, number)])
            if one in speed_ups:
                speed_ups[one].append(found.ratio)
    header = ("set", "ranks", *_TIMES, "speed-up", "speed-up without start",
              "paper's on so many nodes")  # fmt: skip
    sources = "; ".join(stated.source for stated in NODES_S.values())
    note = before.note(f"one machine, tmpfs; paper: {sources}")
    written = [write_table(out / "fcp-ranks.csv", header, rows, note)]
    series = [Series(one, values) for one, values in speed_ups.items()]
    return written + line_plot(
        out / "fcp-ranks.svg", RANKS, series,
        title=f"fcp on {_ranks()} cores", labels=("ranks", "speed-up over one rank"),
    )  # fmt: skip


def _nodes_speed_up(one: str, nodes: int) -> Cell:
    """Return the speed-up of the paper's fcp on several nodes, with the default stripes."""
    if one not in NODES_S:
        return ""
    times_s = dict(zip(NODES.value, NODES_S[one].value[DEFAULT_STRIPES.value], strict=True))
    return (times_s[1] or 0.0) / (times_s[nodes] or 1.0)


def _measured() -> list[Figure]:
    kinds: Mapping[str, tuple[str, Callable[[Path, bool], list[Path]], float]] = {
        "table1": ("Table I: four data sets with cp, rsync, dcp and fcp", table, 120.0),
        "checksums": ("fcp without checksums, with, and with corrupted files", checksums, 60.0),
        "ranks": ("fcp with 1, 2, 4 and 8 ranks", ranks, 60.0),
    }
    return [
        Figure(name, title, duration_s, partial(make))
        for name, (title, make, duration_s) in kinds.items()
    ]


MEASURED = _measured()
FIGURES = [*MEASURED, *fcp_nodes.FIGURES, *fcp_memory.FIGURES]

if __name__ == "__main__":
    sys.exit(main("fcp", FIGURES))
